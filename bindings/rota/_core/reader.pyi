"""Private copies of the bytes of segment files: nothing of them is called from Python."""
