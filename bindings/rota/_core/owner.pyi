"""Who calls: numbers of threads and tasks; nothing here is called from Python."""
