"""The data source in Spark itself: found by its name, read, written, and killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from holdfast.database import URL_VARIABLE
from holdfast.spark.java import _wheel
from tests.engine.engine import Engine, payloads
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
MANY = 200_000
STARTING = 120.0  # seconds for a process with Spark to get going


def write(frame: DataFrame, url: str, **options: str) -> None:
    frame.write.format("holdfast").options(url=url, **options).mode("append").save("q")


def read(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("holdfast").options(url=url, **options).load("q")


def test_what_is_written_is_read_and_the_url_is_in_no_plan(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    orders = spark.range(0, 1000, 1, 4).select(
        f.struct(f.col("id").alias("order"), f.lit("ü").alias("name")).alias("payload"),
        (f.col("id") % 2).alias("priority"),
        f.map_from_arrays(f.array(f.lit("h")), f.array(f.lit("v"))).alias("headers"),
    )

    write(orders, database_url, write_id="w")
    write(orders, database_url, write_id="w")

    found = read(
        spark,
        database_url,
        payload="struct",
        payload_schema="order BIGINT, name STRING",
        where="(payload ->> 'order')::int >= 10",
        partitions="3",
    )
    assert found.rdd.getNumPartitions() == 3
    total = found.agg(f.count("*"), f.sum("payload.order"), f.min("headers"), f.max("payload.name")).collect()
    assert tuple(total[0]) == (990, sum(range(10, 1000)), '{"h": "v"}', "ü")
    plan = found._jdf.queryExecution().toString()
    assert "holdfast" in plan
    assert database_url not in plan
    first = [row["payload"]["order"] for row in queue.claim(10)]
    assert first == list(range(1, 20, 2))


def test_a_bad_row_fails_the_job_and_nothing_is_sent(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr("if(id = 77, '{', '1') as payload")

    with pytest.raises(PySparkException, match="row 28: payload: invalid input syntax for type json"):
        write(rows, database_url)

    assert queue.stats()["depth"] == 0
    assert queue.look("select count(*) from holdfast.staged") == 0


def test_a_frame_with_other_columns_is_refused_before_a_task_runs(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    with pytest.raises(PySparkException, match="column id: got it; expected some of payload, body"):
        write(spark.range(1), database_url)


@pytest.mark.verify
def test_200_000_ordered_keys_go_in_one_write(spark: SparkSession, database_url: str, engine: Engine) -> None:
    engine.create("q", ordering="key")
    rows = spark.range(0, MANY, 1, 2).selectExpr(
        "cast(id as string) as payload", "'key ' || id as ordering_key"
    )

    write(rows, database_url)

    assert engine.look("select count(distinct ordering_key) from holdfast.message") == MANY
    assert read(spark, database_url, columns="id").count() == MANY


def start(url: str, write_id: str, rows: int, *, pause: float = 0) -> subprocess.Popen[bytes]:
    """A writer in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.writer", write_id, str(rows), str(pause)],
        cwd=ROOT,
        env={**os.environ, URL_VARIABLE: url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.verify
def test_a_driver_killed_in_mid_write_loses_nothing_and_sends_nothing_twice(
    database_url: str, queue: Engine
) -> None:
    rows = 1000
    staged = "select count(*) from holdfast.staged"

    killed = start(database_url, "w", rows, pause=600)
    try:
        eventually(lambda: queue.look(staged) >= rows / 2, what="rows are staged", timeout=STARTING)
    finally:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    assert queue.stats()["depth"] == 0
    again = [start(database_url, "w", rows).wait(STARTING) for _ in range(2)]

    assert again == [0, 0]
    assert Counter(payloads(queue.claim(10_000))) == Counter(range(rows))
    assert queue.look(staged) == 0


@pytest.mark.verify
def test_spark_runs_on_the_java_of_the_wheel(
    database_url: str, queue: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(_wheel()))

    assert start(database_url, "w", 10).wait(STARTING) == 0
    assert len(queue.claim(100)) == 10
