"""The hash tables of a checkpoint's image: nothing of it is called from Python."""
