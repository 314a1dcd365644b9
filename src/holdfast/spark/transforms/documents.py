"""JSON documents in columns: read as VARIANT, and changed field by field, with all else as it was."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType, VariantType

from .load import plain_json

FIELDS = "map<string,variant>"
TOO_MUCH = "Spark cannot read this JSON: its numbers are too long, or it is nested too deep, or too large"


def opened(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    """Columns of JSON text as VARIANT, so that payload:customer.name reaches into them."""
    return frame.withColumns({name: F.try_parse_json(F.col(name)) for name in names})


def as_variant(value: Column, kind: DataType) -> Column:
    """A value as what it is in JSON."""
    if isinstance(kind, VariantType):
        return value
    nested = isinstance(kind, StructType | MapType | ArrayType)
    return F.to_variant_object(value) if nested else value.cast("variant")


def as_json(value: Column, kind: DataType) -> Column:
    """A value as JSON text; text is such text already."""
    if isinstance(kind, StringType):
        return value
    nested = isinstance(kind, StructType | MapType | ArrayType | VariantType)
    return F.to_json(value) if nested else plain_json(value)


def fields_of(document: Column) -> Column:
    """The fields of an object; null if it is none."""
    return F.try_variant_get(document, "$", FIELDS)


def put(document: Column, path: Sequence[str], value: Column) -> Column:
    """An object with a field set; objects on the way that are not there are made."""
    name, *rest = path
    known = F.coalesce(fields_of(document), F.create_map().cast(FIELDS))
    inner = put(known[name], rest, value) if rest else value
    return F.to_variant_object(F.map_concat(_without(known, name), F.create_map(F.lit(name), inner)))


def taken(document: Column, path: Sequence[str]) -> Column:
    """An object without a field; as it was, if it has no such field."""
    name, *rest = path
    known = fields_of(document)
    if not rest:
        return F.coalesce(F.to_variant_object(_without(known, name)), document)
    inner = taken(known[name], rest)
    changed = F.to_variant_object(F.map_concat(_without(known, name), F.create_map(F.lit(name), inner)))
    return F.when(known[name].isNull(), document).otherwise(F.coalesce(changed, document))


def no_object(document: Column, path: Sequence[str], name: str) -> Column:
    """The reason if a field cannot be set: something on the way to it is there, and is no object."""
    told, inner = _no_object(document, name), document
    for depth, part in enumerate(path[:-1], 1):
        inner = fields_of(inner)[part]
        told = F.coalesce(told, _no_object(inner, ".".join([name, *path[:depth]])))
    return told


def unreadable(text: Column, name: str) -> Column:
    """The reason if JSON that PostgreSQL takes is beyond what Spark can read: it would be lost as a null."""
    lost = text.isNotNull() & F.try_parse_json(text).isNull()
    return F.when(lost, F.lit(f"{name}: {TOO_MUCH}"))


def _no_object(value: Column, name: str) -> Column:
    other = value.isNotNull() & ~F.is_variant_null(value) & fields_of(value).isNull()
    return F.when(other, F.lit(f"{name}: expected a JSON object"))


def _without(fields: Column, name: str) -> Column:
    return F.map_filter(fields, lambda each, _: each != F.lit(name))
