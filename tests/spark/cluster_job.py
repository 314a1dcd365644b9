"""Jobs for a cluster, as spark-submit runs them: the driver, alone in its process. Arguments: the job, more.

They know the database from the driver's environment only, and import nothing of the tests. What they found
out goes to standard output, as one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

ROWS, PARTS = 2_000, 4
HALT = 600.0  # seconds: longer than anybody waits
WHERE = "cwd string, url string"


def numbers(spark: SparkSession) -> DataFrame:
    """What is sent: numbers, in some partitions; with blanks, or Spark would hand a part over at its end."""
    return spark.range(0, ROWS, 1, PARTS).selectExpr("rpad(cast(id as string), 4000, ' ') as payload")


def send(frame: DataFrame, **options: str) -> None:
    """Write it to the queue q."""
    frame.write.format("holdfast").options(**options).mode("append").save("q")


def move(spark: SparkSession, checkpoint: str) -> dict[str, Any]:
    """Write, read, and move all from one queue to another as a stream; and look around in the tasks."""
    spark.sparkContext.setJobDescription("look")
    around = spark.range(0, 16, 1, 16).mapInArrow(_looked, WHERE).distinct().collect()
    spark.sparkContext.setJobDescription("write")
    send(numbers(spark))
    spark.sparkContext.setJobDescription("read")
    read = spark.read.format("holdfast").option("partitions", PARTS).load("q")
    total = read.selectExpr("sum(cast(payload as int))").collect()[0][0]
    options = {"queue": "q", "mode": "consume", "max_messages": "600", "partitions": str(PARTS)}
    query = (
        spark.readStream.format("holdfast")
        .options(**options)
        .load()
        .select("payload")
        .writeStream.format("holdfast")
        .option("queue", "out")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return {"tasks": [tuple(row) for row in around], "total": total, "cwd": os.getcwd()}


def _looked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        url = os.environ.get("HOLDFAST_DATABASE_URL")
        yield pa.RecordBatch.from_pydict({"cwd": [os.getcwd()], "url": pa.array([url], pa.string())})


def write_slowly(spark: SparkSession) -> dict[str, Any]:
    """Write; the first attempt of the last part stages some rows, and halts before its last ones."""
    send(numbers(spark).mapInArrow(_halting(_sleep), "payload string"))
    return {}


def write_failing(spark: SparkSession) -> dict[str, Any]:
    """Write; the first attempt of the last part stages some rows, and fails."""
    send(numbers(spark).mapInArrow(_halting(_fail), "payload string"))
    return {}


def _halting(halt: Callable[[], None]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            last = batch["payload"][-1].as_py().strip() == str(ROWS - 1)
            if last and context.attemptNumber() == 0:
                halt()
            yield batch

    return rows


def _sleep() -> None:
    time.sleep(HALT)


def _fail() -> None:
    raise RuntimeError("as it was told")


JOBS: dict[str, Callable[..., dict[str, Any]]] = {
    "move": move,
    "write_slowly": write_slowly,
    "write_failing": write_failing,
}

if __name__ == "__main__":
    found = JOBS[sys.argv[1]](SparkSession.builder.getOrCreate(), *sys.argv[2:])
    sys.stdout.write(json.dumps(found) + "\n")
