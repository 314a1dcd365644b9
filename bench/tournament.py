"""Runs the cases: rounds in which the contenders take turns in short laps, and at going first."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from bench.arena import Arena
from bench.contenders.contender import Contender
from bench.databases import Databases
from bench.progress import Announce
from bench.results import Results
from bench.scenarios.case import LAPS, AnyCase, Case, LongCase, lap_quota
from bench.tally import Tally


class Tournament:
    def __init__(
        self, *, databases: Databases, contenders: Sequence[Contender], rounds: int, long_rounds: int
    ) -> None:
        self._databases = databases
        self._contenders = contenders
        self._rounds = rounds
        self._long_rounds = long_rounds

    def blocks(self, cases: Sequence[AnyCase]) -> int:
        return sum(self._rounds_of(case) * len(self._contenders) for case in cases)

    def run(self, cases: Sequence[AnyCase], announce: Announce) -> Results:
        results = Results(cases, [contender.name for contender in self._contenders])
        for case in cases:
            for number in range(self._rounds_of(case)):
                if isinstance(case, Case):
                    self._race(case, number, results, announce)
                else:
                    self._solo(case, number, results, announce)
        return results

    def _rounds_of(self, case: AnyCase) -> int:
        return self._long_rounds if isinstance(case, LongCase) else self._rounds

    def _order(self, number: int) -> Sequence[Contender]:
        return self._contenders if number % 2 == 0 else self._contenders[::-1]

    def _race(self, case: Case, number: int, results: Results, announce: Announce) -> None:
        """Fill everyone's arena, then alternate laps, so that what else the machine does hits all alike."""
        with ExitStack() as stack:
            # A new arena begins with a checkpoint: all are made before any is filled.
            arenas = {each.name: self._arena(case, each, stack) for each in self._order(number)}
            courses = {}
            for name, arena in arenas.items():
                announce(_told(case, number, name))
                courses[name] = case.ready(arena)
            tallies = {name: Tally() for name in arenas}
            for lap in range(LAPS):
                for name in arenas if lap % 2 == 0 else reversed(arenas):
                    quota = lap_quota(courses[name].quota)
                    arenas[name].lap(courses[name].crew, quota, tallies[name])
            for name, tally in tallies.items():
                results.add(case.name, name, tally.sample().only(case.shown))

    def _solo(self, case: LongCase, number: int, results: Results, announce: Announce) -> None:
        for contender in self._order(number):
            announce(_told(case, number, contender.name))
            with self._databases.fresh(contender) as arena:
                results.add(case.name, contender.name, case.measure(arena))

    def _arena(self, case: Case, contender: Contender, stack: ExitStack) -> Arena:
        if case.lasting is None:
            return stack.enter_context(self._databases.fresh(contender))
        arena, new = self._databases.kept(contender, case.lasting)
        stack.callback(arena.release)
        if new and case.prepare is not None:
            case.prepare(arena)
        return arena


def _told(case: AnyCase, number: int, contender: str) -> str:
    return f"{case.title} · round {number + 1} · {contender}"
