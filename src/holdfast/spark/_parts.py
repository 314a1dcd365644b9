"""Even parts: how work is cut for tasks."""

from __future__ import annotations

import os
from itertools import pairwise

# As many tasks as a batch of a stream has, unless the option partitions says otherwise. Each costs CPU,
# which more of them than cores do not win back. How many cores a cluster has is not known here.
PARTITIONS = min(8, os.cpu_count() or 8)


def even(lo: int, hi: int, parts: int) -> list[tuple[int, int]]:
    """The numbers from lo to before hi in so many parts, as such pairs; empty ones are left out."""
    edges = [lo + n * (hi - lo) // parts for n in range(parts)] + [hi]
    return [(start, end) for start, end in pairwise(edges) if start < end]
