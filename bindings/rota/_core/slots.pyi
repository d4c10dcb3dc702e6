"""States of slots; nothing here is called from Python."""
