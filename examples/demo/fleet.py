"""Four consumers, each a process, some slower than others, until nothing is left that they could do.

    python -m examples.demo.fleet QUEUE
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from holdfast import Holdfast, HoldfastError
from holdfast.database import URL_VARIABLE, database

PACES = {"anna": 30, "ben": 40, "clara": 40, "dan": 120}  # microseconds that an order takes them
POLL_SECONDS = 0.5
STOP_SECONDS = 10.0

Crew = Sequence[subprocess.Popen[bytes]]


class FleetError(Exception):
    """A consumer has ended by itself."""


def work_off(url: str, queue: str) -> None:
    """Let the fleet work until the queue is empty, and show how far it is."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Holdfast(url) as holdfast, fleet(url, queue) as crew, Progress(*columns, TimeElapsedColumn()) as bar:
        first = holdfast.queue_stats(queue)
        task = bar.add_task("orders", total=first.depth)
        while not bar.finished:
            refuse_ended(crew)
            # Outside of a demo this is somebody's task too: samples, expiry, partitions of the archive.
            holdfast.maintain()
            stats = holdfast.queue_stats(queue)
            told = f"orders, {stats.dead - first.dead:,} dead"
            bar.update(task, completed=first.depth - stats.depth, description=told)
            time.sleep(POLL_SECONDS)


@contextmanager
def fleet(url: str, queue: str) -> Iterator[Crew]:
    """A process for each consumer; they end with this context."""
    environment = {**os.environ, URL_VARIABLE: url}
    program = [sys.executable, "-m", "examples.demo.consumer", queue]
    crew = [
        subprocess.Popen([*program, name, str(pace)], env=environment) for name, pace in PACES.items()
    ]
    try:
        yield crew
    finally:
        for process in crew:
            process.terminate()
        for process in crew:
            process.wait(STOP_SECONDS)


def refuse_ended(crew: Crew) -> None:
    """A consumer ends when it is told to, and not before."""
    if any(process.poll() is not None for process in crew):
        raise FleetError("a consumer has ended; what it said stands above")


if __name__ == "__main__":
    try:
        with database(create=False) as own:
            work_off(own, sys.argv[1])
    except KeyboardInterrupt:
        sys.exit(130)
    except (FleetError, HoldfastError) as error:
        sys.exit(str(error))
