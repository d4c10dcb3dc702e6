"""The queues and registrations of a checkpoint being loaded: nothing of it is called from Python."""
