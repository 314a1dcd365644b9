"""Columns: those of a read as the options ask for them, those of a write as a send takes them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
)

from holdfast.spark._outgoing import ColumnError, check_columns, staging_rows, text_of, unstorable
from holdfast.spark._payload import PayloadError, parse, refuse_unreadable
from holdfast.spark.options import OptionError, Options, Use
from holdfast.spark.schema import COLUMNS, refuse_foreign, schema_of, selection
from holdfast.spark.source import shared_out

URL = "postgresql://127.0.0.1/shop"


def options(**given: str) -> Options:
    return Options.parse({"url": URL, "queue": "q", **given}, Use.READ)


def frame(**columns: DataType) -> StructType:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    return schema


def test_all_columns_are_read_unless_some_are_named() -> None:
    assert [column.split()[0] for column in schema_of(options()).split(", ")] == list(COLUMNS)
    assert schema_of(options(columns="tag,id")) == "tag string, id bigint"


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"payload": "raw"}, "binary"),
        ({"payload": "struct", "payload_schema": "a INT, b STRING"}, "struct<a INT, b STRING>"),
        ({"payload": "struct", "payload_schema": "array<int>"}, "array<int>"),
        ({"payload": "struct", "payload_schema": frame(a=LongType()).json()}, "struct<a:bigint>"),
    ],
)
def test_the_payload_has_the_type_that_is_asked_for(given: dict[str, str], kind: str) -> None:
    assert schema_of(options(columns="payload", **given)) == f"payload {kind}"


def test_unknown_columns_are_refused() -> None:
    with pytest.raises(OptionError, match="option columns: got 'colour'; expected some of id, queue"):
        schema_of(options(columns="id,colour"))
    with pytest.raises(OptionError, match="option schema: got string for the column id; expected bigint"):
        refuse_foreign(frame(id=StringType()))


def test_what_is_json_or_uuid_is_asked_for_as_text() -> None:
    assert selection(["id", "headers"]) == "m.id as id, m.headers::text as headers"


@pytest.mark.parametrize(
    ("ranges", "wanted", "parts"),
    [
        ([], None, [[]]),
        ([(10, 13)], 2, [[(10, 12)], [(12, 13)]]),
        ([(10, 13)], 9, [[(10, 11)], [(11, 12)], [(12, 13)]]),
        ([(0, 3), (10, 13)], 2, [[(0, 3)], [(10, 13)]]),
        ([(0, 4), (10, 12)], 3, [[(0, 2)], [(2, 4)], [(10, 12)]]),
        ([(0, 400_000)], None, [[(0, 200_000)], [(200_000, 400_000)]]),
    ],
)
def test_ids_are_shared_out(ranges: list[Any], wanted: int | None, parts: list[Any]) -> None:
    assert shared_out(ranges, wanted) == parts


PAYLOAD = pa.struct(
    {"a": pa.int32(), "at": pa.timestamp("us", "UTC"), "on": pa.date32(), "l": pa.list_(pa.int64())}
)


def test_payloads_are_read_into_a_struct() -> None:
    full = '{"a": 1, "at": "2030-01-01T01:00:00+01:00", "on": "2030-01-31", "l": [1], "z": 2}'
    texts = pa.array([full, None, "{}"])

    found = parse(texts, pa.array([1, 2, 3]), PAYLOAD, errors="fail").to_pylist()

    assert found == [
        {"a": 1, "at": datetime(2030, 1, 1, tzinfo=UTC), "on": date(2030, 1, 31), "l": [1]},
        None,
        {"a": None, "at": None, "on": None, "l": None},
    ]


def test_a_payload_that_does_not_fit_is_named_or_null() -> None:
    texts, ids = pa.array(['{"a": 1}', '{"a": "x"}']), pa.array([41, 42])

    with pytest.raises(PayloadError, match="the payload of message 42 does not fit payload_schema"):
        parse(texts, ids, PAYLOAD, errors="fail")
    found = parse(texts, ids, PAYLOAD, errors="null").to_pylist()
    assert [value and value["a"] for value in found] == [1, None]


def test_a_payload_schema_that_json_cannot_fill_is_refused() -> None:
    with pytest.raises(OptionError, match=r"option payload_schema: .*use from_json"):
        refuse_unreadable(pa.map_(pa.string(), pa.int32()))


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (frame(payload=StringType(), colour=StringType()), "column colour is no option of a send; expected"),
        (frame(payload=IntegerType()), "column payload: got int; expected array or map or string or struct"),
        (frame(body=StringType()), "column body: got string; expected binary"),
        (frame(body=BinaryType(), priority=StringType()), "column priority: got string; expected bigint"),
        (frame(body=BinaryType(), deliver_at=TimestampNTZType()), "column deliver_at: got timestamp_ntz"),
        (frame(body=BinaryType(), delay=StringType()), "column delay: got string; expected .*double"),
        (frame(payload=frame(x=BinaryType())), "column payload.x: got binary; expected a type that JSON has"),
        (frame(payload=MapType(IntegerType(), StringType())), "column payload: got keys of type int"),
        (frame(tag=StringType()), "columns: got tag; expected payload or body among them"),
    ],
)
def test_a_frame_that_cannot_be_sent_is_refused(schema: StructType, message: str) -> None:
    with pytest.raises(ColumnError, match=message):
        check_columns(schema)


def test_a_frame_that_can_be_sent_is_taken() -> None:
    inner = frame(a=ArrayType(MapType(StringType(), DoubleType())), on=DateType())

    check_columns(frame(payload=inner, headers=MapType(StringType(), StringType()), delay=DoubleType()))


def test_values_are_written_as_json_and_numbers_as_the_table_has_them() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "payload": pa.array([{"a": [1.5], "on": date(2030, 1, 31)}, None]),
            "headers": pa.array([[("x", "ü")], None], pa.map_(pa.string(), pa.string())),
            "priority": pa.array([2**40, None], pa.int64()),
            "delay": pa.array([timedelta(seconds=1.5), None], pa.duration("us")),
            "ttl": pa.array([7, None], pa.int16()),
        }
    )

    rows = staging_rows(batch, 5, pa.array([11, 12], pa.int64()))

    assert (rows["stage"].to_pylist(), rows["n"].to_pylist()) == ([5, 5], [11, 12])
    assert [text and json.loads(text) for text in text_of(rows, "payload").to_pylist()] == [
        {"a": [1.5], "on": "2030-01-31"},
        None,
    ]
    assert text_of(rows, "headers").to_pylist() == ['{"x":"ü"}', None]
    assert rows["priority"].to_pylist() == [2**31 - 1, None]
    assert (rows["delay"].to_pylist(), rows["ttl"].to_pylist()) == ([1.5, None], [7.0, None])


def test_rows_with_a_nul_are_found() -> None:
    batch = pa.RecordBatch.from_pydict({"payload": ["1", '"\0"', "3"], "tag": ["a", "b", "c\0"]})

    assert sorted(unstorable(staging_rows(batch, 1, pa.array([1, 2, 3], pa.int64())))) == [1, 2]
