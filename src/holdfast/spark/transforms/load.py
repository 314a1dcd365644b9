"""Loading: rows of files and tables as messages, each with the reason if it cannot be one.

Rows come in two shapes, which differ in how a field is reached: text that is JSON (OfJson), and columns
(OfColumns). What comes out has, for both, the columns of a message and three more:

    REASON    why the row is no message; null if it is one
    CONTENT   the row as text, if there is a reason
    FILE      where it comes from

What only the queue can judge is judged when the rows are staged: its schema, and by the engine sizes,
priorities and keys (holdfast.check_staged).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CalendarIntervalType,
    DataType,
    DayTimeIntervalType,
    MapType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from .exact import exact

# Names that no column of a user's has.
LINE = "_load_line"  # of OfJson: the text
FIELDS = "_load_fields"  # of OfJson: the fields of an object, by name
BROKEN = "_load_broken"  # of CSV: the text of a row that has other columns than it should
REASON, CONTENT, FILE = "_load_reason", "_load_content", "_load_file"
OUTCOME = (REASON, CONTENT, FILE)
OURS = frozenset({LINE, FIELDS, BROKEN, *OUTCOME})
NO_TEXT = "this is not UTF-8"
SHOWN = 100  # characters of a value that a reason names

# The options of a send that a column can give, and their types.
OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "body": "binary",
        "content_type": "string",
        "correlation_id": "string",
        "delay": "double",
        "deliver_at": "timestamp",
        "expires_at": "timestamp",
        "headers": "json",
        "idempotency_key": "string",
        "key": "string",
        "max_deliveries": "int",
        "ordering_key": "string",
        "priority": "int",
        "tag": "string",
        "ttl": "double",
    }
)
# Fields that are options and nothing else: in the payload they would only be there twice.
APART = frozenset({"body", "headers"})
NO_JSON = (BinaryType, CalendarIntervalType, DayTimeIntervalType, YearMonthIntervalType)


class Rows(Protocol):
    """How the fields of a row are reached."""

    def shown(self, name: str) -> Column:
        """A field as text, null if there is none."""
        ...

    def cast(self, name: str, kind: str) -> Column:
        """A field in another type, null if it cannot be."""
        ...

    def json(self, name: str) -> Column:
        """A field as JSON text."""
        ...

    def rest(self, used: Collection[str]) -> Column:
        """All other fields as one JSON object."""
        ...

    def is_json(self, name: str) -> bool:
        """Whether a field says the same in JSON."""
        ...


class OfJson:
    """Rows whose fields are those of a JSON object."""

    def shown(self, name: str) -> Column:
        """A field as text; the JSON value null is none."""
        return F.try_variant_get(self._field(name), "$", "string")

    def cast(self, name: str, kind: str) -> Column:
        """A field in another type, if it loses nothing."""
        return exact(F.try_variant_get(self._field(name), "$", kind), self.shown(name), kind)

    def json(self, name: str) -> Column:
        """A field as JSON text."""
        return F.to_json(self._field(name))

    def rest(self, used: Collection[str]) -> Column:
        """All other fields as one JSON object; if that is all of them, the text as it is, digit by digit."""
        if not used:
            return F.col(LINE)
        names = [F.lit(name) for name in sorted(used)]
        return F.to_json(F.map_filter(F.col(FIELDS), lambda name, _: ~name.isin(names)))

    def is_json(self, name: str) -> bool:
        """All of them are."""
        return True

    @staticmethod
    def _field(name: str) -> Column:
        return F.col(FIELDS)[name]


class OfColumns:
    """Rows that have columns."""

    def __init__(self, schema: StructType) -> None:
        self._types: dict[str, DataType] = {
            field.name: field.dataType for field in schema.fields if field.name not in OURS
        }

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return tuple(self._types)

    def shown(self, name: str) -> Column:
        """A field as text."""
        if isinstance(self._types[name], StructType | MapType | ArrayType):
            return F.to_json(quoted(name))
        return quoted(name).cast("string")

    def cast(self, name: str, kind: str) -> Column:
        """A field in another type, if it loses nothing."""
        if isinstance(self._types[name], BinaryType) or kind == "binary":
            return quoted(name) if kind == "binary" else quoted(name).cast(kind)
        shown = self.shown(name)
        return shown if kind == "string" else exact(quoted(name).try_cast(kind), shown, kind)

    def json(self, name: str) -> Column:
        """A field as JSON text; a string is such text already."""
        kind = self._types[name]
        if isinstance(kind, StringType):
            return quoted(name)
        nested = isinstance(kind, StructType | MapType | ArrayType)
        return self.shown(name) if nested else plain_json(quoted(name))

    def rest(self, used: Collection[str]) -> Column:
        """All other columns as one JSON object."""
        kept = [quoted(name) for name in self._types if name not in used]
        return F.to_json(F.struct(*kept), {"ignoreNullFields": "false"}) if kept else F.lit("{}")

    def is_json(self, name: str) -> bool:
        """Bytes and intervals are not."""
        return not isinstance(self._types[name], NO_JSON)


def checked(lines: DataFrame) -> DataFrame:
    """Lines that are text for Python too, REASON for those that were not: LINE, REASON, FILE."""
    reason = F.when(~F.is_valid_utf8(LINE), F.lit(NO_TEXT))
    return lines.select(F.make_valid_utf8(LINE).alias(LINE), reason.alias(REASON), FILE)


def objects(lines: DataFrame) -> DataFrame:
    """Lines of JSON with the fields of their objects: LINE, FIELDS, REASON, FILE."""
    value = F.try_parse_json(F.col(LINE))
    fields = F.try_variant_get(value, "$", "map<string,variant>")
    no_object = F.when(fields.isNull(), F.lit("expected a JSON object"))
    no_json = F.when(value.isNull(), F.lit("this is not JSON"))
    reason = F.coalesce(REASON, no_json, no_object)
    return lines.select(LINE, fields.alias(FIELDS), reason.alias(REASON), FILE)


def elements(files: DataFrame) -> DataFrame:
    """Files that are JSON arrays as lines, one for each element. Others stay as they are."""
    array = F.try_variant_get(F.try_parse_json(F.col(LINE)), "$", "array<variant>")
    texts = F.transform(array, lambda element: F.to_json(element))
    other = array.isNull() | F.col(REASON).isNotNull()
    each = F.when(other, F.array(F.col(LINE))).otherwise(texts)
    return files.select(F.explode(each).alias(LINE), REASON, FILE)


def filled(lines: DataFrame) -> DataFrame:
    """Lines that are not empty."""
    return lines.where(F.trim(LINE) != "")


def typed(frame: DataFrame, rows: Rows, schema: StructType) -> DataFrame:
    """Rows with the columns of a schema: those columns, and how that went."""
    found = F.col(REASON) if REASON in frame.columns else F.lit(None)
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    reasons = [found, *(unfit(rows, name, kind) for name, kind in kinds.items())]
    reasons += [missing(rows, field.name) for field in schema.fields if not field.nullable]
    columns = [rows.cast(name, kind).alias(name) for name, kind in kinds.items()]
    return _judged(frame, columns, reasons)


def whole(lines: DataFrame) -> DataFrame:
    """Lines that are payloads as they are: payload, and OUTCOME. The database reads them."""
    return _judged(lines, [F.col(LINE).alias("payload")], [F.col(REASON)])


def messages(
    frame: DataFrame,
    rows: Rows,
    mapping: Mapping[str, str],
    *,
    payload: str | None = None,
    text: bool = False,
    drop_mapped: bool = False,
) -> DataFrame:
    """Rows as messages: the options that are mapped, payload or body, and OUTCOME.

    Without a column for it the payload is the row, what is mapped included, unless drop_mapped is set.
    """
    found = F.col(REASON) if REASON in frame.columns else F.lit(None)
    reasons = [found, *(unfit(rows, name, OPTIONS[option]) for option, name in mapping.items())]
    columns = [option_of(rows, name, OPTIONS[option]).alias(option) for option, name in mapping.items()]
    if payload is not None:
        reasons.append(missing(rows, payload))
        content = plain_json(rows.shown(payload)) if text else rows.json(payload)
        columns.append(content.alias("payload"))
    elif "body" not in mapping:
        columns.append(rows.rest(apart(rows, mapping, drop_mapped=drop_mapped)).alias("payload"))
    return _judged(frame, columns, reasons)


def apart(rows: Rows, mapping: Mapping[str, str], *, drop_mapped: bool) -> set[str]:
    """The fields that are not in a payload which is made of the row."""
    return {
        name for option, name in mapping.items() if drop_mapped or option in APART or not rows.is_json(name)
    }


def option_of(rows: Rows, name: str, kind: str) -> Column:
    """A field as an option of a send."""
    return rows.json(name) if kind == "json" else rows.cast(name, kind)


def unfit(rows: Rows, name: str, kind: str) -> Column:
    """The reason if a field is there, and is not of a type."""
    if kind in ("json", "string", "binary"):
        return F.lit(None)
    shown = rows.shown(name)
    wrong = shown.isNotNull() & rows.cast(name, kind).isNull()
    got = F.substring(shown, 1, SHOWN)
    return F.when(wrong, F.concat(F.lit(f"{name}: got "), got, F.lit(f"; expected {kind}")))


def missing(rows: Rows, name: str) -> Column:
    """The reason if a field is not there."""
    return F.when(rows.shown(name).isNull(), F.lit(f"{name}: got nothing; expected a value"))


def quoted(name: str) -> Column:
    """A column by its name, whatever characters that has."""
    return F.col("`" + name.replace("`", "``") + "`")


def plain_json(value: Column) -> Column:
    """A plain value as JSON text: what stands in {"t":…}, since Spark writes no plain value as JSON."""
    inside = F.to_json(F.struct(value.alias("t")))
    return F.when(value.isNotNull(), F.substring(inside, 6, F.length(inside) - 6))


def _judged(frame: DataFrame, columns: Sequence[Column], reasons: Sequence[Column]) -> DataFrame:
    reason = F.nullif(F.concat_ws("; ", *reasons), F.lit(""))
    content = F.when(reason.isNotNull(), _content(frame))
    return frame.select(*columns, reason.alias(REASON), content.alias(CONTENT), FILE)


def _content(frame: DataFrame) -> Column:
    if LINE in frame.columns:
        return F.col(LINE)
    own = [quoted(name) for name in frame.columns if name not in OURS]
    row = F.to_json(F.struct(*own), {"ignoreNullFields": "false"}) if own else F.lit(None)
    return F.coalesce(CONTENT, row) if CONTENT in frame.columns else row
