"""What stands behind an interface of the package and needs more than a file: each module imports what it needs."""
