"""What a recovery writes into the control file: nothing of it is called from Python."""
