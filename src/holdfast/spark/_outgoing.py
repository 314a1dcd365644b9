"""Rows on their way into a queue: the columns that a DataFrame may have, as those of the staging table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

MOMENT = pa.timestamp("us", "UTC")
INT_MAX = 2**31 - 1
SECOND = 1_000_000  # microseconds

TEXT = (StringType,)
WHOLE = (ByteType, ShortType, IntegerType, LongType)
SECONDS = (*WHOLE, FloatType, DoubleType, DecimalType, DayTimeIntervalType)
JSON = (StringType, StructType, MapType, ArrayType)


class ColumnError(ValueError):
    """A DataFrame has a column that no message has, or of another type, or lacks one."""


def _text(column: pa.Array) -> pa.Array:
    return column.cast(pa.string())


def _octets(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _whole(column: pa.Array) -> pa.Array:
    # Out of range stays out of range: the engine says so.
    low = pc.max_element_wise(column.cast(pa.int64()), -INT_MAX, skip_nulls=False)
    return pc.min_element_wise(low, INT_MAX, skip_nulls=False).cast(pa.int32())


def _seconds(column: pa.Array) -> pa.Array:
    if pa.types.is_duration(column.type):
        return pc.divide(column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.float64()), float(SECOND))
    return column.cast(pa.float64(), safe=False)


def _moment(column: pa.Array) -> pa.Array:
    return column.cast(MOMENT)


def _json(column: pa.Array) -> pa.Array:
    """JSON text is taken as it is; values are written as JSON."""
    if not pa.types.is_string(column.type) and not pa.types.is_large_string(column.type):
        column = pa.array([_written(value, column.type) for value in column.to_pylist()], pa.string())
    return column.cast(pa.string())


def _written(value: Any, kind: pa.DataType) -> str | None:
    if value is None:
        return None
    return json.dumps(_plain(value, kind), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow as JSON has it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: _plain(value[field.name], field.type) for field in kind}
    if pa.types.is_map(kind):
        return {str(key): _plain(item, kind.item_type) for key, item in value}
    if pa.types.is_list(kind):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


COLUMNS: Mapping[str, tuple[tuple[type[DataType], ...], Callable[[pa.Array], pa.Array]]] = MappingProxyType(
    {
        "payload": (JSON, _json),
        "body": ((BinaryType,), _octets),
        "content_type": (TEXT, _text),
        "headers": ((StringType, StructType, MapType), _json),
        "priority": (WHOLE, _whole),
        "delay": (SECONDS, _seconds),
        "deliver_at": ((TimestampType,), _moment),
        "ttl": (SECONDS, _seconds),
        "expires_at": ((TimestampType,), _moment),
        "correlation_id": (TEXT, _text),
        "tag": (TEXT, _text),
        "max_deliveries": (WHOLE, _whole),
        "ordering_key": (TEXT, _text),
        "key": (TEXT, _text),
        "idempotency_key": (TEXT, _text),
    }
)
IN_JSON = frozenset({"payload", "headers", "origin"})
EXCLUSIVE = (("payload", "body"), ("delay", "deliver_at"), ("ttl", "expires_at"), ("key", "idempotency_key"))


def check_columns(schema: StructType) -> None:
    """Refuse a DataFrame that cannot be sent, whatever its rows are."""
    check_types(schema)
    if not {"payload", "body"} & set(schema.names):
        given = ", ".join(schema.names) or "none"
        raise ColumnError(f"columns: got {given}; expected payload or body among them")


def check_types(schema: StructType) -> None:
    """Refuse columns that no message has, or that are of another type."""
    for field in schema.fields:
        if field.name not in COLUMNS:
            known = ", ".join(COLUMNS)
            raise ColumnError(f"column {field.name} is no option of a send; expected some of {known}")
        types, _ = COLUMNS[field.name]
        if not isinstance(field.dataType, types):
            wanted = " or ".join(sorted({_name(each) for each in types}))
            raise ColumnError(f"column {field.name}: got {field.dataType.simpleString()}; expected {wanted}")
        if field.name in IN_JSON:
            _check_json(field.name, field.dataType)


def staging_rows(batch: pa.RecordBatch, stage: int, numbers: pa.Array) -> pa.RecordBatch:
    """A batch as rows of the staging table, with these numbers."""
    arrays = [pa.repeat(pa.scalar(stage, pa.int64()), batch.num_rows), numbers]
    for name in batch.schema.names:
        column = _json(batch[name]) if name == "origin" else COLUMNS[name][1](batch[name])
        if name in IN_JSON:
            column = pa.ExtensionArray.from_storage(pa.json_(pa.string()), column)
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, names=["stage", "n", *batch.schema.names])


def unstorable(rows: pa.RecordBatch) -> dict[int, str]:
    """The rows that have a NUL in a text, by their place: PostgreSQL refuses a whole batch for one."""
    found: dict[int, str] = {}
    for name in rows.schema.names:
        column = text_of(rows, name)
        if pa.types.is_string(column.type):
            for place in pc.indices_nonzero(pc.match_substring(column, "\0")).to_pylist():
                found.setdefault(place, f"{name} has a NUL character, which PostgreSQL cannot store")
    return found


def text_of(rows: pa.RecordBatch, name: str) -> pa.Array:
    """A column of staging rows; JSON as its text."""
    column = rows[name]
    return column.storage if isinstance(column, pa.ExtensionArray) else column


def _check_json(name: str, kind: DataType) -> None:
    match kind:
        case StructType():
            for field in kind.fields:
                _check_json(f"{name}.{field.name}", field.dataType)
        case ArrayType():
            _check_json(f"{name}[]", kind.elementType)
        case MapType():
            if not isinstance(kind.keyType, StringType):
                keys = kind.keyType.simpleString()
                raise ColumnError(f"column {name}: got keys of type {keys}; expected string")
            _check_json(f"{name}{{}}", kind.valueType)
        case BinaryType() | DayTimeIntervalType():
            raise ColumnError(f"column {name}: got {kind.simpleString()}; expected a type that JSON has")
        case _:
            pass


def _name(kind: type[DataType]) -> str:
    return {
        ByteType: "int",
        ShortType: "int",
        IntegerType: "int",
        LongType: "bigint",
        FloatType: "double",
        DecimalType: "double",
        DayTimeIntervalType: "interval day to second",
        StructType: "struct",
        MapType: "map",
        ArrayType: "array",
    }.get(kind) or str(kind.typeName())
