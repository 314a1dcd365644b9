"""Casts that lose nothing: a value that a type would change is not of that type.

A cast rounds, cuts and guesses: 12.345 becomes 12.35, 2.7 becomes 2, true becomes 1. What tells is the text
of the value. Two types are not exact by their nature: DOUBLE is the nearest number there is, though a whole
number has to stay itself, and TIMESTAMP has microseconds.
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATING = frozenset({"float", "double"})
MOMENTS = frozenset({"timestamp", "timestamp_ntz"})
DECIMAL = re.compile(r"decimal\([0-9]+,([0-9]+)\)")
INTEGER = r"^\s*[+-]?[0-9]+\s*$"
PLAIN = r"^\s*[+-]?[0-9]*\.?[0-9]*\s*$"  # a number without an exponent
PLACES = r"\.([0-9]*?)0*\s*$"  # its digits behind the point, but for zeros at the end


def exact(cast: Column, text: Column, kind: str) -> Column:
    """A value that was cast, null if that has changed it. Text, bytes and nested types are not looked at."""
    if kind == "boolean":
        return text.try_cast(kind)
    same = is_same(cast, text, kind)
    return cast if same is None else F.when(same, cast)


def is_same(cast: Column, text: Column, kind: str) -> Column | None:
    """Whether a value that was cast still says what its text does; None if that goes for every value."""
    decimal = DECIMAL.fullmatch(kind)
    if decimal or kind in WHOLE:
        return _has_places(cast, text, int(decimal[1]) if decimal else 0)
    if kind in FLOATING:
        digits = cast.try_cast("decimal(38,0)") == text.try_cast("decimal(38,0)")
        return F.when(text.rlike(INTEGER), digits).otherwise(_is_no_boolean(text))
    if kind == "date":
        return cast.cast("timestamp") == text.try_cast("timestamp")
    return _is_no_boolean(text) if kind in MOMENTS else None


def _has_places(cast: Column, text: Column, places: int) -> Column:
    """Whether a number has at most so many digits behind the point."""
    fits = F.length(F.regexp_extract(text, PLACES, 1)) <= places
    return F.when(text.rlike(PLAIN), fits).otherwise(cast.cast("double") == text.try_cast("double"))


def _is_no_boolean(text: Column) -> Column:
    return ~text.isin("true", "false")
