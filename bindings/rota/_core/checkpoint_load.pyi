"""Loading a checkpoint at recovery: nothing of it is called from Python."""
