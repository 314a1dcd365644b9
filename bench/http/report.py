"""A run's figures for people: tables for the terminal, the same in Markdown, and JSON for machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.expectations import Expectation, number
from bench.http.cases import HttpCase
from bench.http.streams import Pushed
from bench.machine import Machine
from bench.report import Grid
from bench.results import Results

FIGURES = {
    "/s": "per_second",
    "CPU µs, HTTP server": "client_us",
    "CPU µs, PostgreSQL": "cpu_us",
    "p50 ms": "p50_ms",
    "p99 ms": "p99_ms",
}


@dataclass(frozen=True, slots=True)
class HttpReport:
    cases: Sequence[HttpCase]
    results: Results
    pushed: Pushed | None
    expectations: Sequence[Expectation]
    machine: Machine
    connections: int
    streams: int
    rounds: int

    def grids(self) -> list[Grid]:
        return [grid for grid in (self._figures(), self._pushed(), self._verdicts()) if grid.rows]

    def heading(self) -> str:
        turns = f"{self.connections} connections, one process, rounds: {self.rounds}"
        return f"{self.machine.summary()}; {turns}"

    def markdown(self) -> str:
        return "\n\n".join([f"Measured on {self.heading()}.", *(grid.markdown() for grid in self.grids())])

    def json(self) -> dict[str, Any]:
        return {
            "machine": asdict(self.machine),
            "cases": {
                case.name: {
                    name: [each.as_dict() for each in self.results.samples[case.name, name]]
                    for name in self.results.contenders
                }
                for case in self.cases
            },
            "pushed": asdict(self.pushed) if self.pushed else None,
            "expectations": [asdict(each) | {"met": each.met} for each in self.expectations],
        }

    def _figures(self) -> Grid:
        rows = [self._row(case, name) for case in self.cases for name in self.results.contenders]
        head = ["", "by", *FIGURES, "ratio of /s"]
        return Grid("Medians of the rounds, per request or claim and ack", head, rows)

    def _row(self, case: HttpCase, name: str) -> list[str]:
        ours = name == self.results.contenders[0]
        values = [self.results.value(case.name, name, figure) for figure in FIGURES.values()]
        ratio = None if ours else self.results.ratio(case.name, "per_second", name)
        return [case.title if ours else "", name, *map(_text, [*values, ratio])]

    def _pushed(self) -> Grid:
        head = ["", "messages", "/s", "lost", "twice"]
        if self.pushed is None:
            return Grid("Work streams", head, [])
        told = [f"{self.pushed.sent:,}", number(self.pushed.per_second)]
        counts = [f"{self.pushed.lost:,}", f"{self.pushed.repeated:,}"]
        return Grid("Work streams", head, [[f"{self.streams} streams", *told, *counts]])

    def _verdicts(self) -> Grid:
        rows = [[each.title, each.found(), each.wanted(), each.verdict()] for each in self.expectations]
        return Grid("Expectations", ["", "found", "wanted", "verdict"], rows)


def _text(value: float | None) -> str:
    return "" if value is None else number(value)
