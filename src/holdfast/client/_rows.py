"""Rows to values: dataclasses are filled by column name, with one look at the names per result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from psycopg import AsyncCursor, Cursor

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
Maker = Callable[[Sequence[Any]], T]
Factory = Callable[[Cursor[Any] | AsyncCursor[Any]], Maker[T]]


def record(kind: type[D]) -> Factory[D]:
    """A row factory that makes one dataclass; columns it does not know are passed over."""

    def factory(cursor: Cursor[Any] | AsyncCursor[Any]) -> Maker[D]:
        return maker(kind, tuple(column.name for column in cursor.description or ()))

    return factory


def scalar(kind: type[T]) -> Factory[T]:
    """A row factory for functions that return one plain value."""

    def factory(cursor: Cursor[Any] | AsyncCursor[Any]) -> Maker[T]:
        return itemgetter(0)

    return factory


@lru_cache(maxsize=64)
def maker(kind: type[D], columns: tuple[str, ...]) -> Maker[D]:
    """What turns one row with these columns into a value."""
    names = tuple(field.name for field in fields(kind) if field.name in columns)
    pick = picker(columns, names)

    def make(row: Sequence[Any]) -> D:
        return kind(**dict(zip(names, pick(row), strict=True)))

    return make


def picker(columns: tuple[str, ...], names: tuple[str, ...]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """What picks the named columns of a row, in the order of the names."""
    if columns == names:
        return lambda row: row
    places = [columns.index(name) for name in names]
    return lambda row: [row[place] for place in places]
