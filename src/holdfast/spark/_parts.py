"""Even parts: how work is cut for tasks."""

from __future__ import annotations

from itertools import pairwise

PARTITIONS = 8  # as many tasks as a batch of a stream has, unless the option partitions says otherwise


def even(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """The numbers from lo to before hi in so many parts, as such pairs; empty ones are left out."""
    edges = [lo + n * (hi - lo) // parts for n in range(parts)] + [hi]
    return [(start, end) for start, end in pairwise(edges) if start < end]
