"""The figures of a run for people: a list, or a count of counts, comes below the others, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from holdfast.cli._output import Output, cell, table


def tell(output: Output, figures: Mapping[str, Any]) -> None:
    """One table of names and values, then each list by itself."""
    lists = {name: value for name, value in figures.items() if is_list(value)}
    others = {name: value for name, value in figures.items() if name not in lists}
    output.fields({name: None if value == [] else value for name, value in others.items()})
    for name, value in lists.items():
        output.say(f"\n{name}:")
        output.people.print(below(value))


def is_list(value: Any) -> bool:
    """Whether a value has lines of its own."""
    inner: Iterable[Any] = value.values() if isinstance(value, Mapping) else ()
    return bool(value) and (isinstance(value, list) or any(isinstance(each, Mapping) for each in inner))


def below(value: Any) -> Table:
    """A line for each entry."""
    if isinstance(value, Mapping):
        return grid((outer, *pair) for outer, counts in value.items() for pair in counts.items())
    if not all(isinstance(row, Mapping) for row in value):
        return grid((line,) for line in value)
    columns = used(value)
    return table([{column: row.get(column) for column in columns} for row in value], columns)


def used(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns that have a value in some row."""
    return list(dict.fromkeys(column for row in rows for column, value in row.items() if value is not None))


def grid(lines: Iterable[Sequence[Any]]) -> Table:
    """Lines without a heading."""
    sheet = Table.grid(padding=(0, 2))
    for line in lines:
        sheet.add_row(*(Text(cell(value), overflow="fold") for value in line))
    return sheet
