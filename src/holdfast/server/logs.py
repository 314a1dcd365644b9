"""The log: a line for each request and for each thing worth telling, as JSON or as text, on stderr.

Nothing of what messages hold is logged: no bodies, queries, headers or keys, and of the database's errors not
what they quote.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

import msgspec
import psycopg

from .trouble import said
from .visit import current

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
QUIET = {"uvicorn": logging.WARNING, "psycopg.pool": logging.ERROR}  # the rest we say ourselves
QUOTING = "22"  # data exceptions: their messages quote the value

Problem = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

encode = msgspec.json.Encoder(enc_hook=str).encode


def configure(form: str, level: str, stream: TextIO | None = None) -> None:
    """Log to stderr from now on: in this process, everything that this program and its libraries say."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(max(least, root.level))
    # Looked up for each record, and shown in none.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False


class Lines(logging.Formatter):
    """What both formats have in common."""

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        """What a record says, by name."""
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        request: dict[str, Any] | None = getattr(record, "request", None)
        if request is not None:
            return fields | request
        fields["message"] = record.getMessage()
        if (visit := current.get()) is not None:
            fields |= visit.marks()
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return fields

    def formatException(self, ei: Problem) -> str:
        """A traceback, with the errors that led to it."""
        return "".join(told(ei[1])).rstrip() if ei[1] is not None else ""


class JsonLines(Lines):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as JSON."""
        return encode(self.fields(record)).decode()


class TextLines(Lines):
    """A line for people; a traceback follows on lines of its own."""

    def format(self, record: logging.LogRecord) -> str:
        """A record as text."""
        fields = self.fields(record)
        problem = fields.pop("traceback", None)
        head = [fields.pop(name) for name in ("time", "level", "logger")]
        head += [fields.pop("message")] if "message" in fields else []
        rest = [f"{name}={value}" for name, value in fields.items() if value is not None]
        return " ".join([*head, *rest]) + (f"\n{problem}" if problem else "")


def told(error: BaseException) -> Iterator[str]:
    """An error with where it came from, what led to it first."""
    if error.__cause__ is not None:
        yield from told(error.__cause__)
        yield "\nwhich led to:\n\n"
    yield from traceback.format_tb(error.__traceback__)
    yield f"{type(error).__module__}.{type(error).__qualname__}: {summary(error)}\n"


def summary(error: BaseException) -> str:
    """What an error says, without what may be part of a message."""
    if not isinstance(error, psycopg.Error):
        return str(error)
    code = error.sqlstate or "no SQLSTATE"
    return code if code.startswith(QUOTING) else f"{code} {said(error)}"
