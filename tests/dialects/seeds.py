"""The pages that dialects are held against: a folder beside the checkout, or what HOLDFAST_SEEDS names."""

from __future__ import annotations

import os
from pathlib import Path

BESIDE = Path(__file__).parents[3] / "shared" / "seeds"


def page(name: str) -> str | None:
    """The text of a page; None where the pages are not there."""
    path = Path(os.environ.get("HOLDFAST_SEEDS") or BESIDE) / f"{name}.txt"
    return path.read_text(encoding="utf-8") if path.exists() else None
