"""Checkpoints of streams: each belongs to one mode and one queue."""

from __future__ import annotations

from .options import OptionError


def foreign_offsets() -> OptionError:
    """The error about offsets that another mode has left."""
    return OptionError("mode", "a checkpoint with other offsets", "a checkpoint of its own for each mode")


def refuse_other_queue(found: str, queue: str) -> None:
    """Refuse a checkpoint that is about another queue."""
    if found != queue:
        raise OptionError(
            "queue", repr(queue), f"{found!r}, which the checkpoint is about, or a new checkpoint"
        )
