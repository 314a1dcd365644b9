"""Facts: what a message adds to the figures, one row each, and how they are counted.

queue, start     where it counts: the bucket in which it happened
measure          sent, an outcome, retries; waiting, processing; failures, key
label            processing, failures: the consumer; key: the ordering key
bin              waiting, processing: how long it took
n                how much it adds
sampled          it comes from the minute samples, and is an estimate
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .buckets import bucket_of
from .percentiles import binned

FACT = "queue STRING, start TIMESTAMP, measure STRING, label STRING, bin INT, n BIGINT, sampled BOOLEAN"
CELL = ("queue", "start", "measure", "label", "bin", "n", "sampled")
OUTCOMES = ("done", "failed", "dead", "expired", "discarded")
COUNTED = ("sent", *OUTCOMES, "retries")
TIMED = ("waiting", "processing")
# Of each queue: which figures its samples say better than its messages, and in which time. A stretch begins
# and ends with a sample, so that nothing is in a sample and in messages beside it.
COVERAGE = (
    "queue STRING, stretches ARRAY<STRUCT<measures: ARRAY<STRING>, since: TIMESTAMP, until: TIMESTAMP>>"
)


@dataclass(frozen=True, slots=True)
class Range:
    """The time that is looked at, in whole buckets."""

    since: datetime
    until: datetime
    bucket: timedelta


def facts_of_ended(ended: DataFrame, coverage: DataFrame, span: Range) -> DataFrame:
    """What ended messages add to the figures, but for what the samples say of them."""
    done = F.col("outcome") == "done"
    taken = done & F.col("claimed_at").isNotNull()
    facts = [
        _fact("sent", "enqueued_at"),
        _fact(F.col("outcome"), "ended_at"),
        _fact("retries", "ended_at", n=F.col("deliveries") - 1),
        _fact("waiting", "ended_at", bin=binned(F.col("enqueued_at"), F.col("claimed_at")), when=taken),
        _fact(
            "processing",
            "ended_at",
            F.col("consumer"),
            binned(F.col("claimed_at"), F.col("ended_at")),
            when=taken,
        ),
        _fact("failures", "ended_at", F.col("consumer"), n=F.col("failures"), when=taken),
        _fact("key", "ended_at", F.col("ordering_key"), when=F.col("ordering_key").isNotNull()),
    ]
    return _placed(ended, facts, coverage, span)


def facts_of_live(live: DataFrame, coverage: DataFrame, span: Range) -> DataFrame:
    """Messages that have not ended were sent all the same. The frame has queue and enqueued_at."""
    return _placed(live, [_fact("sent", "enqueued_at")], coverage, span)


def counted(facts: Sequence[DataFrame]) -> DataFrame:
    """All facts, added up: the one aggregation over everything there is."""
    first, *others = facts
    for each in others:
        first = first.unionByName(each)
    by = ("queue", "start", "measure", "label", "bin")
    return first.groupBy(*by).agg(F.sum("n").alias("n"), F.max("sampled").alias("sampled")).select(*CELL)


def tells(stretch: Column) -> Column:
    """Whether the samples of a stretch are asked for the measure."""
    return F.array_contains(stretch["measures"], F.col("measure"))


def _fact(
    measure: str | Column,
    at: str,
    label: Column | None = None,
    bin: Column | None = None,
    n: Column | None = None,
    when: Column | None = None,
) -> Column:
    count = F.lit(1) if n is None else n
    return F.struct(
        (F.lit(measure) if isinstance(measure, str) else measure).alias("measure"),
        F.col(at).alias("at"),
        (F.lit(None) if label is None else label).cast("string").alias("label"),
        (F.lit(None) if bin is None else bin).cast("int").alias("bin"),
        (count if when is None else F.when(when, count)).cast("long").alias("n"),
    )


def _placed(frame: DataFrame, facts: Sequence[Column], coverage: DataFrame, span: Range) -> DataFrame:
    """Each fact in its bucket, if it is in the range and the samples do not know better."""
    known = frame.join(F.broadcast(coverage), "queue", "left")
    apart = known.select("queue", "stretches", F.inline(F.array(*facts)))
    within = (F.col("at") >= F.lit(span.since)) & (F.col("at") < F.lit(span.until))
    at = F.col("at")
    covered = F.exists("stretches", lambda each: tells(each) & (at >= each["since"]) & (at < each["until"]))
    return apart.where((F.col("n") > 0) & within & ~F.coalesce(covered, F.lit(False))).select(
        "queue",
        bucket_of(F.col("at"), span.bucket).alias("start"),
        "measure",
        "label",
        "bin",
        "n",
        F.lit(False).alias("sampled"),
    )
