"""What a pipeline is, and what it is given: the contract between the jobs and what runs them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol

import psycopg
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark._database import calls
from holdfast.spark.options import Secret

FORMAT = "holdfast"


class PipelineError(Exception):
    """A pipeline cannot go on; the message says why, and what to do."""


class Pipeline(Protocol):
    """A job with its parameters: a frozen dataclass, whose fields are kept in the history of runs.

    Parameters are plain values (text, numbers, booleans, None, lists of them), and never secrets.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    def run(self, run: Run) -> Mapping[str, Any]:
        """Do it, or with run.dry_run say what would be done; returns figures for people and the history."""
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


class Run:
    """One run of a pipeline: Spark, the database, and a way to say how far it is."""

    def __init__(
        self, *, id: str, spark: SparkSession, url: Secret, dry_run: bool, watchers: tuple[Watcher, ...] = ()
    ) -> None:
        self.id = id
        self.spark = spark
        self.url = url
        self.dry_run = dry_run
        self._watchers = watchers

    def messages(self, queue: str, **options: str) -> DataFrame:
        """The messages of a queue, by a batch read."""
        reader = self.spark.read.format(FORMAT).option("url", self.url.reveal())
        return reader.options(**options).load(queue)

    def send(self, frame: DataFrame, queue: str, *, write_id: str, **options: str) -> None:
        """Send a frame to a queue, unless a write of this name was sent before."""
        writer = frame.write.format(FORMAT).mode("append").option("url", self.url.reveal())
        writer.options(write_id=write_id, **options).save(queue)

    def database(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A connection for some calls of SQL functions; each is a transaction of its own."""
        return calls(self.url)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """A part of the work that has a name."""
        for watcher in self._watchers:
            watcher.step(name)
        yield

    def advance(self, done: int, total: int | None = None) -> None:
        """So much of this step is done."""
        for watcher in self._watchers:
            watcher.advance(done, total)

    def note(self, text: str) -> None:
        """A remark for people."""
        for watcher in self._watchers:
            watcher.note(text)
