"""Writes numbers to a queue with Spark: a process of its own, to be killed. Arguments: write id, rows, pause.

The last partition waits so many seconds before its last row.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

import pyarrow as pa

from holdfast.database import URL_VARIABLE
from holdfast.spark.options import URL_SETTING
from holdfast.spark.session import make_session
from tests.spark.conftest import SMALL

PARTS = 4


def main(write_id: str, rows: int, pause: float) -> None:
    """Write, whole or not at all."""

    def slowed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if str(rows - 1) in batch["payload"].to_pylist():
                time.sleep(pause)
            yield batch

    database = {URL_SETTING: os.environ.pop(URL_VARIABLE)}
    session = make_session("writer", master="local[2]", settings=SMALL | database)
    numbers = session.range(0, rows, 1, PARTS).selectExpr("cast(id as string) as payload")
    slow = numbers.mapInArrow(slowed, numbers.schema)
    slow.write.format("holdfast").option("write_id", write_id).mode("append").save("q")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
