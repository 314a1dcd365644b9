"""The engine beside pgmq: what a message costs in CPU and WAL, how fast it goes, and what makes that grow.

    python -m bench.engine [--quick] [--only NAME] [--rounds N] [--json FILE] [--markdown] [--check]

Method. Both contenders run in one PostgreSQL server and one run. A case has three rounds; in each, both
fill a database of their own, a copy of one where the contender was just installed, and then take turns in
ten short laps, so that what else the machine does hits both alike. Figures are medians over the rounds,
ratios the medians of the rounds' ratios. Both get the same payload (JSON, about 200 bytes), batch sizes,
number of connections, prepared statements, rows as text as a client reads them, and warm-up (8 calls per
connection, past PostgreSQL's choice of a generic plan). Every call is a transaction of its own. fsync,
synchronous_commit, full_page_writes and autovacuum are on.

CPU is that of the backends that serve the measured clients, from /proc/PID/schedstat, in nanoseconds; the
client's own is not in it. "Background" is every other process of the server: WAL writer, checkpointer,
autovacuum (also workers that have ended), and the little that the measuring connection takes. CPU time
depends much less on what else the machine does than messages per second, which include the client besides.

WAL is the distance that the insert position moved. A checkpoint comes before a round's backlogs are sent,
so messages are sent and consumed within one checkpoint cycle and no page is logged whole in between: the
steady state of a queue that keeps up. The case "after a checkpoint" is the other extreme: each page's first
change is logged whole.

The cases are described where they are made: bench/scenarios/flow.py, depth.py, features.py, pressure.py.
Long runs under pressure (60 s) are made by each contender alone, and once unless --long-rounds says so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import cpu, server
from bench.contenders.contender import Contender
from bench.contenders.holdfast import Holdfast
from bench.contenders.pgmq import Pgmq
from bench.crew import CrewError
from bench.databases import Databases
from bench.expectations import judge
from bench.link import LinkError
from bench.machine import describe
from bench.progress import shown_progress
from bench.report import Report
from bench.results import Results
from bench.scenarios import depth, features, flow, pressure
from bench.scenarios.case import AnyCase
from bench.scenarios.scale import FULL, QUICK
from bench.tournament import Tournament
from holdfast.embedded import EmbeddedError

REPORT_WIDTH = 170
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    cases = _cases(options)
    if options.list:
        print("\n".join(f"{case.name:22} {case.title}" for case in cases))
        return 0
    if not cpu.readable():
        sys.exit("bench.engine reads CPU time from /proc/PID/schedstat, which this system does not have.")
    if not cases:
        sys.exit(f"no case is called {' or '.join(options.only)}; --list names them")
    try:
        report = _measure(options, cases)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (CrewError, EmbeddedError, LinkError) as error:
        sys.exit(f"bench.engine: {error}")
    _show(report, options)
    return int(options.check and not all(each.met for each in report.expectations))


def _options() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=first_line)
    add = parser.add_argument
    add("--quick", action="store_true", help="a minute or two: fewer messages, short runs, one round")
    add("--only", metavar="NAME", action="append", help="only cases named or grouped so; repeatable")
    add("--list", action="store_true", help="name the cases and stop")
    add("--rounds", type=int, metavar="N", help="rounds of each block (3; with --quick 1)")
    add("--long-rounds", type=int, default=1, metavar="N", help="rounds of the long runs (1)")
    add("--seconds", type=float, metavar="S", help="length of the long runs (60; with --quick 8)")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    add("--check", action="store_true", help="exit with 1 if an expectation is not met")
    add("--database-url", metavar="URL", help="a server on this machine (superuser), not an embedded one")
    return parser


def _cases(options: argparse.Namespace) -> list[AnyCase]:
    scale = QUICK if options.quick else FULL
    if options.seconds:
        scale = replace(scale, seconds=options.seconds, window_s=min(5.0, options.seconds / 4))
    every: list[AnyCase] = [*flow.cases(scale), *pressure.cases(scale), *depth.cases(scale)]
    every += features.cases(scale)
    wanted: list[str] = options.only or [""]
    return [case for case in every if any(part in case.name or part in case.group for part in wanted)]


def _measure(options: argparse.Namespace, cases: Sequence[AnyCase]) -> Report:
    contenders: list[Contender] = [Holdfast(), Pgmq()]
    with server.running(options.database_url) as url:
        databases = Databases(url)
        try:
            databases.install(contenders)
            results = _run(options, cases, databases, contenders)
            machine = describe(databases.admin)
        finally:
            databases.close()
    return Report(results, judge(results), machine, {each.name: each.version for each in contenders})


def _run(
    options: argparse.Namespace,
    cases: Sequence[AnyCase],
    databases: Databases,
    contenders: Sequence[Contender],
) -> Results:
    tournament = Tournament(
        databases=databases,
        contenders=contenders,
        rounds=options.rounds or (1 if options.quick else 3),
        long_rounds=options.long_rounds,
    )
    with shown_progress(tournament.blocks(cases)) as announce:
        return tournament.run(cases, announce)


def _show(report: Report, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(json.dumps(report.json(), indent=2) + "\n")
    if options.markdown:
        print(report.markdown())
        return
    console = Console(width=REPORT_WIDTH)
    console.print(f"{report.machine.summary()}\n{report.machine.settings_line()}\n", highlight=False)
    for grid in report.grids():
        console.print(grid.rich())


if __name__ == "__main__":
    sys.exit(main())
