"""What one measured block yields, and the median of several."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from statistics import median


@dataclass(frozen=True, slots=True)
class Sample:
    """Costs per message (or per call, where the case says so). None: not measured in this case."""

    cpu_us: float | None = None  # the backends that serve the measured clients
    background_us: float | None = None  # every other process of the server
    wal_bytes: float | None = None
    per_second: float | None = None
    first_per_second: float | None = None  # long runs: the first window
    last_per_second: float | None = None  # and the last
    first_cpu_us: float | None = None
    last_cpu_us: float | None = None
    client_us: float | None = None  # CPU of everything that is not PostgreSQL's
    jvm_mib: float | None = None  # peaks of resident memory: the JVM
    worker_mib: float | None = None  # the largest Python process beside the driver
    driver_mib: float | None = None
    p50_ms: float | None = None  # half of the answers came within
    p99_ms: float | None = None

    def only(self, names: Collection[str]) -> Sample:
        """Without the figures that mean nothing in a case."""
        return Sample(**{name: value for name, value in self.as_dict().items() if name in names})

    def as_dict(self) -> dict[str, float]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def middle(samples: Sequence[Sample]) -> Sample:
    """The median of each figure over the rounds."""
    return Sample(**{field.name: _median(samples, field.name) for field in fields(Sample)})


def _median(samples: Sequence[Sample], name: str) -> float | None:
    values = [value for sample in samples if (value := getattr(sample, name)) is not None]
    return median(values) if values else None
