"""The image of a checkpoint while it is collected: nothing of it is called from Python."""
