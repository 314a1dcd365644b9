"""Answers: tables for people, JSON for machines; only the answer goes to stdout."""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.client import UnreadableJson

PIPE_WIDTH = 200  # columns of a table that does not go to a terminal
# Numbers that pass 2**53, where JSON readers lose digits: they are written as strings.
BIG = frozenset({"id", "new_id", "root_id", "token", "settled", "skipped", "ids", "left", "after"})
# A string that stands for JSON text. No other begins so: PostgreSQL stores no NUL.
STAND_IN = re.compile(r'"\\u0000(\d+)"')


class Output:
    """Where a command's answer goes."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.people = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH, soft_wrap=False)
        self.aside = Console(stderr=True, soft_wrap=True)

    def document(self, value: Any, text: str | None = None) -> None:
        """One answer: a JSON document, or a line for people."""
        if self.as_json:
            self._line(plain(value))
        else:
            self.say(text if text is not None else str(value))

    def records(self, values: Sequence[Any], columns: Sequence[str], empty: str) -> None:
        """Many answers of one kind: JSON lines, or a table of some columns."""
        if self.as_json:
            for value in values:
                self._line(plain(value))
        elif values:
            self.people.print(table(values, columns))
        else:
            self.note(empty)

    def fields(self, value: Any) -> None:
        """One answer with many fields: a JSON document, or a table of names and values."""
        if self.as_json:
            self._line(plain(value))
            return
        sheet = Table.grid(padding=(0, 2))
        for name, field in named(value).items():
            sheet.add_row(Text(name, style="bold"), Text(cell(field), overflow="fold"))
        self.people.print(sheet)

    def say(self, text: str) -> None:
        """A line for people; machines get none."""
        if not self.as_json:
            self.people.print(Text(text), soft_wrap=True)

    def note(self, text: str) -> None:
        """A remark beside the answer."""
        if not self.as_json:
            self.aside.print(Text(text))

    def ask(self, question: str) -> bool:
        """Whether the answer is yes; silence is no."""
        self.aside.print(Text(f"{question} [y/N] "), end="")
        answer = "" if sys.stdin is None else sys.stdin.readline()
        return answer.strip().lower() in ("y", "yes")

    def error(
        self, message: str, *, code: str | None = None, detail: str | None = None, hint: str | None = None
    ) -> None:
        """What went wrong, on stderr."""
        if self.as_json:
            error = {"code": code, "message": message, "detail": detail, "hint": hint}
            print(json.dumps({"error": error}, ensure_ascii=False), file=sys.stderr)  # noqa: T201 - stderr is the place
            return
        self.aside.print(Text.assemble(("Error", "bold red"), f": {message}", f" [{code}]" if code else ""))
        for name, text in (("Detail", detail), ("Hint", hint)):
            if text:
                self.aside.print(Text(f"{name}: {text}"))

    def _line(self, value: Any) -> None:
        sys.stdout.write(json_text(value) + "\n")
        sys.stdout.flush()


def table(values: Sequence[Any], columns: Sequence[str]) -> Table:
    """A table of some fields of some values."""
    sheet = Table(header_style="bold", box=None, pad_edge=False)
    for column in columns:
        sheet.add_column(column, overflow="fold", no_wrap=column in BIG)
    for value in values:
        row = named(value)
        sheet.add_row(*(Text(shown(row, column)) for column in columns))
    return sheet


def shown(row: Mapping[str, Any], column: str) -> str:
    """One field; a message that has a body in place of a payload shows how long that is."""
    body = row.get("body") if column == "payload" else None
    return cell(row[column]) if body is None else f"<{cell(body)}>"


def counted(number: int, noun: str) -> str:
    """1 message, 2 messages."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def named(value: Any) -> Mapping[str, Any]:
    """The fields of an answer by name."""
    if isinstance(value, Mapping):
        return value
    return {field.name: getattr(value, field.name) for field in fields(value)}


def cell(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="seconds")
    if isinstance(value, timedelta):
        return span(value)
    if isinstance(value, bytes):
        return counted(len(value), "byte")
    return str(value) if isinstance(value, str | UUID) else json_text(value)


def json_text(value: Any) -> str:
    """A value as JSON, with every digit of its numbers, and with what Python could not read as it was."""
    texts: list[str] = []

    def stand_in(other: Any) -> str:
        if not isinstance(other, Decimal | UnreadableJson):
            raise TypeError(f"{type(other).__name__} is no value of JSON")
        texts.append(other.text if isinstance(other, UnreadableJson) else f"{other:f}")
        return f"\0{len(texts) - 1}"

    written = json.dumps(value, ensure_ascii=False, default=stand_in)
    return STAND_IN.sub(lambda found: texts[int(found[1])], written) if texts else written


def span(duration: timedelta) -> str:
    """A duration in its two largest units."""
    seconds = duration.total_seconds()
    for unit, size, smaller in (("d", 86400, 3600), ("h", 3600, 60), ("m", 60, 1)):
        if seconds >= size:
            less = {"d": "h", "h": "m", "m": "s"}[unit]
            return f"{int(seconds // size)}{unit} {int(seconds % size // smaller)}{less}"
    return f"{seconds:.1f}s"


def plain(value: Any, name: str = "") -> Any:
    """A value in JSON's own types; payloads, headers and configurations are so already.

    An origin is the engine's: the ids in it are ids.
    """
    if is_dataclass(value) and not isinstance(value, type | UnreadableJson):
        return plain(named(value))
    if isinstance(value, Mapping) and name in ("", "origin"):
        return {key: plain(field, key) for key, field in value.items()}
    if isinstance(value, datetime | UUID):
        return value.isoformat() if isinstance(value, datetime) else str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if name in BIG:
        return big(value)
    return value


def big(value: int | str | Iterable[int] | None) -> Any:
    """Ids and tokens as strings."""
    if value is None or isinstance(value, int | str):
        return None if value is None else str(value)
    return [str(number) for number in value]
