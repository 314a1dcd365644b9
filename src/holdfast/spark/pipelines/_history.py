"""The history of runs: that one began, that it lives and how far it is, and how it ended."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from holdfast.client._errors import RunInProgressError
from holdfast.client._schema import check_schema
from holdfast.spark._access import explained
from holdfast.spark._database import DatabaseError, call_errors, calls, connect
from holdfast.spark._retry import retried
from holdfast.spark.options import Secret

from ._explain import explain
from ._pipeline import ExclusivePipeline, Interrupted, Pipeline, parameters

log = logging.getLogger("holdfast.spark")

BEAT_SECONDS = 3.0
REPORT = "select holdfast.report_run(%s, %s, %s, %s)"
# A run that was killed is lost ten seconds later: so long another is waited for, before it is in the way.
PATIENCE = 15.0
PAUSE = 0.5  # seconds
END_PATIENCE = 10.0  # seconds for a database that is away when the run ends


class History:
    """Writes one run down, in a thread beside it."""

    def __init__(self, url: Secret, pipeline: Pipeline, *, replaced: Callable[[], None]) -> None:
        self.figures: Mapping[str, Any] = {}
        self._url = url
        self._pipeline = pipeline
        self._replaced = replaced
        self._id: int | None = None
        self._progress: tuple[str | None, int | None, int | None] = (None, None, None)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="pipeline history", daemon=True)

    def begin(self, told: threading.Event) -> str:
        """Write down that the run begins; returns its id. A run in its way is waited for a bit."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self._id = self._begun()
                break
            except RunInProgressError:
                if time.monotonic() > deadline:
                    raise
            if told.wait(PAUSE):
                raise Interrupted
        self._thread.start()
        return str(self._id)

    def step(self, name: str) -> None:
        """A step begins."""
        self._progress = (name, None, None)

    def advance(self, done: int, total: int | None) -> None:
        """So much of it is done."""
        self._progress = (self._progress[0], done, total)

    def note(self, text: str) -> None:
        """Remarks are for those who watch."""

    def end(self, state: str, *, figures: Mapping[str, Any] | None = None, error: str | None = None) -> None:
        """Write down how the run ended. If the database cannot be reached, the run will show as lost."""
        self._over.set()
        try:
            retried(lambda: self._ended(state, figures, error), patience=END_PATIENCE)
        except DatabaseError as problem:
            log.warning("the end of run %s is not in the history: %s", self._id, problem)

    def __enter__(self) -> History:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._id is None:
            return
        if error is None:
            self.end("done", figures=self.figures)
        elif isinstance(error, Interrupted):
            self.end("interrupted")
        else:
            self.end("failed", error=self._url.redact(str(explain(error))))

    def _begun(self) -> int:
        own = self._pipeline
        key = own.exclusive if isinstance(own, ExclusivePipeline) else None
        with explained("begin_run"), calls(self._url) as connection:
            check_schema(connection)
            row = connection.execute(
                "select holdfast.begin_run(%s, %s, %s)", [own.name, stored(parameters(own)), key]
            ).fetchone()
        assert row is not None
        return int(row[0])

    def _ended(self, state: str, figures: Mapping[str, Any] | None, error: str | None) -> None:
        kept = None if figures is None else stored(figures)
        # One transaction: a report that is late finds the run over, and cannot set it back.
        with calls(self._url) as connection, connection.transaction():
            connection.execute(REPORT, [self._id, *self._progress])
            connection.execute("select holdfast.end_run(%s, %s, %s, %s)", [self._id, state, kept, error])

    def _beat(self) -> None:
        """Report until the run is over. A database that is away is asked again next time."""
        connection: psycopg.Connection[Any] | None = None
        while not self._over.wait(BEAT_SECONDS):
            with suppress(DatabaseError), call_errors(self._url):
                if connection is None or connection.closed:
                    connection = connect(self._url)
                row = connection.execute(REPORT, [self._id, *self._progress]).fetchone()
                if row == (False,) and not self._over.is_set():
                    self._replaced()
                    break
        if connection is not None:
            connection.close()


def stored(value: Mapping[str, Any]) -> Jsonb:
    """Plain JSON, as the database takes it: what JSON does not know as text, and no number as null."""
    return Jsonb(json.loads(json.dumps(value, default=str), parse_constant=lambda _: None))

