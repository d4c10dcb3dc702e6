"""What a holder may do with its claim; nothing here is called from Python."""
