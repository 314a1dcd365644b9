"""Holdfast's HTTP server beside the one that comes with pgmq's client, on one PostgreSQL server.

    python -m bench.http [--quick] [--case NAME] [--seconds N] [--rounds N] [--json FILE] [--markdown]

Method. In each round both servers, each one process on a fresh database, are asked in turn by wrk, on 64
connections that each wait for their answer; another one goes first in each round. A second of the same, which
does not count, comes before. Every send is durable. Figures are medians over the rounds, ratios the medians
of the rounds' ratios. Both servers are told to log warnings alone; their other settings are those they come
with.

CPU is that of the server's process with all threads, and of PostgreSQL with all its processes. wrk shares the
machine with both, so requests a second are what this machine has room for, and CPU is what to compare. Work
streams are Holdfast's alone: messages sent at a steady rate must come once each, whichever of 200 streams
they are pushed to.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from psycopg import Error
from rich.console import Console

from bench import cpu, server
from bench.databases import Databases
from bench.http.cases import CASES, HttpCase, measure, push
from bench.http.expectations import PUSHED, judge
from bench.http.load import LoadError
from bench.http.report import HttpReport
from bench.http.servers import SERVED, running
from bench.http.streams import Pushed
from bench.link import LinkError
from bench.machine import describe
from bench.progress import Announce, shown_progress
from bench.results import Results
from holdfast.embedded import EmbeddedError

SECONDS, QUICK_SECONDS = 10.0, 2.0
CONNECTIONS = 64
STREAMS_CASE, STREAMS_TITLE = "streams", "work streams, messages pushed and acked"
STREAMS = 200
REPORT_WIDTH = 150
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if options.list:
        named = [(case.name, case.title) for case in CASES] + [(STREAMS_CASE, STREAMS_TITLE)]
        print("\n".join(f"{name:22} {title}" for name, title in named))
        return 0
    if problem := _problem(options):
        sys.exit(f"bench.http: {problem}")
    try:
        report = _measure(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (EmbeddedError, Error, LinkError, LoadError) as error:
        sys.exit(f"bench.http: {error}")
    _show(report, options)
    return int(options.check and not all(each.met for each in report.expectations))


def _options() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.http", description=first_line)
    add = parser.add_argument
    add("--quick", action="store_true", help="2 seconds a turn and one round, unless said otherwise")
    add("--case", metavar="NAME", action="append", help="only cases named so; repeatable")
    add("--list", action="store_true", help="name the cases and stop")
    add("--seconds", type=float, metavar="N", help="length of a turn (10; with --quick 2)")
    add("--rounds", type=int, metavar="N", help="rounds of each case (3; with --quick 1)")
    add("--connections", type=int, default=CONNECTIONS, metavar="N", help="that ask at once (64)")
    add("--streams", type=int, default=STREAMS, metavar="N", help="streams that work is pushed to (200)")
    add("--rate", type=int, default=round(PUSHED), metavar="N", help="messages a second sent to them (5,000)")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    add("--check", action="store_true", help="exit with 1 if an expectation is not met")
    add("--database-url", metavar="URL", help="a server on this machine (superuser), not an embedded one")
    return parser


def _problem(options: argparse.Namespace) -> str | None:
    """Why nothing can be measured."""
    known = {*(case.name for case in CASES), STREAMS_CASE}
    if unknown := sorted(set(options.case or ()) - known):
        return f"no case is called {' or '.join(unknown)}; --list names them"
    if not cpu.readable():
        return "it reads CPU time from /proc/PID/schedstat, which this system does not have"
    if shutil.which("wrk") is None:
        return "wrk is missing: make debian/wrk brings it"
    return None


def _measure(options: argparse.Namespace) -> HttpReport:
    cases = [case for case in CASES if options.case is None or case.name in options.case]
    rounds = options.rounds or (1 if options.quick else 3)
    with_streams = options.case is None or STREAMS_CASE in options.case
    with server.running(options.database_url) as url:
        databases = Databases(url)
        try:
            databases.install([served.contender for served in SERVED])
            blocks = len(cases) * rounds * len(SERVED) + int(with_streams)
            with shown_progress(blocks) as announce:
                results = _run(databases, cases, rounds, options, announce)
                pushed = _pushed(databases, options, announce) if with_streams else None
            machine = describe(databases.admin)
        finally:
            databases.close()
    verdicts = judge(results, pushed)
    return HttpReport(cases, results, pushed, verdicts, machine, options.connections, options.streams, rounds)


def _seconds(options: argparse.Namespace) -> float:
    return float(options.seconds or (QUICK_SECONDS if options.quick else SECONDS))


def _run(
    databases: Databases,
    cases: Sequence[HttpCase],
    rounds: int,
    options: argparse.Namespace,
    announce: Announce,
) -> Results:
    results = Results(cases, [served.contender.name for served in SERVED])
    for case in cases:
        for number in range(rounds):
            for served in SERVED if number % 2 == 0 else SERVED[::-1]:
                name = served.contender.name
                announce(f"{case.title} · round {number + 1} · {name}")
                with databases.fresh(served.contender) as arena, running(served, arena.url) as process:
                    sample = measure(case, served, process, arena, options.connections, _seconds(options))
                results.add(case.name, name, sample)
    return results


def _pushed(databases: Databases, options: argparse.Namespace, announce: Announce) -> Pushed:
    announce(STREAMS_TITLE)
    ours = SERVED[0]
    with databases.fresh(ours.contender) as arena, running(ours, arena.url) as process:
        return push(process, options.streams, options.rate, _seconds(options))


def _show(report: HttpReport, options: argparse.Namespace) -> None:
    if options.json:
        options.json.write_text(json.dumps(report.json(), indent=2) + "\n")
    if options.markdown:
        print(report.markdown())
        return
    console = Console(width=REPORT_WIDTH)
    console.print(f"{report.heading()}\n{report.machine.settings_line()}\n", highlight=False)
    for grid in report.grids():
        console.print(grid.rich())


if __name__ == "__main__":
    sys.exit(main())
