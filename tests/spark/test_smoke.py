"""The data source in Spark itself, as far as `make test` goes: one test, so that there is one session.

All that takes more of Spark than this is in test_spark.py and test_streaming.py, for `make verify`.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.engine.engine import Engine
from tests.spark.frames import consumed, drained, read, write


def test_what_is_written_is_read_and_drained_once_and_the_url_is_in_no_plan(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.create("out")
    orders = spark.range(0, 1000, 1, 2).select(
        f.struct(f.col("id").alias("order"), f.lit("ü").alias("name")).alias("payload"),
        (f.col("id") % 2).alias("priority"),
        f.map_from_arrays(f.array(f.lit("h")), f.array(f.lit("v"))).alias("headers"),
    )
    condition = "(payload ->> 'order')::int >= 10"
    typed = {"payload_schema": "order BIGINT, name STRING"}

    write(orders, database_url, write_id="w")
    write(orders, database_url, write_id="w")
    found = read(spark, database_url, where=condition, partitions="3", **typed)
    columns = found.select("payload.*", "headers", "priority", f.spark_partition_id().alias("part"))
    sums = [f.sum("order"), f.sum("priority"), f.max("name"), f.min("headers")]
    (total,) = columns.agg(f.count("*"), f.count_distinct("part"), *sums).collect()
    plan = found._jdf.queryExecution().toString()
    stream = consumed(spark, database_url, max_messages="600").select("payload")
    drained(stream, tmp_path, "holdfast", url=database_url, queue="out")

    assert tuple(total) == (990, 3, sum(range(10, 1000)), 495, "ü", '{"h": "v"}')
    assert "holdfast" in plan
    assert database_url not in plan
    assert queue.stats()["depth"] == 0
    assert queue.look("select array[count(*), count(distinct payload)] from holdfast.message") == [1000, 1000]
