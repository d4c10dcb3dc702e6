"""Explicit-state models of the engine's protocols; `python -m tests.model.run --help`."""
