"""Samples: what those of each minute add to the figures, where messages cannot tell.

A sample is a stretch of time, about a minute; all of it counts at its middle. How long messages waited and
took they estimate by class; it counts as the longest of its class, and beyond an hour as an hour.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .buckets import bucket_of
from .facts import CELL, OUTCOMES, TIMED, Range, tells
from .percentiles import bin_of

COUNTS = ("sent", *OUTCOMES)
SAMPLE = (
    "queue STRING, began TIMESTAMP, ended TIMESTAMP, sent BIGINT, done BIGINT, failed BIGINT, dead BIGINT,"
    " expired BIGINT, discarded BIGINT, nacked BIGINT, lapsed BIGINT, waiting STRING, processing STRING"
)
# The classes of holdfast.samples, and how long the longest of each takes, in seconds.
CLASSES: Mapping[str, float] = MappingProxyType(
    {
        "under_10ms": 0.01,
        "under_100ms": 0.1,
        "under_1s": 1.0,
        "under_10s": 10.0,
        "under_1min": 60.0,
        "under_10min": 600.0,
        "under_1h": 3600.0,
        "longer": 3600.0,
    }
)
KEPT = ("done", "failed", "expired", "discarded")  # what an archive can keep; it knows nothing of the dead


def sampled_measures(keep: Collection[str], *, complete: bool) -> list[str]:
    """The figures that samples say better than messages do.

    keep: the outcomes that the queue keeps; complete: they are kept for as long as is looked back.
    """
    unknown = [outcome for outcome in KEPT if not complete or outcome not in keep]
    # A dead letter that was sent back or discarded is not among the dead ones any more.
    found = ["sent", "dead", *unknown]
    if unknown:
        found.append("retries")
    return found + (list(TIMED) if "done" not in keep else [])


def facts_of_samples(samples: DataFrame, coverage: DataFrame, span: Range) -> DataFrame:
    """What samples add to the figures for which they are asked."""
    middle = (F.unix_micros("began") + F.unix_micros("ended")) / 2
    known = samples.join(F.broadcast(coverage), "queue").withColumn(
        "at", F.timestamp_micros(middle.cast("long"))
    )
    apart = known.select("queue", "at", "ended", "stretches", F.inline(F.array(*_facts())))
    # One that was written since the coverage was looked up is left to the messages.
    end = F.col("ended")
    wanted = F.exists("stretches", lambda each: tells(each) & (end > each["since"]) & (end <= each["until"]))
    within = (F.col("at") >= F.lit(span.since)) & (F.col("at") < F.lit(span.until))
    placed = apart.withColumn("start", bucket_of(F.col("at"), span.bucket))
    return (
        placed.where((F.col("n") > 0) & wanted & within)
        .withColumns({"label": F.lit(None).cast("string"), "sampled": F.lit(True)})
        .select(*CELL)
    )


def _facts() -> Sequence[Column]:
    # A nack or a lapse is followed by another delivery, unless it was the last.
    retries = F.col("nacked") + F.col("lapsed") - F.col("dead") - F.col("failed")
    return [
        *(_fact(name, F.col(name)) for name in COUNTS),
        _fact("retries", retries),
        *(
            _fact(measure, F.from_json(measure, "map<string,bigint>")[name], bin_of(seconds))
            for measure in TIMED
            for name, seconds in CLASSES.items()
        ),
    ]


def _fact(measure: str, n: Column, bin: int | None = None) -> Column:
    return F.struct(
        F.lit(measure).alias("measure"), F.lit(bin).cast("int").alias("bin"), n.cast("long").alias("n")
    )
