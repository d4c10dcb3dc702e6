"""The segment files of a repository: nothing of them is called from Python."""
