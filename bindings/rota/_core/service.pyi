"""The native thread of an open repository: nothing of it is called from Python."""
