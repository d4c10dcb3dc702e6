"""Many bodies at once; nothing here is called from Python."""
