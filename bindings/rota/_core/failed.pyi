"""What remains of a failed sync: nothing of it is called from Python."""
