"""What the laps of one block took, added up."""

from __future__ import annotations

from dataclasses import dataclass

from bench.cpu import CpuReading
from bench.crew import Lap
from bench.sample import Sample

NS_PER_US = 1_000


@dataclass(slots=True)
class Tally:
    messages: int = 0
    seconds: float = 0.0
    foreground: int = 0
    background: int = 0
    wal: int = 0

    def add(self, lap: Lap, cpu: CpuReading, wal: int) -> None:
        self.messages += lap.messages
        self.seconds += lap.seconds
        self.foreground += cpu.foreground
        self.background += cpu.background
        self.wal += wal

    def sample(self) -> Sample:
        return Sample(
            cpu_us=self.foreground / NS_PER_US / self.messages,
            background_us=self.background / NS_PER_US / self.messages,
            wal_bytes=self.wal / self.messages,
            per_second=self.messages / self.seconds,
        )
