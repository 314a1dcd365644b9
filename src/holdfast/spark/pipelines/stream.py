"""The pipeline stream: a queue, as it is filled, through a transform, to a queue, a folder or a table."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from socket import gethostname
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.spark._claims import Claims, Place
from holdfast.spark._database import DatabaseError
from holdfast.spark._table import MissingTableError
from holdfast.spark.options import OptionError, Options, Use
from holdfast.spark.stream import stream_columns
from holdfast.spark.transforms.stream import counted, through_sql

from ._call import called, found
from ._needs import Fills, Need, Reads, Sends
from ._pipeline import FORMAT, PipelineError, Run
from ._progress import Progress, Teller
from ._sample import sample
from ._sinks import sink_of
from .function import is_folder

WAITING = "select ready + blocked from holdfast.queue_stats(%s)"
TRIED = 1_000  # messages from which a dry run takes the rows that it shows
POLL_SECONDS = 0.2
PAUSE = 0.02  # seconds, while the last batch is waited for
LISTENING = 10.0  # seconds for what Spark has still to tell
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
OUTPUT_MODES = ("append", "update", "complete")
OURS = frozenset({"url", "queue", "path", "mode", "max_messages", "lease", "stop_file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream read, a transform, and a stream write."""

    name: ClassVar[str] = "stream"
    summary: ClassVar[str] = "A queue as a stream, through SQL or a function, to a queue, folder or table"

    source: str
    checkpoint: str
    to: str | None = None
    to_table: str | None = None
    mode: str = "consume"
    sql: str | None = None
    function: str | None = None
    once: bool = False
    trigger: float | None = None  # seconds
    output_mode: str = "append"
    key: list[str] = field(default_factory=list)
    max_messages: int | None = None
    lease: float | None = None  # seconds
    payload_schema: str | None = None
    options: dict[str, str] = field(default_factory=dict)

    @property
    def exclusive(self) -> str:
        """A checkpoint is for one query at a time. Paths without a scheme are those of this machine."""
        if "://" in self.checkpoint:
            return f"stream {self.checkpoint}"
        return f"stream {gethostname()} {Path(self.checkpoint).absolute()}"

    @property
    def needs(self) -> Sequence[Need]:
        """The source, and the queue or the table, if it goes to one."""
        source = Reads(self.source, self.state)
        if self.to_table:
            return [source, Fills(self.to_table)]
        return [source, Sends(self.to)] if self.to and not is_folder(self.to) else [source]

    @property
    def state(self) -> str:
        """The state of messages that the stream reads, as a batch read calls it."""
        if self.mode == "consume":
            return "ready"
        return "archive" if self.parsed("unknown").state == "archive" else "log"

    @property
    def target(self) -> str:
        """Where the rows go, in words."""
        return f"table {self.to_table}" if self.to_table else str(self.to)

    def check(self) -> None:
        """Refuse parameters that contradict one another, and a function that is not there."""
        _refuse_all_but_one({"--to": self.to, "--to-table": self.to_table})
        if self.sql is not None and self.function is not None:
            raise PipelineError("got --sql and --function; expected one of them, or none")
        if self.once and self.trigger is not None:
            raise PipelineError("got --once and --trigger; expected one of them")
        if self.output_mode not in OUTPUT_MODES:
            raise PipelineError(f"--output-mode: got {self.output_mode}; expected {', '.join(OUTPUT_MODES)}")
        if self.key and self.to_table is None:
            raise PipelineError("--key: got it without --to-table; expected a table, whose rows have a key")
        if taken := sorted(OURS & {name.lower() for name in self.options}):
            raise PipelineError(f"--option: got {taken[0]}, which has an option of its own, or none")
        if self.function is not None:
            found(self.function)
        self.parsed("unknown")

    def parsed(self, url: str) -> Options:
        """The options of the stream, checked."""
        try:
            return Options.parse({"url": url, "queue": self.source, **self.read_options()}, Use.READ_STREAM)
        except OptionError as error:
            raise PipelineError(str(error)) from None

    def read_options(self) -> dict[str, str]:
        """The options of the stream, as Spark is told them."""
        options = {"mode": self.mode, **self.options}
        if self.max_messages is not None:
            options["max_messages"] = str(self.max_messages)
        if self.lease is not None:
            options["lease"] = f"{self.lease} s"
        if self.payload_schema is not None:
            options["payload_schema"] = self.payload_schema
        return options

    def run(self, run: Run) -> Mapping[str, Any]:
        """Plan it; then stream until there is no more, or until told to end."""
        with TemporaryDirectory(prefix="holdfast-stream-") as folder:
            streaming = Streaming(self, run, Path(folder) / "stop")
            with run.step("planning"):
                frame = streaming.planned()
            return streaming.previewed(frame) if run.dry_run else streaming.done(frame)


class Streaming:
    """One run of a stream. The file `stop`, once it is there, ends it after the batch that is under way."""

    def __init__(self, stream: Stream, run: Run, stop: Path) -> None:
        self._stream = stream
        self._run = run
        self._stop = stop
        self._session = _prepared(run.spark)
        self._sink = sink_of(
            run, to=stream.to, table=stream.to_table, key=stream.key, output_mode=stream.output_mode
        )
        self._progress = Progress()
        self._first: dict[str, str | None] = {}  # what has to be done before a run, for those who try it

    def planned(self) -> DataFrame:
        """The rows that go to the sink, which takes them."""
        stream = self._stream
        options = {**self._run.database_option, **stream.read_options(), "stop_file": str(self._stop)}
        messages = self._session.readStream.format(FORMAT).options(**options).load(stream.source)
        frame = self._transformed(messages)
        if not frame.isStreaming:
            raise PipelineError("the transform reads no messages; expected it to, from the view messages")
        try:
            self._sink.check(frame.schema, stream.checkpoint)
        except MissingTableError as error:
            if not self._run.dry_run:
                raise
            self._first = {"make_first": error.statement}
        return frame

    def previewed(self, frame: DataFrame) -> Mapping[str, Any]:
        """What would be written, shown on messages that are there. Nothing is claimed."""
        stream = self._stream
        with self._run.step("trying it on some messages"):
            rows = sample(self._transformed(self._waiting()))
        return {
            "from": stream.source,
            "to": stream.target,
            "schema": frame.schema.simpleString(),
            **self._first,
            "sample": rows,
        }

    def done(self, frame: DataFrame) -> Mapping[str, Any]:
        """Stream; returns figures."""
        stream, run, progress = self._stream, self._run, self._progress
        with run.step(f"streaming {stream.source} to {stream.target}"), run.ends_by_itself() as told:
            with self._heard(), self._started(frame) as query:
                self._attend(query, told)
                progress.await_end(LISTENING)
            self._ack_last()
            self._sink.close()
        figures = {"batches": progress.batches, "messages": progress.messages, "rows": progress.rows}
        return {"from": stream.source, "to": stream.target, **figures, "query_id": str(query.id)}

    def _transformed(self, messages: DataFrame) -> DataFrame:
        if self._stream.function is not None:
            return called(found(self._stream.function), messages, self._stream.function)
        return messages if self._stream.sql is None else through_sql(messages, self._stream.sql)

    def _waiting(self) -> DataFrame:
        """Some messages as the stream would have them, by a batch read."""
        parsed = self._stream.parsed(self._run.url.reveal())
        options = {"state": self._stream.state, "columns": ",".join(parsed.columns or stream_columns(parsed))}
        given = self._stream.read_options()
        options |= {name: given[name] for name in given if name.startswith("payload")}
        reader = self._session.read.format(FORMAT).options(**self._run.database_option, **options)
        return reader.load(self._stream.source).limit(TRIED)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        self._session.streams.addListener(self._progress)
        try:
            yield
        finally:
            self._session.streams.removeListener(self._progress)

    @contextmanager
    def _started(self, frame: DataFrame) -> Iterator[StreamingQuery]:
        """The query; broken off if it has not ended by then."""
        stream = self._stream
        writer = self._sink.writer(counted(frame)).outputMode(stream.output_mode)
        writer = writer.option("checkpointLocation", stream.checkpoint)
        if stream.once:
            writer = writer.trigger(availableNow=True)
        elif stream.trigger is not None:
            writer = writer.trigger(processingTime=f"{round(stream.trigger * 1000)} milliseconds")
        self._sink.take(stream.checkpoint)
        query = writer.start()
        try:
            yield query
        finally:
            query.stop()

    def _attend(self, query: StreamingQuery, told: Event) -> None:
        """Stay until the query ends. Told to end, it may finish its batch: later ones are empty."""
        teller = Teller(self._run, self._progress, self._waits)
        while query.isActive and not told.wait(POLL_SECONDS):
            teller.tell()
        if told.is_set():
            self._stop.touch()
            while query.isActive and query.status["isTriggerActive"]:
                self._run.check()
                time.sleep(PAUSE)
        if (error := query.exception()) is not None:
            raise error
        query.stop()

    def _waits(self) -> int | None:
        """How many messages wait, as far as that is known: a database that is away ends no stream."""
        if self._stream.mode != "consume":
            return None
        with suppress(DatabaseError), self._run.database() as connection:
            for (waiting,) in connection.execute(WAITING, [self._stream.source]):
                return int(waiting)
        return None

    def _ack_last(self) -> None:
        """Ack the last batch, which Spark's commit log has: the source may not have been asked after it."""
        if self._stream.mode != "consume":
            return
        options = self._stream.parsed(self._run.url.reveal())
        claims = Claims(url=options.url, queue=options.queue, lease=f"{options.lease} s")
        with closing(claims):
            for offset in self._progress.offsets:
                # A transform may read other streams too, whose offsets are not ours.
                with suppress(OptionError):
                    place = Place.parse(offset, options.queue)
                    claims.attempt(partial(claims.ack, place), patience=options.retry_for)


def _prepared(spark: SparkSession) -> SparkSession:
    """A session of its own: for the view, and for state that may grow beyond memory."""
    own = spark.newSession()
    if not spark.sparkContext.getConf().contains(PROVIDER):
        own.conf.set(PROVIDER, ROCKSDB)
    return own


def _refuse_all_but_one(given: Mapping[str, str | None]) -> None:
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        raise PipelineError(f"got {' and '.join(named) or 'no target'}; expected one of {', '.join(given)}")
