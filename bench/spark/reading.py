"""Reading a queue into Spark: as a whole, and two of its columns. Everybody throws the rows away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import psycopg
from pyspark.sql import DataFrame

from bench.contenders.contender import QUEUE
from bench.spark.case import HOLDFAST, Rival, Setting, SparkCase
from bench.spark.ground import PARTITIONS, Ground, jdbc_options
from bench.spark.meter import Action

TABLE = "holdfast.message"
FETCH = 10_000  # rows that JDBC asks for at a time; by default it takes all of a partition into memory
FEW = ("id", "payload")


def cases() -> list[SparkCase]:
    return [
        SparkCase("read", "read whole messages", _rivals(())),
        SparkCase("read-columns", "read id and payload", _rivals(FEW)),
    ]


def _rivals(columns: Sequence[str]) -> list[Rival]:
    return [
        Rival(HOLDFAST, _by_data_source(columns)),
        Rival("JDBC", _by_jdbc(columns)),
        Rival("COPY", _by_copy(columns), spark=False),
    ]


def _by_data_source(columns: Sequence[str]) -> Setting:
    @contextmanager
    def setting(ground: Ground, messages: int) -> Iterator[Action]:
        reader = ground.spark.read.format("holdfast").option("partitions", PARTITIONS)
        if columns:
            reader = reader.option("columns", ",".join(columns))
        frame = reader.option("url", ground.lasting(messages).url).load(QUEUE)
        yield lambda: _drained(frame, messages)

    return setting


def _by_jdbc(columns: Sequence[str]) -> Setting:
    @contextmanager
    def setting(ground: Ground, messages: int) -> Iterator[Action]:
        arena = ground.lasting(messages)
        lo, hi = (arena.admin.value(f"select {edge}(id) from {TABLE}") for edge in ("min", "max"))
        frame = (
            ground.spark.read.format("jdbc")
            .options(**jdbc_options(arena.url), dbtable=TABLE, fetchsize=FETCH)
            .options(partitionColumn="id", lowerBound=lo, upperBound=hi, numPartitions=PARTITIONS)
            .load()
        )
        yield lambda: _drained(frame.select(*columns) if columns else frame, messages)

    return setting


def _by_copy(columns: Sequence[str]) -> Setting:
    @contextmanager
    def setting(ground: Ground, messages: int) -> Iterator[Action]:
        wanted = ", ".join(f"{name}::text" if name == "payload" else name for name in columns)
        source = f"(select {wanted} from {TABLE})" if columns else TABLE
        with psycopg.connect(ground.lasting(messages).url) as connection:
            yield lambda: _copied(connection, f"copy {source} to stdout (format binary)", messages)

    return setting


def _drained(frame: DataFrame, messages: int) -> int:
    frame.write.format("noop").mode("overwrite").save()
    return messages


def _copied(connection: psycopg.Connection, statement: str, messages: int) -> int:
    with connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
        for _ in copy:
            pass
    return messages
