"""Replays without reads and writes: messages of archives and lakes, in order, with their origins."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.lake import SCHEMA
from holdfast.spark.schema import COLUMNS
from holdfast.spark.transforms.replay import (
    ENDED,
    READ,
    Spot,
    archived,
    behind,
    by_day,
    messages,
    once,
    placed,
    selected,
    stored,
    together,
)

pytestmark = pytest.mark.verify

T0 = datetime(2030, 1, 1, 23, 59, 59, 1, tzinfo=UTC)
MICRO = 1_000_000


def entry(id: int, *, after: float = 0.0, **values: Any) -> dict[str, Any]:
    known = {"queue": "q", "state": "done", "payload": '{"n": 1}', "priority": 2, "deliveries": 1}
    ended = {"ended_at": T0 + timedelta(seconds=after), "enqueued_at": T0 - timedelta(hours=1)}
    return {"id": id, **known, **ended, **values}


def archive(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    ddl = ", ".join(f"{name} {COLUMNS[name].simpleString()}" for name in READ)
    return spark.createDataFrame([tuple(row.get(name) for name in READ) for row in rows], ddl)


def lake(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    known = [{"outcome": row["state"], "root_id": row["id"], **row} for row in rows]
    return spark.createDataFrame([tuple(row.get(name) for name in SCHEMA.names) for row in known], SCHEMA)


def ids(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


def test_a_message_is_the_same_from_the_archive_and_from_the_lake(spark: SparkSession) -> None:
    row = entry(5, tag="t", ordering_key="o", headers='{"h": 1}', max_deliveries=3)

    kept = archived(archive(spark, row | {"max_deliveries": 3}), 25)
    laid = stored(lake(spark, row))

    assert kept.columns == laid.columns == list(ENDED)
    assert kept.collect() == laid.collect()
    assert [each.id for each in once(together([kept, laid])).collect()] == [5]


def test_what_a_queue_says_of_deliveries_is_not_the_messages_own(spark: SparkSession) -> None:
    frame = archive(spark, entry(1, max_deliveries=25), entry(2, max_deliveries=3))

    assert [row.max_deliveries for row in archived(frame, 25).orderBy("id").collect()] == [None, 3]
    assert [row.max_deliveries for row in archived(frame, None).orderBy("id").collect()] == [25, 3]


def test_they_are_selected_by_outcome_and_by_a_condition_that_reaches_into_documents(
    spark: SparkSession,
) -> None:
    payload = '{"n": 123456789012345678901234567890123456789012345}'
    rows = [entry(1), entry(2, state="failed", payload=payload), entry(3, state="expired", payload=None)]
    frame = archived(archive(spark, *rows), None)

    assert ids(selected(frame, ["failed", "expired"], None)) == [2, 3]
    assert ids(selected(frame, [], "payload:n::double > 1 or outcome = 'expired'")) == [2, 3]
    assert ids(selected(frame, ["done"], "payload is null")) == []
    (same,) = selected(frame, [], "payload:n::double > 1").collect()
    assert same.payload == payload


def test_those_behind_a_spot_are_left(spark: SparkSession) -> None:
    earlier = T0 - timedelta(hours=2)
    rows = [entry(9, after=-1), entry(8, enqueued_at=earlier), entry(2), entry(5), entry(1, after=1)]
    frame = placed(archived(archive(spark, *rows), None))
    ended = int(T0.timestamp()) * MICRO + 1
    sent = ended - 3600 * MICRO

    assert ids(behind(frame, None)) == [1, 2, 5, 8, 9]
    assert ids(behind(frame, Spot(ended, sent, 2))) == [1, 5]
    assert ids(behind(frame, Spot(ended, sent - 3600 * MICRO, 8))) == [1, 2, 5]
    assert ids(behind(frame, Spot(ended + MICRO, sent, 1))) == []


def test_messages_go_in_the_order_of_their_ends(spark: SparkSession) -> None:
    rows = [entry(id, after=-(id % 10), tag=str(id)) for id in range(1, 200)]
    frame = messages(placed(archived(archive(spark, *rows), None)), 4)

    found = [int(row.tag) for row in frame.collect()]

    assert found == [id for late in range(9, -1, -1) for id in range(1, 200) if id % 10 == late]
    assert frame.rdd.getNumPartitions() == 4


def test_a_new_message_knows_where_it_comes_from(spark: SparkSession) -> None:
    first = "2029-12-31T00:00:00+00:00"
    before = {"queue": "older", "id": 3, "root_id": 1 << 60, "key": "k", "replays": 2, "redrives": 1}
    before |= {"sent_at": first, "enqueued_at": "2030-01-01T00:00:00+00:00"}
    rows = [
        entry(1 << 50, origin=json.dumps(before), ordering_key="o"),
        entry(7, key="own", ordering_key="", after=1),
    ]

    moved, plain = messages(placed(archived(archive(spark, *rows), None)), 1).collect()

    common = {
        "queue": "q",
        "outcome": "done",
        "enqueued_at": "2030-01-01T22:59:59.000001+00:00",
        "deliveries": 1,
        "priority": 2,
    }
    assert json.loads(moved.origin) == {
        **common,
        "id": 1 << 50,
        "root_id": 1 << 60,
        "sent_at": first,
        "ended_at": "2030-01-01T23:59:59.000001+00:00",
        "key": "k",
        "ordering_key": "o",
        "replays": 2,
        "redrives": 1,
    }
    assert json.loads(plain.origin) == {
        **common,
        "id": 7,
        "root_id": 7,
        "sent_at": "2030-01-01T22:59:59.000001+00:00",
        "ended_at": "2030-01-02T00:00:00.000001+00:00",
        "key": "own",
    }
    assert (moved.ordering_key, plain.ordering_key) == ("o", None)


def test_they_are_counted_by_queue_and_day(spark: SparkSession) -> None:
    rows = [entry(1), entry(2), entry(3, after=1), entry(4, queue="other")]

    found = by_day(archived(archive(spark, *rows), None)).collect()

    assert [tuple(row) for row in found] == [
        ("other", "2030-01-01", 1),
        ("q", "2030-01-01", 2),
        ("q", "2030-01-02", 1),
    ]
