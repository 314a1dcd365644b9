"""A run's figures for people: tables for the terminal, the same in Markdown, and JSON for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bench.expectations import Expectation, number
from bench.machine import Machine
from bench.report import Grid
from bench.results import Results
from bench.webhook.cases import WebhookCase

FIGURES = {"/s": "per_second", "CPU µs, client": "client_us", "CPU µs, PostgreSQL": "cpu_us"}
LIMIT = 0.6  # of the bare loop's deliveries a second


def judge(results: Results) -> Iterator[Expectation]:
    """Every expectation whose case was measured."""
    for case in results.cases:
        ratio = results.ratio(case.name, "per_second")
        if ratio is not None:
            title = f"deliveries a second over the bare loop's, {case.title}"
            yield Expectation(title, ratio, LIMIT, at_least=True)


@dataclass(frozen=True, slots=True)
class WebhookReport:
    cases: Sequence[WebhookCase]
    results: Results
    machine: Machine
    rounds: int

    def expectations(self) -> list[Expectation]:
        return list(judge(self.results))

    def heading(self) -> str:
        plural = "" if self.rounds == 1 else "s"
        return f"{self.machine.summary()}. {self.rounds} round{plural}."

    def grids(self) -> list[Grid]:
        return [self._figures(), self._verdicts()]

    def markdown(self) -> str:
        return "\n\n".join([self.heading(), *(grid.markdown() for grid in self.grids())])

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
            "expectations": [asdict(each) | {"met": each.met} for each in self.expectations()],
        }

    def _figures(self) -> Grid:
        rows = [self._row(case, name) for case in self.cases for name in self.results.contenders]
        return Grid("Medians of the rounds, per delivery", ["", "by", *FIGURES, "ratio of /s"], rows)

    def _row(self, case: WebhookCase, name: str) -> list[str]:
        ours = name == self.results.contenders[0]
        values = [self.results.value(case.name, name, figure) for figure in FIGURES.values()]
        ratio = self.results.ratio(case.name, "per_second") if ours else None
        return [case.title if ours else "", name, *map(_text, [*values, ratio])]

    def _verdicts(self) -> Grid:
        rows = [[each.title, each.found(), each.wanted(), each.verdict()] for each in self.expectations()]
        return Grid("Expectations", ["", "found", "wanted", "verdict"], rows)


def _text(value: float | None) -> str:
    return "" if value is None else number(value)
