"""The command line: `holdfast`."""

from __future__ import annotations

from .app import app

__all__ = ["app"]
