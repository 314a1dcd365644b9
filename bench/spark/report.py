"""A run's figures for people: tables for the terminal, the same in Markdown, and JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.expectations import Expectation, number
from bench.machine import Machine
from bench.report import Grid
from bench.results import Results
from bench.scenarios.scale import short
from bench.spark.case import HOLDFAST, Rival, SparkCase

HEAD = [
    "",
    "by",
    "messages",
    "messages/s",
    "ratio",
    "CPU µs a message",
    "of it the server",
    "MiB JVM",
    "largest worker",
    "driver",
]


@dataclass(frozen=True, slots=True)
class SparkReport:
    cases: Sequence[SparkCase]
    results: Results
    expectations: Sequence[Expectation]
    machine: Machine
    messages: int
    rounds: int

    def grids(self) -> list[Grid]:
        return [self._figures(), self._verdicts()]

    def heading(self) -> str:
        turns = f"{short(self.messages)} messages of about 200 B, rounds: {self.rounds}"
        return f"{self.machine.summary()}; {turns}"

    def markdown(self) -> str:
        return "\n\n".join([f"Measured on {self.heading()}.", *(grid.markdown() for grid in self.grids())])

    def json(self) -> dict[str, Any]:
        return {
            "machine": asdict(self.machine),
            "messages": self.messages,
            "cases": {
                case.name: {
                    rival.name: [each.as_dict() for each in self.results.samples[case.name, rival.name]]
                    for rival in case.rivals
                }
                for case in self.cases
            },
            "expectations": [asdict(each) | {"met": each.met} for each in self.expectations],
        }

    def _figures(self) -> Grid:
        rows = [self._row(case, rival) for case in self.cases for rival in case.rivals]
        return Grid("Medians of the rounds; ratios are Holdfast's messages/s over the peer's", HEAD, rows)

    def _row(self, case: SparkCase, rival: Rival) -> list[str]:
        sample = self.results.middle(case.name, rival.name)
        if sample is None:
            return []
        ours = rival.name == HOLDFAST
        ratio = None if ours else self.results.ratio(case.name, "per_second", rival.name)
        cpu = (sample.cpu_us or 0) + (sample.client_us or 0)
        return [
            case.title if ours else "",
            rival.name,
            short(round(self.messages * case.times * rival.share)),
            *map(_text, (sample.per_second, ratio, cpu, sample.cpu_us)),
            *map(_text, (sample.jvm_mib, sample.worker_mib) if rival.spark else (None, None)),
            _text(sample.driver_mib),
        ]

    def _verdicts(self) -> Grid:
        rows = [[each.title, each.found(), each.wanted(), each.verdict()] for each in self.expectations]
        return Grid("Expectations", ["", "found", "wanted", "verdict"], rows)


def _text(value: float | None) -> str:
    return "" if value is None else number(value)
