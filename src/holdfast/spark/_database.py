"""Connections to the database for calls, and errors of these and of ADBC, which show no URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as ArrowError
from psycopg import sql

from holdfast.client._errors import CODE_PREFIX, make_error, translated

from .options import Secret

CONNECT_TIMEOUT = 10  # seconds
SERVER_ERROR = re.compile(r"ERROR:  (.*)")


class DatabaseError(RuntimeError):
    """The database could not be reached, or refused something; the message has no secrets in it."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.sqlstate)


class LostConnectionError(DatabaseError):
    """The database could not be reached, or was lost on the way."""


def connect(url: Secret) -> psycopg.Connection[Any]:
    """A connection for calls: each is a transaction of its own."""
    return psycopg.connect(
        url.reveal(),
        autocommit=True,
        prepare_threshold=None,
        application_name="holdfast spark",
        connect_timeout=CONNECT_TIMEOUT,
    )


@contextmanager
def calls(url: Secret) -> Iterator[psycopg.Connection[Any]]:
    """A connection for some calls, closed after them."""
    with call_errors(url), connect(url) as connection:
        yield connection


@contextmanager
def call_errors(url: Secret) -> Iterator[None]:
    """Raise Holdfast's errors as such, and all others without secrets: those of calls."""
    try:
        with translated():
            yield
    except psycopg.OperationalError as error:
        raise LostConnectionError(url.redact(str(error)), error.sqlstate) from None
    except psycopg.Error as error:
        raise DatabaseError(url.redact(str(error)), error.sqlstate) from None


@contextmanager
def arrow_errors(url: Secret) -> Iterator[None]:
    """Raise Holdfast's errors as such, and all others without secrets: those of Arrow."""
    try:
        yield
    except ArrowError as error:
        raise _plain(error, url) from None
    except pa.ArrowException as error:
        # What goes wrong in the middle of an answer comes as text only.
        found = SERVER_ERROR.search(str(error))
        raise DatabaseError(url.redact(found[1] if found else str(error))) from None


def literal(value: Any) -> str:
    """A value as it is written in SQL."""
    return sql.Literal(value).as_string(None)


def _plain(error: ArrowError, url: Secret) -> Exception:
    pairs: Any = error.details  # bytes, whatever the types say
    found = {key.decode(): value.decode("utf-8", "replace") for key, value in pairs}
    code = error.sqlstate or ""
    message = found.get("PG_DIAG_MESSAGE_PRIMARY", str(error)).strip()
    detail, hint = found.get("PG_DIAG_MESSAGE_DETAIL"), found.get("PG_DIAG_MESSAGE_HINT")
    if code.startswith(CODE_PREFIX):
        return make_error(code, message.removesuffix(f" [{code}]"), detail, hint)
    # Of a connection that broke ADBC says only that input or output failed.
    kind = LostConnectionError if error.status_code.name in {"IO", "TIMEOUT"} else DatabaseError
    return kind(url.redact("\n".join(filter(None, [message, detail, hint]))), code or None)
