"""Reading a message; nothing here is called from Python."""
