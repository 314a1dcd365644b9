"""What speaks against a change of a schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Objection:
    """Where a change is not compatible, and why."""

    path: str
    reason: str
