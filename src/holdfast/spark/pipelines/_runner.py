"""Running a pipeline: in a thread of its own, so that whoever waits for it stays free to break it off."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from holdfast.spark.options import URL_SETTING, Secret
from holdfast.spark.session import make_session

from ._history import History
from ._needs import Ground, NeedyPipeline, check_needs
from ._pipeline import CheckedPipeline, Ending, Interrupted, Pipeline, PipelineError, Run, Watcher
from ._tasks import Tasks

OpenSession = Callable[[], AbstractContextManager[SparkSession]]


class Display(Watcher, Protocol):
    """What people see: a Watcher that is told of Spark's own progress too."""

    def tasks(self, done: int, total: int) -> None:
        """So many tasks of the stages under way are done; 0 of 0: none is under way."""
        ...


class Runner:
    """One run of a pipeline. A dry run is not in the history: it changes nothing."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        url: Secret,
        session: OpenSession,
        display: Display,
        dry_run: bool = False,
        local_files: bool = True,
    ) -> None:
        self.id = f"dry-{uuid4().hex}" if dry_run else ""
        self._pipeline = pipeline
        self._url = url
        self._session = session
        self._display = display
        self._dry_run = dry_run
        self._ground = Ground(url, local_files, dry_run)
        self._history = History(url, pipeline, replaced=self._give_way)
        self._ending = Ending()
        self._replaced = False
        self._spark: SparkSession | None = None
        self._figures: Mapping[str, Any] | None = None
        self._error: BaseException | None = None
        # Spark takes over Ctrl-C if it is started in the main thread.
        self._thread = threading.Thread(target=self._work, name="pipeline", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait for the end at most so long; says whether it has come."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def interrupt(self, *, now: bool = False) -> None:
        """Tell the run to end; what Spark is doing for it is broken off, unless it ends by itself.

        To be repeated until it has ended: a job may begin just after the others were cancelled.
        """
        if now:
            self._ending.by_itself = False
        self._ending.told.set()
        if self._spark is not None and not self._ending.by_itself:
            _cancel(self._spark, self._group)

    def abandon(self) -> None:
        """Wait no longer for a run that was told to end: it has not ended, but counts as interrupted."""
        if self.id and not self._dry_run:
            self._history.end("interrupted")

    @property
    def ends_by_itself(self) -> bool:
        """Whether the run, once told to end, does so by itself."""
        return self._ending.by_itself

    def result(self) -> Mapping[str, Any]:
        """The figures of a run that has ended, or the error that ended it."""
        if self._error is not None:
            raise self._error
        if self._figures is None:
            raise Interrupted
        return self._figures

    @property
    def _group(self) -> str:
        return f"holdfast pipeline {self._pipeline.name} {self.id}"

    def _work(self) -> None:
        try:
            self._check()
            if self._dry_run:
                self._figures = self._done(self._display)
            else:
                self._figures = self._recorded()
        except BaseException as error:  # for whoever waits: a thread has nobody to raise it to
            self._error = error

    def _check(self) -> None:
        """Refuse what cannot work, before Spark starts."""
        if isinstance(self._pipeline, CheckedPipeline):
            self._pipeline.check()
        if isinstance(self._pipeline, NeedyPipeline):
            check_needs(self._pipeline.needs, self._ground)

    def _recorded(self) -> Mapping[str, Any]:
        with self._history as history:
            self._display.step("beginning")
            self.id = history.begin(self._ending.told)
            history.figures = self._done(self._display, history)
            return history.figures

    def _done(self, *watchers: Watcher) -> Mapping[str, Any]:
        try:
            for watcher in watchers:
                watcher.step("starting Spark")
            with self._session() as spark, self._watched(spark):
                return self._pipeline.run(self._run(spark, watchers))
        except (Exception, Interrupted) as error:
            # What is cancelled fails in many ways.
            if self._replaced:
                raise PipelineError(
                    "the database had not heard of this run for a while, and another took its place"
                ) from error
            if self._ending.told.is_set():
                raise Interrupted from error
            raise

    @contextmanager
    def _watched(self, spark: SparkSession) -> Iterator[None]:
        """Jobs of this thread belong to the run, and Spark's progress is shown."""
        self._spark = spark
        spark.sparkContext.setJobGroup(self._group, self._pipeline.summary, interruptOnCancel=True)
        try:
            with Tasks(spark, self._display.tasks):
                yield
        finally:
            self._spark = None

    def _run(self, spark: SparkSession, watchers: tuple[Watcher, ...]) -> Run:
        return Run(
            id=self.id,
            spark=spark,
            url=self._url,
            dry_run=self._dry_run,
            watchers=watchers,
            ending=self._ending,
        )

    def _give_way(self) -> None:
        self._replaced = True
        self.interrupt(now=True)


def own_session(
    name: str, *, url: Secret, master: str | None, settings: Mapping[str, str], quiet: bool
) -> OpenSession:
    """A Spark of its own, which ends with the run."""

    @contextmanager
    def opened() -> Iterator[SparkSession]:
        told = {**settings, URL_SETTING: url.reveal()}
        spark = make_session(f"holdfast {name}", master=master, settings=told, quiet=quiet)
        try:
            yield spark
        finally:
            spark.stop()

    return opened


def _cancel(spark: SparkSession, group: str) -> None:
    try:
        for query in spark.streams.active:
            query.stop()
        spark.sparkContext.cancelJobGroup(group)
    except (Py4JError, OSError):
        # Spark has ended by itself in the meantime.
        return
