"""Paths as Spark's readers take them."""

from __future__ import annotations

import re

GLOB = re.compile(r"([\\*?\[\]{}])")


def literal(path: str) -> str:
    """A path that names what it says: none of its characters is a pattern."""
    return GLOB.sub(r"\\\1", path)
