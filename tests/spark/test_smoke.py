"""The data source in Spark itself, as far as `make test` goes: written, read and streamed, in one session.

All that takes more of Spark than this is in test_spark.py and test_streaming.py, for `make verify`.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from holdfast.database import URL_VARIABLE
from holdfast.spark.options import URL_SETTING, OptionError
from holdfast.spark.session import make_session
from tests.engine.engine import Engine
from tests.spark.frames import consumed, drained, payload_counts, read, write


def test_what_is_written_is_read_and_the_url_is_in_no_plan(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    orders = spark.range(0, 1000, 1, 2).select(
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
    columns = found.select("payload.*", "headers", f.spark_partition_id().alias("part"))
    (total,) = columns.agg(
        f.count("*"), f.sum("order"), f.min("headers"), f.max("name"), f.count_distinct("part")
    ).collect()
    assert tuple(total) == (990, sum(range(10, 1000)), '{"h": "v"}', "ü", 3)
    plan = found._jdf.queryExecution().toString()
    assert "holdfast" in plan
    assert database_url not in plan
    first = [row["payload"]["order"] for row in queue.claim(10)]
    assert first == list(range(1, 20, 2))


def test_a_frame_with_other_columns_is_refused_before_a_task_runs(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    with pytest.raises(PySparkException, match="column id: got it; expected some of payload, body"):
        write(spark.range(1), database_url)


def test_a_database_that_spark_was_not_started_with_is_refused_late(
    spark: SparkSession, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)

    with pytest.raises(OptionError, match=r"option spark.holdfast.url: got it for a Spark that runs already"):
        make_session(settings={URL_SETTING: database_url})
    with pytest.raises(PySparkException, match=r"option url: got nothing; .*a Spark that runs already"):
        spark.read.format("holdfast").load("q").count()

    assert URL_VARIABLE not in os.environ


def test_a_drain_takes_every_message_once(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.create("out")
    queue.send_numbers(40)
    frame = consumed(spark, database_url, max_messages="20").select("payload")

    drained(frame, tmp_path, "holdfast", url=database_url, queue="out")

    assert payload_counts(queue, "out") == Counter(range(40))
    assert queue.stats()["depth"] == 0
