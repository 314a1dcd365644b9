"""Archives everything to a lake, in a process of its own, to be killed. Arguments: the lake, and the fate.

A fate is a point, how many times it is passed before, and who is killed there: "published 2 driver".

    opened     a batch is noted, and nothing written
    reading    a task has read some of a batch
    written    files are written and compared, where nobody looks
    publishing a file is about to get its place
    published  a file has its place, and the messages are still in the database
    removing   messages are removed, in a transaction that is not committed
    removed    they are
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import psutil
import pyarrow as pa

from holdfast.database import URL_VARIABLE
from holdfast.spark._database import connect
from holdfast.spark._fetch import Fetcher
from holdfast.spark.pipelines import _lake_files
from holdfast.spark.pipelines._batches import Batch, Content, Ledger
from holdfast.spark.pipelines._lake_files import LakeFiles
from holdfast.spark.pipelines.archive import Archive
from holdfast.spark.session import make_session
from tests.spark.conftest import SMALL
from tests.spark.runs import a_run

ROWS = 10  # messages of a batch


def kill(victim: str, driver: int) -> None:
    """The end, with no time for anything."""
    below = psutil.Process(driver).children(recursive=True)
    found = [each.pid for each in below if "java" in each.name()] if victim == "jvm" else [driver]
    for process in found:
        os.kill(process, signal.SIGKILL)
    if os.getpid() != driver:
        os._exit(1)


def main(lake: str, point: str, passed: str, victim: str) -> None:
    """Archive, and meet the fate."""
    url = os.environ[URL_VARIABLE]
    passing = count()
    driver = os.getpid()

    def meet() -> None:
        if next(passing) == int(passed):
            kill(victim, driver)

    prepare(point, meet, partial(kill, victim, driver), int(passed))
    session = make_session("archiver", master="local[2]", settings=SMALL)
    Archive(lake=lake, rows=ROWS).run(a_run(session, url))


def prepare(point: str, meet: Callable[[], None], end: Callable[[], None], passed: int) -> None:
    """Put the fate where it belongs."""
    real_pages, real_close = _lake_files.pages, Ledger.close

    def read(fetcher: Fetcher, batch: int) -> Iterator[pa.RecordBatch]:
        # In a process of Spark's, one of several: batches are counted by their numbers.
        for page in real_pages(fetcher, batch):
            yield page.slice(0, ROWS // 2)
            if batch == passed + 1:
                end()
            yield page.slice(ROWS // 2)

    def removing(ledger: Ledger, batch: Batch, content: Content) -> int:
        with connect(ledger.run.url) as connection, connection.transaction():
            connection.execute(
                "select holdfast.close_batch(%s, %s::bigint[], %s::bigint[])",
                [batch.id, content.ids, content.checksums],
            )
            meet()
        return len(content)

    match point:
        case "opened":
            Ledger.open = behind(Ledger.open, meet)  # type: ignore[method-assign]
        case "reading":
            _lake_files.pages = read
        case "written":
            LakeFiles.write = behind(LakeFiles.write, meet)  # type: ignore[method-assign]
        case "publishing":
            LakeFiles.publish = before(LakeFiles.publish, meet)  # type: ignore[method-assign]
        case "published":
            LakeFiles.publish = behind(LakeFiles.publish, meet)  # type: ignore[method-assign]
        case "removing":
            Ledger.close = removing  # type: ignore[assignment, method-assign]
        case "removed":
            Ledger.close = behind(real_close, meet)  # type: ignore[method-assign]
        case _:
            raise ValueError(point)


def behind(step: Callable[..., Any], meet: Callable[[], None]) -> Callable[..., Any]:
    """A step with something behind it."""

    def both(*given: Any, **named: Any) -> Any:
        answer = step(*given, **named)
        meet()
        return answer

    return both


def before(step: Callable[..., Any], meet: Callable[[], None]) -> Callable[..., Any]:
    """A step with something before it."""

    def both(*given: Any, **named: Any) -> Any:
        meet()
        return step(*given, **named)

    return both


if __name__ == "__main__":
    main(*sys.argv[1:])
