"""Names of keys; nothing here is called from Python."""
