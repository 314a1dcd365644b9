"""A run's figures for people: tables for the terminal, the same in Markdown, and JSON for machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from rich.table import Table

from bench.expectations import Expectation, number
from bench.machine import Machine
from bench.results import Results, Titled, quotient
from bench.sample import Sample
from bench.scenarios.case import LongCase

COLUMNS = {"CPU µs": "cpu_us", "background µs": "background_us", "WAL B": "wal_bytes", "/s": "per_second"}
COMPARED = ("cpu_us", "wal_bytes")


@dataclass(frozen=True, slots=True)
class Grid:
    """A table that can be drawn in more than one way."""

    title: str
    head: list[str]
    rows: list[list[str]]

    def rich(self) -> Table:
        table = Table(title=self.title, title_justify="left", header_style="bold")
        for place, name in enumerate(self.head):
            table.add_column(name, justify="left" if place == 0 else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        lines = [self.head, ["---", *["---:"] * (len(self.head) - 1)], *self.rows]
        return f"**{self.title}**\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass(frozen=True, slots=True)
class Report:
    results: Results
    expectations: Sequence[Expectation]
    machine: Machine
    versions: dict[str, str]

    def grids(self) -> list[Grid]:
        return [grid for grid in (self._costs(), self._pressure(), self._verdicts()) if grid.rows]

    def markdown(self) -> str:
        made = f"Measured on {self.machine.summary()}; {self._names()}."
        settings = f"Settings: {self.machine.settings_line()}."
        return "\n\n".join([f"{made} {settings}", *(grid.markdown() for grid in self.grids())])

    def json(self) -> dict[str, Any]:
        return {
            "machine": asdict(self.machine),
            "versions": self.versions,
            "cases": [self._case_json(case) for case in self.results.cases],
            "expectations": [asdict(each) | {"met": each.met} for each in self.expectations],
        }

    def _names(self) -> str:
        return " and ".join(f"{name} {version}" for name, version in self.versions.items())

    def _case_json(self, case: Titled) -> dict[str, Any]:
        return {
            "name": case.name,
            "title": case.title,
            "contenders": {
                name: {
                    "median": middle.as_dict(),
                    "rounds": [sample.as_dict() for sample in self.results.samples[case.name, name]],
                }
                for name in self.results.contenders
                if (middle := self.results.middle(case.name, name)) is not None
            },
        }

    def _costs(self) -> Grid:
        head = ["per message"]
        for label, figure in COLUMNS.items():
            head += [f"{label} {name}" for name in self.results.contenders]
            head += ["ratio"] if figure in COMPARED else []
        cases = [case for case in self.results.cases if not isinstance(case, LongCase)]
        rows = [[case.title, *self._cost_cells(case)] for case in cases]
        return Grid("Cost, median of the rounds", head, rows)

    def _cost_cells(self, case: Titled) -> list[str]:
        cells: list[str] = []
        for figure in COLUMNS.values():
            cells += [self._cell(case, name, attrgetter(figure)) for name in self.results.contenders]
            cells += [_text(self.results.ratio(case.name, figure))] if figure in COMPARED else []
        return cells

    def _pressure(self) -> Grid:
        head = ["messages/s"]
        for name in self.results.contenders:
            head += [f"{name} first", "last", "last/first", "CPU µs first", "last"]
        cases = [case for case in self.results.cases if isinstance(case, LongCase)]
        rows = [[case.title, *self._pressure_cells(case)] for case in cases]
        return Grid("Under pressure: first and last window", head, rows)

    def _pressure_cells(self, case: Titled) -> list[str]:
        reads: tuple[Callable[[Sample], float | None], ...] = (
            lambda s: s.first_per_second,
            lambda s: s.last_per_second,
            lambda s: quotient(s.last_per_second, s.first_per_second),
            lambda s: s.first_cpu_us,
            lambda s: s.last_cpu_us,
        )
        return [self._cell(case, name, read) for name in self.results.contenders for read in reads]

    def _cell(self, case: Titled, contender: str, read: Callable[[Sample], float | None]) -> str:
        sample = self.results.middle(case.name, contender)
        return _text(None if sample is None else read(sample))

    def _verdicts(self) -> Grid:
        rows = [[each.title, each.found(), each.wanted(), each.verdict()] for each in self.expectations]
        return Grid("Expectations", ["", "found", "wanted", "verdict"], rows)


def _text(value: float | None) -> str:
    return "" if value is None else number(value)
