"""CPU time of a PostgreSQL server's processes, in nanoseconds, from /proc.

`schedstat` counts nanoseconds where `stat` counts ticks of 10 ms. Children that have ended (autovacuum and
parallel workers) are in the postmaster's own account of reaped children, so nothing has to be sampled.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

NS_PER_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class CpuReading:
    """CPU so far: of the backends asked about, and of everything else in the server."""

    foreground: int
    background: int

    def __sub__(self, earlier: CpuReading) -> CpuReading:
        return CpuReading(self.foreground - earlier.foreground, self.background - earlier.background)


class CpuMeter:
    def __init__(self, postmaster: int) -> None:
        self._postmaster = postmaster

    def read(self, backends: Iterable[int]) -> CpuReading:
        foreground = sum(spent(pid) for pid in backends)
        alive = sum(spent(pid) for pid in children(self._postmaster))
        total = spent(self._postmaster) + reaped(self._postmaster) + alive
        return CpuReading(foreground, total - foreground)


def spent(pid: int) -> int:
    """Nanoseconds on a CPU; 0 for a process that has just ended (its parent's `reaped` has it then)."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[0])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def reaped(pid: int) -> int:
    """What the ended children of a process had used."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) * NS_PER_TICK


def children(pid: int) -> list[int]:
    return [int(child) for child in (PROC / str(pid) / "task" / str(pid) / "children").read_text().split()]


def readable() -> bool:
    return (PROC / "self" / "schedstat").exists() and (PROC / "self" / "task").exists()
