"""Dead letters for tests, and repairs that tests name on the command line."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.engine.engine import Engine


def bury(engine: Engine, *, queue: str = "q", error: str = "boom") -> int:
    """Let all that is ready fail for the last time; returns how many died."""
    dead = 0
    while rows := engine.claim(5000, queue=queue):
        engine.settle("nack", rows[0]["token"], queue=queue, delay="0 s", error=error)
        dead += len(rows)
    return dead


def tagged(letters: DataFrame) -> DataFrame:
    """Those with even payloads, tagged by how they died; 4 is beyond help."""
    even = letters.where("cast(payload as int) % 2 = 0")
    reason = F.when(F.col("payload") == "4", F.lit("beyond help"))
    return even.withColumns({"tag": F.concat("last_error", F.lit("!")), "reason": reason})


def doubled(letters: DataFrame) -> DataFrame:
    """Each of them twice."""
    return letters.unionAll(letters).repartition(1)


def nameless(letters: DataFrame) -> DataFrame:
    """None of them has an id."""
    return letters.withColumn("id", F.lit(None).cast("long"))
