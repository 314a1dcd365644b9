"""What a pipeline is, and what it is given: the contract between the jobs and what runs them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from threading import Event
from typing import Any, ClassVar, Protocol, runtime_checkable

import psycopg
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark._database import calls
from holdfast.spark.options import Secret
from holdfast.spark.session import started_with

FORMAT = "holdfast"
PAGE = 1_000  # writes that are asked for at a time
FINGERPRINT_LENGTH = 20  # hexadecimal digits


class PipelineError(Exception):
    """A pipeline cannot go on; the message says why, and what to do."""


class Interrupted(KeyboardInterrupt):
    """The run was told to end. Not an Exception, so that nothing on its way takes it for a failure."""


class Pipeline(Protocol):
    """A job with its parameters: a frozen dataclass, whose fields are kept in the history of runs.

    Parameters are plain values (text, numbers, booleans, None, lists of them), and never secrets.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def run(self, run: Run) -> Mapping[str, Any]:
        """Do it, or with run.dry_run say what would be done; returns figures for people and the history."""
        ...


@runtime_checkable
class CheckedPipeline(Protocol):
    """A pipeline that can tell beforehand that it cannot work."""

    def check(self) -> None:
        """Refuse, with a PipelineError, what needs no Spark to be seen: nothing was started yet."""
        ...


@runtime_checkable
class ExclusivePipeline(Protocol):
    """A pipeline that must not run beside another of the same key: the second one is refused."""

    @property
    def exclusive(self) -> str:
        """What two runs must not do at once, such as the queue that both would archive."""
        ...


class Watcher(Protocol):
    """Is told how far a run is: the bar that people see, and the history."""

    def step(self, name: str) -> None:
        """A step begins; the one before it is over."""
        ...

    def advance(self, done: int, total: int | None) -> None:
        """So much of the step is done."""
        ...

    def note(self, text: str) -> None:
        """A remark for people."""
        ...


class Ending:
    """Whether a run was told to end, and whether it does so by itself."""

    def __init__(self) -> None:
        self.told = Event()
        self.by_itself = False


class Run:
    """One run of a pipeline: Spark, the database, and a way to say how far it is.

    Once it was told to end, its methods raise Interrupted: so a loop that says how far it is ends too.
    """

    def __init__(
        self,
        *,
        id: str,
        spark: SparkSession,
        url: Secret,
        dry_run: bool,
        watchers: tuple[Watcher, ...] = (),
        ending: Ending | None = None,
    ) -> None:
        self.id = id
        self.spark = spark
        self.url = url
        self.dry_run = dry_run
        self._watchers = watchers
        self._ending = ending or Ending()

    def messages(self, queue: str, **options: str) -> DataFrame:
        """The messages of a queue, by a batch read."""
        self.check()
        return self.spark.read.format(FORMAT).options(**self.database_option, **options).load(queue)

    def send(self, frame: DataFrame, queue: str, *, write_id: str, **options: str) -> None:
        """Send a frame to a queue, unless a write of this name was sent before."""
        self.check()
        writer = frame.write.format(FORMAT).mode("append").options(**self.database_option)
        writer.options(write_id=write_id, **options).save(queue)

    def writes(self, queue: str, prefix: str) -> dict[str, int]:
        """Writes that were sent to a queue, whose names begin so: how many messages each had."""
        found: dict[str, int] = {}
        with self.database() as connection:
            while page := connection.execute(
                "select write_id, messages from holdfast.writes(%s, %s, %s, %s)",
                [queue, prefix, PAGE, max(found, default="")],
            ).fetchall():
                found |= dict(page)
        return found

    def database(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A connection for some calls of SQL functions; each is a transaction of its own."""
        self.check()
        return calls(self.url)

    @property
    def database_option(self) -> Mapping[str, str]:
        """The option that a read or write needs: none, if Spark was started with this database."""
        return {} if started_with(self.url) else {"url": self.url.reveal()}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A part of the work that has a name."""
        self.check()
        for watcher in self._watchers:
            watcher.step(name)
        yield

    def advance(self, done: int, total: int | None = None) -> None:
        """So much of this step is done."""
        self.check()
        for watcher in self._watchers:
            watcher.advance(done, total)

    def note(self, text: str) -> None:
        """A remark for people."""
        for watcher in self._watchers:
            watcher.note(text)

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the run is told to end."""
        self._ending.told.wait(seconds)
        self.check()

    def check(self) -> None:
        """End here, if the run was told to. For loops that do nothing else with the run."""
        if self._ending.told.is_set() and not self._ending.by_itself:
            raise Interrupted

    @contextmanager
    def ends_by_itself(self) -> Iterator[Event]:
        """In here nothing is broken off: look at the event, and end in order once it is set."""
        self.check()
        self._ending.by_itself = True
        try:
            yield self._ending.told
        finally:
            self._ending.by_itself = False


def parameters(pipeline: Pipeline) -> dict[str, Any]:
    """What a pipeline was told, by name."""
    own: Any = pipeline
    return {field.name: getattr(own, field.name) for field in fields(own)}


def identity(pipeline: Pipeline, *more: str) -> str:
    """A name for this work that the same command gives again: for a write_id, or a folder to go on in.

    More: what decides too whether it is the same, such as the size and time of the files that are read.
    """
    return f"{pipeline.name}-{fingerprint(pipeline.name, parameters(pipeline), *more)}"


def fingerprint(*parts: Any) -> str:
    """A short text that is the same for the same parts, and for no others."""
    told = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(told.encode()).hexdigest()[:FINGERPRINT_LENGTH]
