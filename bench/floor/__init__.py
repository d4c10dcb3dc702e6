"""C programs that measure what the machine needs for one step: `python -m bench.floor`."""
