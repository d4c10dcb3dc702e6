"""The manifest of a repository: nothing of it is called from Python."""
