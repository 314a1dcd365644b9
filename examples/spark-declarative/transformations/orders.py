"""Orders, taken out of the queue orders into a table; and large ones sent on to the queue alerts."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

SCHEMA = "customer STRING, price BIGINT"
LARGE = 1000

spark = SparkSession.active()
dp.create_sink("alerts", "holdfast", {"queue": "alerts"})


@dp.table
def orders() -> DataFrame:
    """Each message of the queue, once: the flow acks what its table has."""
    read = spark.readStream.format("holdfast").option("mode", "consume")
    messages = read.options(payload_schema=SCHEMA).load("orders")
    return messages.select("id", "enqueued_at", "payload.*")


@dp.append_flow(target="alerts")
def large_orders() -> DataFrame:
    """What is new in the table, as messages of another queue."""
    large = spark.readStream.table("orders").where(F.col("price") >= LARGE)
    return large.select(F.to_json(F.struct("id", "customer", "price")).alias("payload"))
