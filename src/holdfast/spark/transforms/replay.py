"""Replaying: ended messages, of an archive and of a lake, as new ones that know where they come from.

They go in the order of their ends. Their place in that order is the same wherever they are read from, since a
message may move from the archive to the lake between two runs: SPOT, which are numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from .documents import fields_of, opened

# What is read of the archive, as the data source names it.
READ = (
    "id",
    "queue",
    "state",
    "payload",
    "body",
    "content_type",
    "headers",
    "priority",
    "key",
    "ordering_key",
    "correlation_id",
    "tag",
    "deliveries",
    "failures",
    "max_deliveries",
    "enqueued_at",
    "expires_at",
    "last_error",
    "origin",
    "ended_at",
    "consumer",
    "claimed_at",
)
ENDED = (*(name for name in READ if name != "state"), "outcome", "root_id")
DOCUMENTS = ("payload", "headers", "origin")
KEPT = (
    "payload",
    "body",
    "content_type",
    "headers",
    "priority",
    "correlation_id",
    "tag",
    "max_deliveries",
    "ordering_key",
)
SPOT = ("_ended", "_enqueued", "_id")  # microseconds since 1970, and an id
TOLD = ("queue", "id", "root_id", "outcome", "deliveries", "priority", "key", "ordering_key")
MOMENTS = ("ended_at", "enqueued_at")
SENT = "sent_at"  # when a message was sent first: in an origin, unless it is moved for the first time
MOMENT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx"


class Spot(NamedTuple):
    """A place in the order in which messages are replayed."""

    ended: int
    enqueued: int
    id: int


def archived(entries: DataFrame, max_deliveries: int | None) -> DataFrame:
    """Messages of a queue's archive as ENDED. The max_deliveries that they have from it is not theirs."""
    root = F.get_json_object("origin", "$.root_id").cast("bigint")
    own = F.col("max_deliveries")
    if max_deliveries is not None:
        own = F.nullif(own, F.lit(max_deliveries))
    return entries.withColumns(
        {"outcome": F.col("state"), "root_id": F.coalesce(root, "id"), "max_deliveries": own}
    ).select(*ENDED)


def stored(lake: DataFrame) -> DataFrame:
    """Messages of a lake as ENDED."""
    return lake.select(*ENDED)


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all of them."""
    return reduce(DataFrame.unionByName, frames)


def once(ended: DataFrame) -> DataFrame:
    """Each message once, however many of its copies are there."""
    return ended.dropDuplicates(["id"])


def selected(ended: DataFrame, outcomes: Sequence[str], where: str | None) -> DataFrame:
    """Those that ended so, and for which a condition holds that sees documents as VARIANT."""
    if outcomes:
        ended = ended.where(F.col("outcome").isin(*outcomes))
    if where is None:
        return ended
    texts = {f"_text_{name}": F.col(name) for name in DOCUMENTS}
    found = opened(ended.withColumns(texts), DOCUMENTS).where(where)
    return found.withColumns({name: F.col(f"_text_{name}") for name in DOCUMENTS}).select(*ENDED)


def placed(ended: DataFrame) -> DataFrame:
    """With their spots."""
    spot = (F.unix_micros("ended_at"), F.unix_micros("enqueued_at"), F.col("id"))
    return ended.withColumns(dict(zip(SPOT, spot, strict=True)))


def behind(ended: DataFrame, spot: Spot | None) -> DataFrame:
    """Those after a spot."""
    if spot is None:
        return ended
    return ended.where(F.struct(*SPOT) > F.struct(*(F.lit(part).cast("bigint") for part in spot)))


def by_day(ended: DataFrame) -> DataFrame:
    """How many there are: queue, day, messages."""
    day = F.date_format("ended_at", "yyyy-MM-dd").alias("day")
    return ended.groupBy("queue", day).agg(F.count("*").alias("messages")).orderBy("queue", "day")


def messages(ended: DataFrame, partitions: int) -> DataFrame:
    """New messages in their order, over so many partitions: KEPT, origin, SPOT."""
    # Spark takes a sample of the rows before it parts them: what is costly to make comes behind.
    ordered = ended.repartitionByRange(partitions, *SPOT).sortWithinPartitions(*SPOT)
    lined = ordered.withColumn("ordering_key", F.nullif("ordering_key", F.lit("")))
    return lined.withColumn("origin", origin()).select(*KEPT, "origin", *SPOT)


def origin() -> Column:
    """What a replayed message knows of itself, as JSON: what it knew, and how it ended this time."""
    moments = {name: F.date_format(name, MOMENT) for name in MOMENTS}
    known = [F.get_json_object("origin", f"$.{name}") for name in (SENT, "enqueued_at")]
    sent = {SENT: F.coalesce(*known, moments["enqueued_at"])}
    values = {name: F.col(name) for name in TOLD} | moments | sent
    pairs = [part for name, value in values.items() for part in (F.lit(name), value.cast("variant"))]
    new = F.map_filter(F.create_map(*pairs), lambda _, value: value.isNotNull())
    before = F.coalesce(fields_of(F.try_parse_json("origin")), F.create_map().cast("map<string,variant>"))
    return F.to_json(F.map_concat(F.map_filter(before, lambda name, _: ~_told(name)), new))


def _told(name: Column) -> Column:
    """Whether a field is told anew: as in replay in SQL, a key that is gone is still known from before."""
    maybe = [(name == F.lit(column)) & F.col(column).isNotNull() for column in ("key", "ordering_key")]
    always = [*(column for column in TOLD if column not in ("key", "ordering_key")), *MOMENTS, SENT]
    return reduce(Column.__or__, maybe, name.isin(*always))
