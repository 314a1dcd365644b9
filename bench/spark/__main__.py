"""Spark with Holdfast's data source beside Spark's own JDBC source, plain COPY, and consumers in Python.

    python -m bench.spark [--quick] [--case NAME] [--messages N] [--rounds N] [--json FILE] [--markdown]

Method. One server, one Spark session with the settings that users get, one run. In each round everybody does
the same work in turn, each time with another one first, so that what else the machine does hits all alike. A
small turn of each, which does not count, comes before the rounds of a case, for the JVM to compile what is
used. What prepares and tidies up is not measured. Figures are medians over the rounds, ratios the medians of
the rounds' ratios.

CPU is that of all processes that have a part: the driver, its JVM and Python workers, and the server with its
background. Memory is resident, looked at twice a second. The cases are described where they are made:
reading.py, sending.py, consuming.py, reporting.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from psycopg import Error
from rich.console import Console

from bench import cpu, server
from bench.contenders.holdfast import Holdfast
from bench.crew import CrewError
from bench.databases import Databases
from bench.link import LinkError
from bench.machine import describe
from bench.progress import Announce, shown_progress
from bench.results import Results
from bench.sample import Sample
from bench.spark import consuming, reading, reporting, sending
from bench.spark.case import HOLDFAST, Rival, SparkCase
from bench.spark.expectations import judge
from bench.spark.ground import JDBC_JAR, Ground, spark_session
from bench.spark.meter import Meter
from bench.spark.report import SparkReport
from holdfast.embedded import EmbeddedError

MESSAGES, QUICK_MESSAGES = 1_000_000, 100_000
WARM = 20_000  # messages of the uncounted round
REPORT_WIDTH = 150
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    cases = _cases(options.case)
    if options.list:
        print("\n".join(f"{case.name:22} {case.title}" for case in cases))
        return 0
    if problem := _problem(options, cases):
        sys.exit(f"bench.spark: {problem}")
    try:
        report = _measure(options, cases)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (AssertionError, CrewError, EmbeddedError, Error, LinkError) as error:
        sys.exit(f"bench.spark: {error}")
    _show(report, options)
    return int(options.check and not all(each.met for each in report.expectations))


def _options() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=first_line)
    add = parser.add_argument
    add("--quick", action="store_true", help="100,000 messages and one round, unless said otherwise")
    add("--case", metavar="NAME", action="append", help="only cases named so; repeatable")
    add("--list", action="store_true", help="name the cases and stop")
    add("--messages", type=int, metavar="N", help="messages of a turn (1,000,000)")
    add("--rounds", type=int, metavar="N", help="rounds of each case (3; with --quick 1)")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    add("--check", action="store_true", help="exit with 1 if an expectation is not met")
    add("--database-url", metavar="URL", help="a server on this machine (superuser), not an embedded one")
    add("--jdbc-jar", type=Path, default=JDBC_JAR, metavar="FILE", help="PostgreSQL's JDBC driver")
    return parser


def _cases(wanted: Sequence[str] | None) -> list[SparkCase]:
    every = [*reading.cases(), *sending.cases(), *consuming.cases(), *reporting.cases()]
    return [case for case in every if wanted is None or case.name in wanted]


def _problem(options: argparse.Namespace, cases: Sequence[SparkCase]) -> str | None:
    """Why nothing can be measured."""
    if not cases:
        return f"no case is called {' or '.join(options.case)}; --list names them"
    if not cpu.readable():
        return "it reads CPU time from /proc/PID/schedstat, which this system does not have"
    if not options.jdbc_jar.is_file():
        return f"no {options.jdbc_jar} is there: make debian/libpostgresql-jdbc-java brings it"
    return None


def _measure(options: argparse.Namespace, cases: Sequence[SparkCase]) -> SparkReport:
    messages = options.messages or (QUICK_MESSAGES if options.quick else MESSAGES)
    rounds = options.rounds or (1 if options.quick else 3)
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder,
        server.running(options.database_url) as url,
        spark_session(options.jdbc_jar) as spark,
    ):
        databases = Databases(url)
        try:
            databases.install([Holdfast()])
            ground = Ground(databases, Holdfast(), spark, Path(folder))
            with shown_progress(sum(len(case.rivals) for case in cases) * (rounds + 1)) as announce:
                results = _run(ground, cases, messages, rounds, announce)
            machine = describe(databases.admin)
        finally:
            databases.close()
    return SparkReport(cases, results, judge(results), machine, messages, rounds)


def _run(
    ground: Ground, cases: Sequence[SparkCase], messages: int, rounds: int, announce: Announce
) -> Results:
    results = Results(cases, [HOLDFAST])
    meter = Meter(ground.databases.postmaster)
    for case in cases:
        for rival in case.rivals:
            announce(f"{case.title} · warm-up · {rival.name}")
            _turn(ground, meter, rival, min(WARM, messages))
        for number in range(rounds):
            for rival in _order(case.rivals, number):
                announce(f"{case.title} · round {number + 1} · {rival.name}")
                sample = _turn(ground, meter, rival, messages * case.times)
                results.add(case.name, rival.name, sample)
    return results


def _turn(ground: Ground, meter: Meter, rival: Rival, messages: int) -> Sample:
    with rival.setting(ground, max(1, round(messages * rival.share))) as action:
        return meter.measure(action)


def _order(rivals: Sequence[Rival], number: int) -> Sequence[Rival]:
    """Another one goes first in each round."""
    first = number % len(rivals)
    return [*rivals[first:], *rivals[:first]]


def _show(report: SparkReport, options: argparse.Namespace) -> None:
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
