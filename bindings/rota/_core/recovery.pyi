"""Recovery of a repository at its open: nothing of it is called from Python."""
