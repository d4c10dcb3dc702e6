"""The log as a sequence of accepted commits: nothing of it is called from Python."""
