"""Checkpoints of the control file in the log: nothing of it is called from Python."""
