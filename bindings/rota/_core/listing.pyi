"""Looking through a queue; nothing here is called from Python."""
