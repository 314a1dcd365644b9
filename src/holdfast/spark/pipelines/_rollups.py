"""Rollups: what insights found out, kept as Parquet and in the database. The same range again replaces it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructField, StructType

from holdfast.spark.transforms.insights.facts import COUNTED, Range
from holdfast.spark.transforms.insights.insight import SPREADS

from ._figures import utc
from ._pipeline import Run

FOLDERS = ("bucket", "queue", "day")
ROWS_PER_PARTITION = 10_000  # so many the driver holds at a time
ROWS_PER_CALL = 500
DETAILS = ("errors", "keys", "consumers", "objectives")
MISSING_PATH = "PATH_NOT_FOUND"


def saved(frame: DataFrame, folder: str, label: str, span: Range, queues: Sequence[str]) -> None:
    """Write rollups as Parquet, in folders by size of bucket, queue and day; a day is replaced whole."""
    placed = frame.withColumns({"bucket": F.lit(label), "day": F.to_date("start")})
    kept = _beyond(frame.sparkSession, folder, placed.schema, label, span, queues)
    written = placed if kept is None else placed.unionByName(kept)
    (
        written.repartition("queue", "day")
        .sortWithinPartitions("queue", "start")
        .write.partitionBy(*FOLDERS)
        .option("partitionOverwriteMode", "dynamic")
        .parquet(folder, mode="overwrite", compression="zstd")
    )


def _beyond(
    spark: SparkSession, folder: str, schema: StructType, label: str, span: Range, queues: Sequence[str]
) -> DataFrame | None:
    """What is there of the first and the last day outside of the range: it has to be written again."""
    stored = StructType(
        [
            *(field for field in schema.fields if field.name not in FOLDERS),
            StructField("bucket", StringType()),
            StructField("queue", StringType()),
            StructField("day", DateType()),
        ]
    )
    try:
        there = spark.read.schema(stored).parquet(folder)
    except AnalysisException as error:
        if error.getCondition() == MISSING_PATH:
            return None
        raise
    days = {span.since.date(), (span.until - timedelta(microseconds=1)).date()}
    outside = (F.col("start") < F.lit(span.since)) | (F.col("start") >= F.lit(span.until))
    kept = there.where((F.col("bucket") == label) & F.col("day").isin(*days) & F.col("queue").isin(*queues))
    # Held fast before the files are replaced.
    return kept.where(outside).localCheckpoint()


def in_turn(frame: DataFrame) -> Iterator[Row]:
    """Rollups by queue and time, some thousands at a time."""
    parts = max(1, -(-frame.count() // ROWS_PER_PARTITION))
    ordered = frame.repartitionByRange(parts, "queue", "start").sortWithinPartitions("queue", "start")
    rows: Iterator[Row] = ordered.toLocalIterator()
    return rows


def put(run: Run, rows: Iterable[Row], span: Range, queues: Sequence[str]) -> Iterator[Row]:
    """Write rollups to the database, in place of what is there; hands them on."""
    left = set(queues)
    with run.database() as connection:

        def call(queue: str, since: datetime, until: datetime, found: Sequence[Row]) -> None:
            run.check()
            connection.execute(
                "select holdfast.put_rollups(%s, %s, %s, %s, %s::jsonb)",
                [queue, span.bucket, since, until, json.dumps([told(row) for row in found])],
            )

        for queue, group in groupby(rows, key=lambda row: str(row.queue)):
            for since, until, found in stretches(group, span):
                if queue in left:
                    call(queue, since, until, found)
                yield from found
            left.discard(queue)
        for queue in sorted(left):
            call(queue, span.since, span.until, ())


def stretches(rows: Iterable[Row], span: Range) -> Iterator[tuple[datetime, datetime, list[Row]]]:
    """The range, cut into stretches with so many rollups as one call takes."""
    waiting = iter(rows)
    since, found = span.since, list(islice(waiting, ROWS_PER_CALL))
    while behind := list(islice(waiting, ROWS_PER_CALL)):
        until = utc(behind[0].start)
        yield since, until, found
        since, found = until, behind
    yield since, span.until, found


def told(row: Row) -> dict[str, Any]:
    """A rollup as JSON."""
    figures = {name: row[name] for name in (*COUNTED, *SPREADS, "estimated")}
    details = {name: [plain(each) for each in row[name]] for name in DETAILS if row[name]}
    return {"start": utc(row.start).isoformat(), **figures, "details": details}


def plain(row: Row) -> dict[str, Any]:
    """A detail as JSON; examples of errors are for the report."""
    values = row.asDict()
    values.pop("example", None)
    return {
        name: utc(value).isoformat() if isinstance(value, datetime) else value
        for name, value in values.items()
    }
