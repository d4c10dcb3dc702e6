"""The epoch that a recovery begins: nothing of it is called from Python."""
