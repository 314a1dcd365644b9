"""The pipeline replay: ended messages of an archive or a lake are sent once more, each once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.sql import DataFrame

from holdfast.spark._database import DatabaseError
from holdfast.spark.lake import read_lake
from holdfast.spark.options import Options, Use
from holdfast.spark.transforms import replay as transforms

from ._moved import Moved, lakes, moved, not_read
from ._needs import Finds, Need, Reads, Replays
from ._pace import Pace, check_rate
from ._pieces import Pieces, is_piece, spot_of
from ._pipeline import PipelineError, Run, fingerprint

OUTCOMES = ("done", "expired", "failed", "discarded")
PIECE = 10_000  # messages that go in one transaction
ROWS = 50_000  # messages that a task stages
FEW = 100  # as many at least
AHEAD = 3600.0  # seconds: so much is staged at most, at the rate that was asked for
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_NAME = 100  # characters of a write_id: pieces add their places


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Ended messages of some queues, to these queues or to another."""

    name: ClassVar[str] = "replay"
    summary: ClassVar[str] = "Messages of an archive or a lake, sent once more, each once"

    queues: list[str]
    to: str | None = None
    lake: str | None = None
    since: str | None = None
    until: str | None = None
    outcomes: list[str] = field(default_factory=list)
    where: str | None = None
    rate: float | None = None
    write_id: str | None = None

    @property
    def exclusive(self) -> str:
        """Pieces of one replay go one after the other."""
        return self.identity

    @property
    def identity(self) -> str:
        """The same for the same messages and target, however fast they go."""
        if self.write_id is not None:
            return self.write_id
        which = [sorted(set(self.queues)), self.lake, self.since, self.until]
        return f"replay-{fingerprint(self.to, which, sorted(self.outcomes), self.where)}"

    def check(self) -> None:
        """Refuse parameters that make no sense."""
        check_rate(self.rate)
        if not self.queues:
            raise PipelineError("got no queue; expected --queue")
        for outcome in self.outcomes:
            if outcome not in OUTCOMES:
                raise PipelineError(f"--outcome: got {outcome}; expected one of {', '.join(OUTCOMES)}")
        since, until = moment(self.since), moment(self.until)
        if since and until and since >= until:
            raise PipelineError(f"--until: got {self.until}; expected a time after --since")
        if self.write_id is not None and not 1 <= len(self.write_id) <= LONGEST_NAME:
            raise PipelineError(f"--write-id: expected 1 to {LONGEST_NAME} characters")

    @property
    def needs(self) -> Sequence[Need]:
        """The lake, or the queues that they ended in; and those that they go to."""
        sources: list[Need] = [Reads(queue, "archive") for queue in self.queues]
        lake = [] if self.lake is None else [Finds(self.lake)]
        return [*(lake or sources), *(Replays(target) for target, _ in self._ways)]

    @property
    def _ways(self) -> list[tuple[str, list[str]]]:
        """Which queue gets messages of which."""
        queues = list(dict.fromkeys(self.queues))
        return [(self.to, queues)] if self.to else [(queue, [queue]) for queue in queues]

    def run(self, run: Run) -> Mapping[str, Any]:
        """Find them, put them in order, and send them piece by piece."""
        ways = self._ways
        missed = self._missed(run)
        done = [Work(self, run, target, sources).outcome() for target, sources in ways]
        told = {name: sum(each[name] for each in done) for name in done[0] if name not in ("days", "until")}
        if run.dry_run:
            told["days"] = {queue: days for each in done for queue, days in each["days"].items()}
        span = {"since": self.since, "until": max(each["until"] for each in done)}
        to = ", ".join(target for target, _ in ways)
        return {"to": to, **span, **told, **not_read(missed), "write_id": self.identity}

    def _missed(self, run: Run) -> Sequence[Moved]:
        """What has left for a lake that was not named; those who watch are told."""
        read = lakes(run.spark, self.lake)
        with run.database() as connection:
            found = moved(connection, self.queues, moment(self.since), moment(self.until), read=read)
        for each in found:
            run.note(str(each))
        return found


class Work:
    """What goes to one queue."""

    def __init__(self, replay: Replay, run: Run, target: str, queues: Sequence[str]) -> None:
        self._replay = replay
        self._run = run
        self._target = target
        self._queues = queues
        found = run.writes(target, f"{replay.identity}/")
        self._sent = {name: count for name, count in found.items() if is_piece(name, replay.identity)}
        self._until = self._end()
        self._prefix = f"{replay.identity}/{micros(self._until):017}"

    def outcome(self) -> dict[str, Any]:
        """Send what was not sent before, or say what that is."""
        before = {"until": self._until.isoformat(), "sent_before": sum(self._sent.values())}
        with self._run.step(f"reading what ended in {', '.join(self._queues)}"), self._left() as left:
            days = transforms.by_day(left).collect()
            total = sum(row.messages for row in days)
            if self._run.dry_run:
                return {**before, "would_be_sent": total, "days": _nested(days)}
            return {**before, "sent": self._replayed(left, total) if total else 0}

    def _end(self) -> datetime:
        """Where the range ends: as was said, else where it ended in the first run, else now."""
        said = moment(self._replay.until)
        if said is None and self._sent:
            name = max(self._sent).removeprefix(f"{self._replay.identity}/")
            return EPOCH + timedelta(microseconds=int(name.partition("/")[0]))
        with self._run.database() as connection:
            (found,) = connection.execute("select holdfast.now()").fetchall()
        now: datetime = found[0].astimezone(UTC)
        if said is not None and said > now:
            raise PipelineError(f"--until: got {self._replay.until}; expected a time that has passed")
        return said or now

    @contextmanager
    def _left(self) -> Iterator[DataFrame]:
        """The messages that are left to be sent, read once."""
        spot = spot_of(max(self._sent)) if self._sent else None
        with self._ended() as ended:
            replay = self._replay
            found = transforms.selected(ended, replay.outcomes, replay.where)
            left = transforms.behind(transforms.placed(transforms.once(found)), spot).persist()
            try:
                yield left
            finally:
                left.unpersist()

    @contextmanager
    def _ended(self) -> Iterator[DataFrame]:
        archive = [transforms.archived(self._archive(queue), most) for queue, most in self._known()]
        if self._replay.lake is None:
            yield transforms.together(archive)
            return
        kept = [each.persist() for each in archive]
        try:
            # Messages move from the archive to the lake: read in this order, none is missed between them.
            for each in kept:
                each.count()
            since = moment(self._replay.since)
            lake = read_lake(
                self._run.spark, self._replay.lake, queues=self._queues, since=since, until=self._until
            )
            yield transforms.together([*kept, transforms.stored(lake)])
        finally:
            for each in kept:
                each.unpersist()

    def _known(self) -> list[tuple[str, int | None]]:
        """The queues that are there, and how often each delivers. A lake may have messages of others."""
        with self._run.database() as connection:
            found = connection.execute(
                "select queue, (effective ->> 'max_deliveries')::int from holdfast.queues()"
            ).fetchall()
        known = dict(found)
        return [(name, known.get(name)) for name in self._queues if name in known or not self._replay.lake]

    def _archive(self, queue: str) -> DataFrame:
        span = {"until": self._until.isoformat()}
        if since := moment(self._replay.since):
            span["since"] = since.isoformat()
        return self._run.messages(queue, state="archive", columns=",".join(transforms.READ), **span)

    def _replayed(self, left: DataFrame, total: int) -> int:
        pace = Pace(self._replay.rate)
        options = Options.parse({"url": self._run.url.reveal(), "queue": self._target}, Use.WRITE)
        pieces = Pieces(options, self._prefix, uuid4().hex, pace.size(PIECE))
        rows = self._rows
        count = -(-total // rows)
        sent = 0
        try:
            with self._run.step(f"sending to {self._target}"):
                planned = pieces.planned(transforms.messages(left, count))
                staged = (pieces.stage(planned, wave) for wave in self._waves(count, rows))
                for piece in chain.from_iterable(staged):
                    sent += pieces.send(piece)
                    self._run.advance(sent, total)
                    if sent < total:
                        self._run.pause(pace.wait(piece.messages))
        finally:
            with suppress(DatabaseError):
                pieces.drop()
        return sent

    @property
    def _rows(self) -> int:
        """How many messages a task stages: not more than a minute's."""
        rate = self._replay.rate
        return ROWS if rate is None else max(FEW, min(ROWS, int(rate * 60)))

    def _waves(self, count: int, rows: int) -> list[range]:
        """Partitions that are staged at a time: as Spark has hands for, and not too long ahead."""
        size = 2 * self._run.spark.sparkContext.defaultParallelism
        if self._replay.rate is not None:
            size = max(1, min(size, int(self._replay.rate * AHEAD / rows)))
        return [range(first, min(first + size, count)) for first in range(0, count, size)]


def moment(text: str | None) -> datetime | None:
    """A time of the command line."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise PipelineError(f"got {text!r}; expected a time such as 2030-01-31T12:00:00Z") from None


def micros(time: datetime) -> int:
    """Microseconds since 1970."""
    return (time - EPOCH) // timedelta(microseconds=1)


def _nested(days: Sequence[Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for row in days:
        found.setdefault(row.queue, {})[row.day] = row.messages
    return found
