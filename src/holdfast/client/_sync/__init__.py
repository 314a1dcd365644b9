# Made from ../_async/__init__.py by tools/generate_sync.py: change that file, then run make generate.
"""The client as it is written: synchronous. tools/generate_sync.py makes the synchronous twin from it."""
