"""Getting room back in the log: nothing of it is called from Python."""
