"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

from bench.link import Link

SHOWN_SETTINGS = (
    "shared_buffers",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "data_checksums",
    "autovacuum",
    "autovacuum_naptime",
    "max_wal_size",
    "checkpoint_timeout",
    "jit",
)


@dataclass(frozen=True, slots=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    system: str
    postgresql: str
    settings: dict[str, str]

    def summary(self) -> str:
        return (
            f"{self.cpu}, {self.cores} cores, {self.memory_gib:.0f} GiB, {self.system}, "
            f"PostgreSQL {self.postgresql}"
        )

    def settings_line(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.settings.items())


def describe(link: Link) -> Machine:
    return Machine(
        cpu=_cpu_model(),
        cores=os.cpu_count() or 1,
        memory_gib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30,
        system=f"{platform.system()} {platform.release()}",
        postgresql=link.value("show server_version"),
        settings={name: link.value(f"show {name}") for name in SHOWN_SETTINGS},
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
