"""Sending from Spark: Parquet files to a queue, or to a table with the columns and indexes of its messages.

JDBC and COPY fill a copy of the message table, and nothing else: they number the rows themselves, check
nothing, and JDBC's rows are there partition by partition. The data source stages, checks, numbers, and sends
all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from bench import payload
from bench.arena import Arena
from bench.contenders.contender import QUEUE
from bench.spark.case import HOLDFAST, Rival, SparkCase
from bench.spark.ground import PARTITIONS, Ground, jdbc_options
from bench.spark.meter import Action

TABLE = "public.message"
LIKE = f"create table {TABLE} (like holdfast.message including all)"
BATCH = 10_000  # rows of one of JDBC's statements; 1,000 by default
DIFFERENT = 1_000  # documents
BLOCK = 1 << 18  # bytes of COPY that are sent at a time
SENT_AT = "2030-01-01 00:00:00+00"


def cases() -> list[SparkCase]:
    rivals = [Rival(HOLDFAST, _by_data_source), Rival("JDBC", _by_jdbc), Rival("COPY", _by_copy, spark=False)]
    return [SparkCase("send", "send Parquet files", rivals)]


@contextmanager
def _by_data_source(ground: Ground, messages: int) -> Iterator[Action]:
    frame = _orders(ground, messages).select("payload")
    with ground.empty() as arena:
        writer = frame.write.format("holdfast").option("url", arena.url).mode("append")

        def send() -> int:
            writer.save(QUEUE)
            return messages

        yield send
        _expect(arena, "holdfast.message", messages)


@contextmanager
def _by_jdbc(ground: Ground, messages: int) -> Iterator[Action]:
    frame = _orders(ground, messages)
    with ground.empty() as arena:
        arena.admin.run(LIKE)
        options = jdbc_options(arena.url) | {"dbtable": TABLE, "batchsize": str(BATCH)}
        writer = frame.write.format("jdbc").options(**options).mode("append")

        def append() -> int:
            writer.save()
            return messages

        yield append
        _expect(arena, TABLE, messages)


@contextmanager
def _by_copy(ground: Ground, messages: int) -> Iterator[Action]:
    lines = _lines(ground, messages)
    statement = f"copy {TABLE} (id, queue_id, enqueued_at, payload) from stdin"
    with ground.empty() as arena, psycopg.connect(arena.url, autocommit=True) as connection:
        arena.admin.run(LIKE)

        def fill() -> int:
            with lines.open("rb") as source, connection.cursor() as cursor, cursor.copy(statement) as copy:
                while block := source.read(BLOCK):
                    copy.write(block)
            return messages

        yield fill
        _expect(arena, TABLE, messages)


def _orders(ground: Ground, messages: int) -> DataFrame:
    """The rows, from files that are written once: everybody reads the same."""
    path = ground.folder / f"orders-{messages}"
    if not path.exists():
        documents = F.array(*(F.lit(payload.document(n).decode()) for n in range(DIFFERENT)))
        ground.spark.range(0, messages, 1, PARTITIONS).select(
            "id",
            F.lit(1).alias("queue_id"),
            F.lit(SENT_AT).cast("timestamp").alias("enqueued_at"),
            documents[(F.col("id") % DIFFERENT).cast("int")].alias("payload"),
        ).write.parquet(str(path))
    return ground.spark.read.parquet(str(path))


def _lines(ground: Ground, messages: int) -> Path:
    """The same rows as COPY takes them."""
    path = ground.folder / f"orders-{messages}.copy"
    if not path.exists():
        documents = [payload.document(n).replace(b"\\", b"\\\\") for n in range(DIFFERENT)]
        with path.open("wb") as file:
            for n in range(messages):
                file.write(b"%d\t1\t%s\t%s\n" % (n, SENT_AT.encode(), documents[n % DIFFERENT]))
    return path


def _expect(arena: Arena, table: str, messages: int) -> None:
    found = int(arena.admin.value(f"select count(*) from {table}"))
    if found != messages:
        raise AssertionError(f"{found:,} of {messages:,} messages are in {table}")
