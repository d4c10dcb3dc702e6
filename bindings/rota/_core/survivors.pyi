"""What still lives in segments that are to be emptied: nothing of it is called from Python."""
