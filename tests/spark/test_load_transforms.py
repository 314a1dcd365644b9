"""Loading, without reads and writes: rows as messages, and the reason of each that is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from holdfast.spark.transforms.load import (
    CONTENT,
    FILE,
    LINE,
    OUTCOME,
    REASON,
    OfColumns,
    OfJson,
    checked,
    elements,
    filled,
    messages,
    objects,
    typed,
    whole,
)

pytestmark = pytest.mark.verify

Lines = Callable[..., DataFrame]


@pytest.fixture
def lines(spark: SparkSession) -> Lines:
    """A frame of these lines, all of one file."""

    def made(*texts: str) -> DataFrame:
        return checked(
            spark.createDataFrame([(text, "f") for text in texts], f"{LINE} string, {FILE} string")
        )

    return made


def schema(ddl: str) -> StructType:
    found = DataType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def from_json(frame: DataFrame, mapping: dict[str, str], **how: Any) -> list[Any]:
    return messages(objects(frame), OfJson(), mapping, **how).collect()


def from_columns(frame: DataFrame, mapping: dict[str, str], **how: Any) -> list[Any]:
    rows = OfColumns(frame.schema)
    return messages(frame, rows, mapping, **how).collect()


def reasons(frame: DataFrame) -> list[str | None]:
    return [row[REASON] for row in frame.collect()]


def test_lines_are_payloads_as_they_are(lines: Lines) -> None:
    text = '{"a": 1.50, "a": 12345678901234567890123}'

    frame = whole(filled(lines(text, "", "  ", "5")))

    assert [row.payload for row in frame.collect()] == [text, "5"]
    assert frame.columns == ["payload", *OUTCOME]


def test_fields_become_options_and_the_line_stays_as_it_is(lines: Lines) -> None:
    line = '{"id": 12345678901234567890123,  "price": 1.0, "who": "c1", "p": 7}'

    (row,) = from_json(lines(line), {"key": "who", "priority": "p", "idempotency_key": "id"})

    assert (row.key, row.priority, row.payload) == ("c1", 7, line)


def test_headers_are_no_part_of_the_payload(lines: Lines) -> None:
    (row,) = from_json(lines('{"id": 1, "h": {"x": [1]}, "tag": "t"}'), {"headers": "h", "tag": "tag"})

    assert json.loads(row.headers) == {"x": [1]}
    assert json.loads(row.payload) == {"id": 1, "tag": "t"}


def test_fields_that_are_options_can_be_taken_out(lines: Lines) -> None:
    line = '{"id": 12345678901234567890, "who": "c1", "p": 7, "h": {"x": [1]}, "n": null,'
    line += ' "at": "2030-01-01T10:00:00Z"}'
    mapping = {"key": "who", "priority": "p", "deliver_at": "at", "headers": "h", "tag": "none"}

    (row,) = from_json(lines(line), mapping, drop_mapped=True)

    assert (row.key, row.priority, row.tag) == ("c1", 7, None)
    assert row.deliver_at.replace(tzinfo=UTC) == datetime(2030, 1, 1, 10, tzinfo=UTC)
    assert json.loads(row.headers) == {"x": [1]}
    assert json.loads(row.payload) == {"id": 12345678901234567890, "n": None}
    assert row[REASON] is None


def test_one_field_can_be_the_payload(lines: Lines) -> None:
    found = from_json(lines('{"p": {"a": null}}', '{"p": "text"}', '{"q": 1}'), {}, payload="p")

    assert [row.payload for row in found] == ['{"a":null}', '"text"', None]
    assert [row[REASON] for row in found] == [None, None, "p: got nothing; expected a value"]


def test_lines_that_are_no_objects_have_a_reason_and_their_text(lines: Lines) -> None:
    found = from_json(lines("{", "[1]", '{"p": 1}'), {"priority": "p"})

    assert [(row[REASON], row[CONTENT]) for row in found] == [
        ("this is not JSON", "{"),
        ("expected a JSON object", "[1]"),
        (None, None),
    ]


@pytest.mark.parametrize(("value", "shown"), [('"high"', "high"), ("1.5", "1.5"), ("{}", "{}")])
def test_a_field_of_another_type_than_the_option_has_a_reason(lines: Lines, value: str, shown: str) -> None:
    (row,) = from_json(lines(f'{{"p": {value}}}'), {"priority": "p"})

    assert row[REASON] == f"p: got {shown}; expected int"
    assert row[FILE] == "f"


@pytest.mark.parametrize(
    ("kind", "lost", "kept"),
    [
        ("decimal(10,2)", ["12.345", '"1.999"', "true", "1.5e-3", "0.000001"], ["12.3", '"1.990"', "1.5e3"]),
        ("decimal(38,10)", ["0.12345678901"], ["12345678901234567890.1234567890"]),
        ("bigint", ["true", "2.7", "1e-1", '"1.5"'], ["-3.0", "1e3", '" 5 "', "12345678901"]),
        ("double", ["false", "12345678901234567890"], ["0.1", "0.30000000000000004", "1e300", "7"]),
        ("boolean", ["2", "1.5"], ["1", "true", '"no"']),
        ("date", ['"2030-01-31T10:00:00"', '"2030-01-31Tx"'], ['"2030-01-31"', '"2030-01-31T00:00:00"']),
        ("timestamp", ["true"], ["1893456000", '"2030-01-31T10:00:00Z"']),
    ],
)
def test_json_that_a_type_would_change_is_refused(
    lines: Lines, kind: str, lost: list[str], kept: list[str]
) -> None:
    rows = objects(lines(*(f'{{"v": {value}}}' for value in lost + kept)))

    found = reasons(typed(rows, OfJson(), schema(f"v {kind}")))

    assert [str(reason).endswith(f"; expected {kind}") for reason in found[: len(lost)]] == [True] * len(lost)
    assert found[len(lost) :] == [None] * len(kept)


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        ("2.7d", "int", False),
        ("2.0d", "int", True),
        ("1e10d", "bigint", True),
        ("12.345", "decimal(10,2)", False),
        ("'1.999'", "decimal(10,2)", False),
        ("'1.90'", "decimal(10,2)", True),
        ("'1.0E-7'", "decimal(10,2)", False),
        ("true", "int", False),
        ("2", "boolean", False),
        ("9007199254740993L", "double", False),
        ("timestamp '2030-01-31 10:00:00'", "date", False),
        ("timestamp '2030-01-31 10:00:00'", "timestamp", True),
        ("named_struct('a', 1)", "struct<a:bigint>", True),
    ],
)
def test_columns_that_a_type_would_change_are_refused(
    spark: SparkSession, value: str, kind: str, fits: bool
) -> None:
    frame = spark.sql(f"select {value} as v, 'f' as {FILE}")

    (reason,) = reasons(typed(frame, OfColumns(frame.schema), schema(f"v {kind}")))

    assert (reason is None) == fits


def test_a_number_that_is_not_whole_is_no_priority(spark: SparkSession) -> None:
    frame = spark.sql(f"select 2.9d as p, 'f' as {FILE}")

    (row,) = from_columns(frame, {"priority": "p"})

    assert row[REASON] == "p: got 2.9; expected int"


def test_a_file_that_is_an_array_gives_a_line_for_each_element(lines: Lines) -> None:
    found = elements(lines('[{"a": 1}, 2, "three"]', "[]", "no array"))

    assert [row[LINE] for row in found.collect()] == ['{"a":1}', "2", '"three"', "no array"]


def test_a_file_that_is_not_utf8_is_one_line_with_its_reason(spark: SparkSession) -> None:
    file = spark.sql(f"select cast(x'5B312C22E9225D' as string) as {LINE}, 'f' as {FILE}")

    (row,) = elements(checked(file)).collect()

    assert (row[LINE], row[REASON]) == ('[1,"\ufffd"]', "this is not UTF-8")


def test_json_in_the_columns_of_a_schema(lines: Lines) -> None:
    frame = typed(
        objects(lines('{"id": 1, "day": "2030-01-31", "more": 1}', '{"id": "x"}', '{"day": "2030-01-31"}')),
        OfJson(),
        schema("id BIGINT NOT NULL, day DATE"),
    )

    assert frame.columns == ["id", "day", *OUTCOME]
    assert [(row.id, str(row.day)) for row in frame.collect()] == [
        (1, "2030-01-31"),
        (None, "None"),
        (None, "2030-01-31"),
    ]
    assert reasons(frame) == [None, "id: got x; expected bigint", "id: got nothing; expected a value"]


def test_several_reasons_are_all_told(lines: Lines) -> None:
    frame = typed(objects(lines('{"a": "x", "b": "y"}')), OfJson(), schema("a INT, b DOUBLE"))

    assert reasons(frame) == ["a: got x; expected int; b: got y; expected double"]


def test_text_columns_get_the_types_of_a_schema(spark: SparkSession) -> None:
    ddl = f"id string, price string, {REASON} string, {CONTENT} string, {FILE} string"
    frame = spark.createDataFrame(
        [("1", "2.50", None, None, "f"), ("2", "dear", None, None, "f"), ("3", None, "too short", "3", "f")],
        ddl,
    )

    found = typed(frame, OfColumns(frame.schema), schema("id INT, price DECIMAL(10,2)"))

    assert [str(row.price) for row in found.collect()] == ["2.50", "None", "None"]
    assert reasons(found) == [
        None,
        "price: got dear; expected decimal(10,2)",
        "too short",
    ]
    assert [row[CONTENT] for row in found.collect()] == [None, '{"id":"2","price":"dear"}', "3"]


@pytest.mark.parametrize(
    ("drop_mapped", "kept"), [(False, {"the key": "k", "p": 3, "wait": 1.5}), (True, {})]
)
def test_columns_become_options_and_stay_or_are_taken_out(
    spark: SparkSession, drop_mapped: bool, kept: dict[str, Any]
) -> None:
    frame = spark.sql(
        "select 'k' as `the key`, 3 as p, 1.5 as wait, named_struct('a', 1) as h, null as nothing,"
        f" array('x') as tags, cast('t' as binary) as bytes, 'f' as {FILE}"
    )
    mapping = {"key": "the key", "priority": "p", "delay": "wait", "headers": "h", "tag": "bytes"}

    (row,) = from_columns(frame, mapping, drop_mapped=drop_mapped)

    assert (row.key, row.priority, row.delay, row.headers, row.tag) == ("k", 3, 1.5, '{"a":1}', "t")
    assert json.loads(row.payload) == {**kept, "nothing": None, "tags": ["x"]}


def test_a_row_of_which_all_is_taken_out_has_an_empty_object(spark: SparkSession) -> None:
    frame = spark.sql(f"select 'k' as k, 'f' as {FILE}")

    (row,) = from_columns(frame, {"key": "k"}, drop_mapped=True)

    assert row.payload == "{}"


@pytest.mark.parametrize(
    ("value", "text", "payload"),
    [
        ("'{\"a\": 1}'", False, '{"a": 1}'),
        ("'say \"hi\"'", True, r'"say \"hi\""'),
        ("named_struct('a', 1)", False, '{"a":1}'),
        ("array(1, 2)", False, "[1,2]"),
        ("5", False, "5"),
        ("true", False, "true"),
        ("timestamp '2030-01-01 00:00:00'", False, '"2030-01-01T00:00:00.000Z"'),
    ],
)
def test_a_column_as_payload(spark: SparkSession, value: str, text: bool, payload: str) -> None:
    frame = spark.sql(f"select {value} as p, 1 as other, 'f' as {FILE}")

    (row,) = from_columns(frame, {}, payload="p", text=text)

    assert row.payload == payload


def test_bytes_are_a_body_and_leave_no_payload(spark: SparkSession) -> None:
    frame = spark.sql(f"select cast('abc' as binary) as b, 'f' as {FILE}")

    (row,) = from_columns(frame, {"body": "b"})

    assert bytes(row.body) == b"abc"
    assert "payload" not in row.asDict()
