"""The pipeline stream from queue q to the table numbers, in a process to be killed. Argument: the checkpoint.

It drains q in batches of 500 and ends. HOLDFAST_TEST_FATE is the number of a batch, counted from 0: when the
table has it and Spark does not know yet, JVM and process are killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence

import psutil

from holdfast.database import URL_VARIABLE
from holdfast.spark.pipelines.stream import Stream
from holdfast.spark.session import make_session
from holdfast.spark.table_sink import Part, TableWriter
from tests.spark.conftest import SMALL
from tests.spark.runs import a_run

FATE = "HOLDFAST_TEST_FATE"


def make_fateful() -> None:
    """Let the writer meet its fate when rows are in the table and Spark does not know yet."""
    real = TableWriter._move

    def move(self: TableWriter, query: str, batch: int, parts: Sequence[Part]) -> None:
        real(self, query, batch, parts)
        if os.environ.get(FATE) == str(batch):
            for child in psutil.Process().children(recursive=True):
                child.kill()
            os.kill(os.getpid(), signal.SIGKILL)

    TableWriter._move = move  # type: ignore[method-assign]


def main(checkpoint: str) -> None:
    """Drain the queue."""
    make_fateful()
    session = make_session("table streamer", master="local[2]", settings=SMALL)
    stream = Stream(
        source="q",
        checkpoint=checkpoint,
        to_table="numbers",
        sql="select cast(payload as int) as n from messages",
        once=True,
        max_messages=500,
    )
    stream.run(a_run(session, os.environ[URL_VARIABLE]))


if __name__ == "__main__":
    main(sys.argv[1])
