"""Repairs without reads and writes: what an assignment is, and what it makes of dead letters."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from holdfast.spark._intake import REASON
from holdfast.spark.transforms.redrive import (
    Assignment,
    Place,
    RepairError,
    assignment,
    changes,
    check_places,
    letters,
    place,
    repaired,
    replaced,
    returned,
)

DEAD = (
    "id long, payload string, body binary, content_type string, headers string, correlation_id string,"
    " tag string, last_error string, origin string, enqueued_at timestamp"
)
DIED = datetime(2030, 1, 2, tzinfo=UTC)
ORIGIN = {
    "queue": "q",
    "id": 7,
    "root_id": 1 << 60,
    "priority": 4,
    "key": "k",
    "deliveries": 3,
    "failures": 2,
    "enqueued_at": "2030-01-01T00:00:00.5+00:00",
}


@pytest.mark.parametrize(
    ("text", "place", "expression"),
    [
        ("tag = 'x'", Place("tag"), "'x'"),
        ("payload=payload", Place("payload"), "payload"),
        (" payload.a =\n upper(payload:a) ", Place("payload", ("a",)), "upper(payload:a)"),
        ("payload.a.`b c`.d = 1 = 1", Place("payload", ("a", "b c", "d")), "1 = 1"),
        ("headers.`x-id` = 1", Place("headers", ("x-id",)), "1"),
        ("reason = null", Place("reason"), "null"),
    ],
)
def test_an_assignment_has_a_place_and_an_expression(text: str, place: Place, expression: str) -> None:
    assert assignment(text) == Assignment(place, expression)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("payload", "expected COLUMN = EXPRESSION"),
        ("payload.country = ", "expected COLUMN = EXPRESSION"),
        ("payload == 1", "expected COLUMN = EXPRESSION"),
        ("colour = 1", "got colour; expected one of payload, body"),
        ("id = 1", "got id; expected one of payload, body"),
        ("tag.a = 1", "got tag.a; expected a field of payload or headers"),
        ("payload. = 1", "expected COLUMN = EXPRESSION"),
    ],
)
def test_what_is_no_assignment_is_refused(text: str, told: str) -> None:
    with pytest.raises(RepairError) as refused:
        assignment(text)

    assert told in str(refused.value)


@pytest.mark.parametrize(
    "places",
    [("tag", "tag"), ("payload", "payload.a"), ("payload.a.b", "payload.a"), ("headers.x", "headers.x")],
)
def test_a_place_is_given_once(places: tuple[str, str]) -> None:
    with pytest.raises(RepairError, match="expected each place once"):
        check_places([place("--set", each) for each in places])


def test_places_beside_one_another_are_taken() -> None:
    check_places([place("--set", each) for each in ("payload.a", "payload.b.c", "headers.a", "tag", "key")])


def dead(spark: SparkSession, payload: Any, *, body: bytes | None = None) -> DataFrame:
    text = None if payload is None else json.dumps(payload)
    row = (9, text, body, "c", '{"h": 1}', None, "t", "boom", json.dumps(ORIGIN), DIED)
    return spark.createDataFrame([row], DEAD)


def mended(frame: DataFrame, *assignments: str, removed: tuple[str, ...] = ()) -> Row:
    given = [assignment(each) for each in assignments]
    gone = [place("--unset", each) for each in removed]
    (row,) = repaired(letters(frame), given, gone).collect()
    assert isinstance(row, Row)
    return row


@pytest.mark.verify
def test_a_dead_letter_has_what_it_had_in_life(spark: SparkSession) -> None:
    (row,) = letters(dead(spark, {"a": 1})).collect()

    assert (row.id, row.root_id, row.priority, row.key, row.ordering_key) == (9, 1 << 60, 4, "k", None)
    assert (row.deliveries, row.failures, row.redrives, row.max_deliveries) == (3, 2, None, None)
    assert (row.tag, row.last_error) == ("t", "boom")
    assert row.enqueued_at.astimezone(UTC).isoformat() == "2030-01-01T00:00:00.500000+00:00"
    assert row.died_at.astimezone(UTC) == DIED


@pytest.mark.verify
def test_fields_are_set_and_removed_and_all_others_stay(spark: SparkSession) -> None:
    payload = {"country": "Germny", "price": 1.25, "to": {"zip": 7, "x": None}, "old": [1], "n": 10**30}
    frame = dead(spark, payload)

    row = mended(
        frame,
        "payload.country = 'DE'",
        "payload.price = payload:price::double * 2",
        "payload.to.city = named_struct('name', upper(payload:country::string))",
        "payload.new.deep = null",
        removed=("payload.old", "payload.none.at.all", "payload.to.x"),
    )

    assert json.loads(row.payload) == {
        "country": "DE",
        "price": 2.5,
        "to": {"zip": 7, "city": {"name": "GERMNY"}},
        "new": {"deep": None},
        "n": 10**30,
    }
    assert (row.body, row[REASON]) == (None, None)
    assert row.asDict().keys() == {"id", "payload", "body", REASON}


@pytest.mark.verify
def test_columns_are_replaced_whole_and_see_what_was_there_before(spark: SparkSession) -> None:
    row = mended(
        dead(spark, {"a": "x"}),
        "payload = payload:a",
        "tag = concat(tag, payload:a)",
        "priority = 9 - priority",
        "ordering_key = origin:key",
        "headers = map('n', 1)",
    )

    assert (row.payload, row.tag, row.priority, row.ordering_key) == ('"x"', "tx", 5, "k")
    assert (json.loads(row.headers), row.body) == ({"n": 1}, None)


@pytest.mark.verify
@pytest.mark.parametrize(
    ("expression", "payload"),
    [
        ("'[1]'", "[1]"),
        ("7", "7"),
        ("true", "true"),
        ("array(1, 2)", "[1,2]"),
        ("parse_json('\"x\"')", '"x"'),
    ],
)
def test_text_is_json_and_other_values_are_written_as_json(
    spark: SparkSession, expression: str, payload: str
) -> None:
    assert mended(dead(spark, {}), f"payload = {expression}").payload == payload


@pytest.mark.verify
def test_of_a_pair_the_other_goes(spark: SparkSession) -> None:
    row = mended(dead(spark, None, body=b"old"), "payload = '1'", "idempotency_key = 'i'")
    other = mended(dead(spark, {"a": 1}), "body = 'x'")

    assert (row.payload, row.body, row.key, row.idempotency_key) == ("1", None, None, "i")
    assert (other.payload, other.body) == (None, b"x")


@pytest.mark.verify
@pytest.mark.parametrize(
    ("payload", "set", "reason"),
    [
        ([1], "payload.a = 1", "payload: expected a JSON object"),
        (None, "payload.a = 1", None),
        ({"a": 1}, "payload.a.b = 1", "payload.a: expected a JSON object"),
        ({"a": {"b": "x"}}, "payload.a.b.c = 1", "payload.a.b: expected a JSON object"),
        ({"a": None}, "payload.a.b = 1", None),
        ({"a": 1}, "reason = if(payload:a::int > 0, 'no', null)", "no"),
        ({"a": 0}, "reason = if(payload:a::int > 0, 'no', null)", None),
    ],
)
def test_a_reason_says_why_it_cannot_be(
    spark: SparkSession, payload: Any, set: str, reason: str | None
) -> None:
    assert mended(dead(spark, payload), set)[REASON] == reason


@pytest.mark.verify
def test_a_field_is_set_in_a_document_that_is_not_there(spark: SparkSession) -> None:
    bare = dead(spark, None).withColumn("headers", F.lit(None).cast("string"))
    bytes_only = dead(spark, None, body=b"x")

    row = mended(bare, "headers.x.y = 1", "payload.a = 2")

    assert (row.headers, row.payload, row[REASON]) == ('{"x":{"y":1}}', '{"a":2}', None)
    assert mended(bytes_only, "payload.a = 1")[REASON] == "payload: expected a JSON object, got bytes"
    assert mended(bytes_only, "headers.a = 1")[REASON] is None


@pytest.mark.verify
@pytest.mark.parametrize("text", ["9" * 1001, "[" * 1100 + "]" * 1100], ids=["digits", "levels"])
def test_a_document_that_spark_cannot_read_is_refused_where_it_would_be_lost(
    spark: SparkSession, text: str
) -> None:
    document = F.lit(f'{{"x": 1, "big": {text}}}')
    found = dead(spark, {}).withColumns({"headers": document, "payload": document})
    told = "Spark cannot read this JSON: its numbers are too long, or it is nested too deep, or too large"

    for column in ("payload", "headers"):
        for row in (
            mended(found, removed=(f"{column}.x",)),
            mended(found, f"{column}.x = 2"),
            mended(found, f"tag = {column}:x::string"),
            mended(found, f"{column} = {column.upper()}"),
        ):
            assert row[REASON] == f"{column}: {told}"
        assert mended(found, f"{column} = '{{}}'", "tag = 'x'")[REASON] is None


@pytest.mark.verify
def test_what_a_function_returns_has_an_id_and_known_columns(spark: SparkSession) -> None:
    found = letters(dead(spark, {"a": 1}))

    whole = returned(found, found.columns)
    some = returned(found.select("id", "tag", F.lit("x").alias(REASON)), found.columns)

    assert replaced(whole) == [
        "payload",
        "body",
        "content_type",
        "headers",
        "priority",
        "correlation_id",
        "tag",
        "max_deliveries",
        "ordering_key",
        "key",
        "idempotency_key",
    ]
    assert [tuple(row) for row in some.collect()] == [(9, "t", "x")]
    for frame, told in (
        (found.drop("id"), "expected id among them"),
        (found.withColumn("colour", F.lit(1)), "column colour is none of a dead letter; expected some of id"),
        (found.drop("key"), "got one of key and idempotency_key"),
    ):
        with pytest.raises(RepairError, match=told):
            returned(frame, found.columns)


@pytest.mark.verify
def test_changes_are_of_values_not_of_how_they_are_written(spark: SparkSession) -> None:
    found = letters(dead(spark, {"b": 1, "a": 2}))
    same = repaired(found, [assignment("payload.a = 2"), assignment("tag = 't'")], [])
    other = repaired(found, [assignment("payload.a = 3"), assignment("tag = null")], [])

    assert changes(found, same).collect() == []
    assert [tuple(row) for row in changes(found, other).orderBy("column").collect()] == [
        (9, "payload", '{"a":2,"b":1}', '{"a":3,"b":1}'),
        (9, "tag", "t", None),
    ]
    assert changes(found, repaired(found, [], [])).collect() == []
