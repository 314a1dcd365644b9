"""Deliveries to HTTP endpoints, beside a bare loop of httpx on the same machine.

    python -m bench.webhook [--quick] [--case NAME] [--seconds N] [--rounds N] [--json FILE] [--markdown]

Method. In each round `holdfast dispatch` works off queues that were filled before, and a loop of httpx posts
the same bodies, to the same receiver: a process that says 204 and counts. They take turns, another one first
in each round, with as many requests on their way at once: 10 to one endpoint, 100 to fifty. Each turn has a
fresh database and a fresh receiver, and a warm-up that does not count. The dispatcher signs, settles every
message and writes every attempt down, durably; the loop does nothing but post. So the loop is the limit, and
the ratio says what is left of it.

CPU is that of the dispatcher's, or the loop's, process with all threads, and of PostgreSQL with all its
processes. The receiver and all of them share the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from psycopg import Error
from rich.console import Console

from bench import cpu, server
from bench.contenders.holdfast import Holdfast
from bench.databases import Databases
from bench.link import LinkError
from bench.machine import describe
from bench.progress import Announce, shown_progress
from bench.results import Results
from bench.webhook.cases import CASES, DeliveryError, WebhookCase, bare, dispatch
from bench.webhook.report import WebhookReport
from holdfast.embedded import EmbeddedError

SECONDS, QUICK_SECONDS = 10.0, 2.0
WARM_S = 2.0
TURNS = {"Holdfast": dispatch, "bare httpx": bare}
REPORT_WIDTH = 130
INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    if options.list:
        print("\n".join(f"{case.name:22} {case.title}" for case in CASES))
        return 0
    if problem := _problem(options):
        sys.exit(f"bench.webhook: {problem}")
    try:
        report = _measure(options)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (EmbeddedError, Error, LinkError, DeliveryError) as error:
        sys.exit(f"bench.webhook: {error}")
    _show(report, options)
    return int(options.check and not all(each.met for each in report.expectations()))


def _options() -> argparse.ArgumentParser:
    first_line = (__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m bench.webhook", description=first_line)
    add = parser.add_argument
    add("--quick", action="store_true", help="2 seconds a turn and one round, unless said otherwise")
    add("--case", metavar="NAME", action="append", help="only cases named so; repeatable")
    add("--list", action="store_true", help="name the cases and stop")
    add("--seconds", type=float, metavar="N", help="length of a turn (10; with --quick 2)")
    add("--rounds", type=int, metavar="N", help="rounds of each case (3; with --quick 1)")
    add("--json", type=Path, metavar="FILE", help="write every figure there")
    add("--markdown", action="store_true", help="print the tables as Markdown")
    add("--check", action="store_true", help="exit with 1 if an expectation is not met")
    add("--database-url", metavar="URL", help="a server on this machine (superuser), not an embedded one")
    return parser


def _problem(options: argparse.Namespace) -> str | None:
    """Why nothing can be measured."""
    if unknown := sorted(set(options.case or ()) - {case.name for case in CASES}):
        return f"no case is called {' or '.join(unknown)}; --list names them"
    if not cpu.readable():
        return "it reads CPU time from /proc/PID/schedstat, which this system does not have"
    return None


def _measure(options: argparse.Namespace) -> WebhookReport:
    cases = [case for case in CASES if options.case is None or case.name in options.case]
    rounds = options.rounds or (1 if options.quick else 3)
    with server.running(options.database_url) as url:
        databases = Databases(url)
        try:
            databases.install([Holdfast()])
            with shown_progress(len(cases) * rounds * len(TURNS)) as announce:
                results = _run(databases, cases, rounds, options, announce)
            machine = describe(databases.admin)
        finally:
            databases.close()
    return WebhookReport(cases, results, machine, rounds)


def _run(
    databases: Databases,
    cases: Sequence[WebhookCase],
    rounds: int,
    options: argparse.Namespace,
    announce: Announce,
) -> Results:
    seconds = float(options.seconds or (QUICK_SECONDS if options.quick else SECONDS))
    results = Results(cases, list(TURNS))
    for case in cases:
        for round_ in range(rounds):
            for name in list(TURNS)[:: 1 if round_ % 2 == 0 else -1]:
                announce(f"{case.title} · round {round_ + 1} · {name}")
                with databases.fresh(Holdfast()) as arena:
                    results.add(case.name, name, TURNS[name](case, arena, seconds, WARM_S))
    return results


def _show(report: WebhookReport, options: argparse.Namespace) -> None:
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
