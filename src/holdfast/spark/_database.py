"""Connections to the database: psycopg for calls, ADBC for rows as Arrow. No error shows the URL."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import adbc_driver_postgresql.dbapi
import psycopg
import pyarrow as pa
from adbc_driver_manager import Error as ArrowError

from holdfast.client._errors import CODE_PREFIX, make_error, translated

from .options import Secret

T = TypeVar("T")

ATTEMPTS = 6
SERVER_ERROR = re.compile(r"ERROR:  (.*)")
FIRST_PAUSE = 0.5  # seconds; doubled each time


class DatabaseError(RuntimeError):
    """The database could not be reached, or refused something; the message has no secrets in it."""

    def __init__(self, message: str, sqlstate: str | None = None) -> None:
        super().__init__(message)
        self.sqlstate = sqlstate

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.sqlstate)


@contextmanager
def calls(url: Secret) -> Iterator[psycopg.Connection[Any]]:
    """A connection for calls: each is a transaction of its own."""
    try:
        with (
            psycopg.connect(
                url.reveal(), autocommit=True, prepare_threshold=None, application_name="holdfast spark"
            ) as connection,
            translated(),
        ):
            yield connection
    except psycopg.OperationalError as error:
        raise LostConnectionError(url.redact(str(error)), error.sqlstate) from None
    except psycopg.Error as error:
        raise DatabaseError(url.redact(str(error)), error.sqlstate) from None


class LostConnectionError(DatabaseError):
    """The database could not be reached, or was lost on the way."""


@contextmanager
def rows(url: Secret, *, autocommit: bool) -> Iterator[Any]:
    """A cursor that fetches and ingests Arrow."""
    with (
        arrow_errors(url),
        adbc_driver_postgresql.dbapi.connect(url.reveal(), autocommit=autocommit) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


@contextmanager
def arrow_errors(url: Secret) -> Iterator[None]:
    """Raise Holdfast's errors as such, and all others without secrets."""
    try:
        yield
    except ArrowError as error:
        raise _plain(error, url) from None
    except pa.ArrowException as error:
        # What goes wrong in the middle of an answer comes as text only.
        found = SERVER_ERROR.search(str(error))
        raise DatabaseError(url.redact(found[1] if found else str(error))) from None


def persistently(call: Callable[[], T]) -> T:
    """Call, and call again if the connection was lost: for what may safely be done twice."""
    pause = FIRST_PAUSE
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except LostConnectionError:
            time.sleep(pause)
            pause *= 2
    return call()


def _plain(error: ArrowError, url: Secret) -> Exception:
    pairs: Any = error.details  # bytes, whatever the types say
    found = {key.decode(): value.decode("utf-8", "replace") for key, value in pairs}
    code = error.sqlstate or ""
    message = found.get("PG_DIAG_MESSAGE_PRIMARY", str(error)).strip()
    detail, hint = found.get("PG_DIAG_MESSAGE_DETAIL"), found.get("PG_DIAG_MESSAGE_HINT")
    if code.startswith(CODE_PREFIX):
        return make_error(code, message.removesuffix(f" [{code}]"), detail, hint)
    return DatabaseError(url.redact("\n".join(filter(None, [message, detail, hint]))), code or None)
