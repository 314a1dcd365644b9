"""API keys: make, list, rotate, revoke."""

from __future__ import annotations

from holdfast.server.endpoint import Book

book = Book("keys")
