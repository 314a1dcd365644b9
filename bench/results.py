"""The figures of a run: a list of samples for every case and contender."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from bench.sample import Sample, middle

Figure = str
"""The name of a field of Sample."""


class Titled(Protocol):
    """What the figures of a case go by."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str: ...


@dataclass(slots=True)
class Results:
    cases: Sequence[Titled]
    contenders: Sequence[str]
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)

    def add(self, case: str, contender: str, sample: Sample) -> None:
        self.samples.setdefault((case, contender), []).append(sample)

    def middle(self, case: str, contender: str) -> Sample | None:
        samples = self.samples.get((case, contender))
        return middle(samples) if samples else None

    def value(self, case: str, contender: str, figure: Figure) -> float | None:
        sample = self.middle(case, contender)
        return None if sample is None else getattr(sample, figure)

    def ratio(self, case: str, figure: Figure, over: str | None = None) -> float | None:
        """The first contender's figure over another's, or the second's: the median of the rounds' ratios."""
        if over is None and len(self.contenders) < 2:
            return None
        names = (self.contenders[0], over or self.contenders[1])
        ours, theirs = (self.samples.get((case, name), []) for name in names)
        pairs = zip(ours, theirs, strict=True)
        ratios = [quotient(getattr(our, figure), getattr(their, figure)) for our, their in pairs]
        known = [ratio for ratio in ratios if ratio is not None]
        return median(known) if known else None


def quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None
