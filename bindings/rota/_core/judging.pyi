"""Native; nothing here is called from Python."""
