"""Payloads as columns: the JSON text of many messages, read into one Arrow type."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from .options import OptionError


class PayloadError(ValueError):
    """A payload does not fit payload_schema."""


def refuse_unreadable(kind: pa.DataType) -> None:
    """Refuse a type that JSON text cannot be read into."""
    try:
        _parsed(pa.array([None], pa.string()), kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise OptionError(
            "payload_schema", str(kind), f"other types ({error}); or take it as string, and use from_json"
        ) from None


def parse(texts: pa.Array, ids: pa.Array, kind: pa.DataType, *, errors: str) -> pa.Array:
    """The payloads as values of a type. What does not fit is an error, or null if errors is null."""
    try:
        return _parsed(texts, kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_single(texts, ids, n, kind, errors) for n in range(len(texts))])


def _single(texts: pa.Array, ids: pa.Array, n: int, kind: pa.DataType, errors: str) -> pa.Array:
    try:
        return _parsed(texts.slice(n, 1), kind)
    except pa.ArrowInvalid as error:
        if errors == "null":
            return pa.nulls(1, kind)
        raise PayloadError(
            f"the payload of message {ids[n]} does not fit payload_schema: {error}. "
            "Change the schema, or give the option payload_errors = null"
        ) from None


def _parsed(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    # jsonb as text has no line breaks, so each message is a line of its own.
    lines = pc.binary_join_element_wise('{"p":', pc.fill_null(texts, "null"), "}\n", "")
    text = lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=text.size + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([("p", _as_read(kind))]), unexpected_field_behavior="ignore"
        ),
    )
    return table.column("p").combine_chunks().cast(kind)


def _as_read(kind: pa.DataType) -> pa.DataType:
    """The type by which JSON is read: dates come as moments first."""
    if pa.types.is_date32(kind):
        return pa.timestamp("s")
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_read(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_read(field.type)) for field in kind])
    return kind
