"""The client as it is written: asynchronous. tools/generate_sync.py makes the synchronous twin from it."""
