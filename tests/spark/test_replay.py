"""Replay: messages of an archive or a lake, sent once more.

1. They are new messages with what they had, in the order of their ends, and with the origin that replay in
   SQL gives them. The archive stays as it is.
2. Each goes once: run again, killed in the middle, in the lake and in the archive, moved between the two.
3. In a queue with lines they stand in their lines, in order.
4. A dry run counts by queue and day, and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.client import NotAQueueError, QueueNotFoundError
from holdfast.spark.lake import SCHEMA
from holdfast.spark.options import Secret
from holdfast.spark.pipelines import replay as pipeline
from holdfast.spark.pipelines._needs import Ground, check_needs
from holdfast.spark.pipelines._pace import Pace
from holdfast.spark.pipelines._pieces import Pieces
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines.archive import Archive
from holdfast.spark.pipelines.replay import Replay
from tests.engine.engine import Engine, payloads
from tests.spark.conftest import STARTING, Start
from tests.spark.frames import read
from tests.spark.runs import Screen, a_run
from tests.waiting import eventually

pytestmark = pytest.mark.verify


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


@pytest.fixture
def kept(engine: Engine) -> Engine:
    """A queue `q` that keeps what is done, and a queue `out`."""
    engine.create("q", keep=["done", "discarded"])
    engine.create("out")
    return engine


def finish(engine: Engine, *, queue: str = "q") -> int:
    """Ack all that is ready, one claim after the other; returns how many."""
    done = 0
    while rows := engine.claim(100, queue=queue):
        engine.settle("ack", rows[0]["token"], queue=queue)
        done += len(rows)
    return done


def ended(engine: Engine, count: int) -> None:
    """So many messages that are done: 0, 1, 2 …, in this order."""
    engine.send_numbers(count)
    assert finish(engine) == count


def replayed(run: Run, **parameters: Any) -> dict[str, Any]:
    replay = Replay(**{"queues": ["q"], **parameters})
    replay.check()
    return dict(replay.run(run))


def lay_down(spark: SparkSession, url: str, lake: Path, condition: str = "true") -> None:
    """Copy messages of the archive of q into a lake, as the pipeline archive does."""
    rows = read(spark, url, state="archive", where=condition)
    own = {
        "outcome": F.col("state"),
        "root_id": F.col("id"),
        "order_no": F.lit(None).cast("bigint"),
        "idempotency_key": F.lit(None).cast("string"),
        "day": F.to_date("ended_at"),
    }
    frame = rows.withColumns(own).select(*SCHEMA.names)
    frame.write.partitionBy("queue", "day").mode("append").parquet(str(lake))


def staged(engine: Engine) -> int:
    return int(engine.look("select count(*) from holdfast.staged"))


def test_messages_go_once_more_in_the_order_of_their_ends(
    kept: Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(kept, 500)
    monkeypatch.setattr(pipeline, "ROWS", 150)
    monkeypatch.setattr(pipeline, "PIECE", 40)

    first, again = replayed(run, to="out"), replayed(run, to="out")

    assert (first["sent"], first["sent_before"], again["sent"], again["sent_before"]) == (500, 0, 0, 500)
    assert first["until"] == again["until"]
    assert payloads(kept.claim(1000, queue="out")) == list(range(500))
    assert kept.look("select count(*) from holdfast.archive") == 500
    assert (staged(kept), kept.look("select max(messages) from holdfast.write")) == (0, 40)


def test_a_message_is_what_replay_in_sql_makes_of_it(kept: Engine, run: Run) -> None:
    options: dict[str, Any] = {"headers": {"h": 1}, "tag": "t", "priority": 4, "content_type": "c"}
    kept.send({"a": 1}, key="k", max_deliveries=3, **options)
    kept.value("send", queue="q", body=b"\x00\x01")
    finish(kept)
    kept.create("other")

    replayed(run, to="out")
    kept.rows("replay", queue="q", target="other")

    ours, theirs = (
        sorted(kept.claim(10, queue=queue), key=lambda row: -row["priority"]) for queue in ("out", "other")
    )
    differ = {"id", "queue", "token", "deadline", "enqueued_at", "origin"}
    for one, other in zip(ours, theirs, strict=True):
        assert {name: one[name] for name in one if name not in differ} == {
            name: other[name] for name in other if name not in differ
        }
        assert told(one["origin"]) == told(other["origin"])
    assert (ours[0]["payload"], ours[0]["max_deliveries"], ours[1]["body"]) == ({"a": 1}, 3, b"\x00\x01")


def told(origin: dict[str, Any]) -> dict[str, Any]:
    """An origin, its times as times; when it was replayed does not count."""
    times = {name: datetime.fromisoformat(origin[name]) for name in ("ended_at", "sent_at", "enqueued_at")}
    return {name: value for name, value in (origin | times).items() if name != "replayed_at"}


def test_a_replay_of_a_replay_knows_its_root(kept: Engine, run: Run) -> None:
    root = kept.send(1)
    finish(kept)
    replayed(run)
    finish(kept)

    replayed(run, where="origin:replays::int = 1")

    origin = kept.claim_one()["origin"]
    assert (origin["root_id"], origin["replays"]) == (root, 2)


def test_a_range_an_outcome_and_a_condition_select(kept: Engine, run: Run) -> None:
    ended(kept, 10)
    kept.value("purge", queue="q", states=["ready"])
    middle = kept.look("select clock_timestamp()")
    kept.send_numbers(4)
    kept.row("purge", queue="q", states=["ready"])
    end = kept.look("select clock_timestamp()")

    assert replayed(run, to="out", until=middle.isoformat())["sent"] == 10
    assert replayed(run, to="out", since=middle.isoformat(), until=end.isoformat())["sent"] == 4
    assert replayed(run, to="out", outcomes=["discarded"])["sent"] == 4
    assert replayed(run, to="out", where="payload::int >= 2 and outcome = 'done'")["sent"] == 8


def test_what_is_in_the_lake_and_in_the_archive_goes_once(
    kept: Engine, spark: SparkSession, database_url: str, run: Run, tmp_path: Path
) -> None:
    ended(kept, 60)
    lake = tmp_path / "lake"
    lay_down(spark, database_url, lake, "payload::int < 40")
    kept.conn.execute("delete from holdfast.archive where payload::int < 20")

    figures = replayed(run, lake=str(lake), to="out")

    assert figures["sent"] == 60
    assert payloads(kept.claim(100, queue="out")) == list(range(60))


def test_what_was_moved_to_a_lake_that_is_not_named_is_told(
    spark: SparkSession, database_url: str, kept: Engine, tmp_path: Path
) -> None:
    ended(kept, 3)
    lake = tmp_path / "lake"
    screen = Screen()
    run = a_run(spark, database_url, dry_run=True, screen=screen)
    Archive(lake=str(lake)).run(a_run(spark, database_url))
    said = [f"3 messages of q were moved to file:{lake}: name it with --lake"]

    without, named = replayed(run, to="out"), replayed(run, to="out", lake=str(lake))

    assert (without["would_be_sent"], without["not_read"], screen.notes) == (0, said, said)
    assert (named["would_be_sent"], "not_read" in named) == (3, False)


def test_messages_of_a_queue_that_is_gone_come_from_the_lake(
    kept: Engine, spark: SparkSession, database_url: str, run: Run, tmp_path: Path
) -> None:
    ended(kept, 5)
    lay_down(spark, database_url, tmp_path / "lake")
    kept.value("drop_queue", queue="q")

    assert replayed(run, lake=str(tmp_path / "lake"), to="out")["sent"] == 5
    with pytest.raises(Exception, match='queue "q" does not exist'):
        replayed(run, to="out")


def test_what_moves_to_the_lake_between_two_runs_is_neither_lost_nor_sent_twice(
    kept: Engine,
    spark: SparkSession,
    database_url: str,
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended(kept, 200)
    lake = tmp_path / "lake"
    lay_down(spark, database_url, lake, "payload::int < 10")
    monkeypatch.setattr(pipeline, "PIECE", 30)
    real, steps = Pieces.send, iter(range(100))

    def dying(pieces: Pieces, piece: Any) -> int:
        if next(steps) == 3:
            raise KeyboardInterrupt
        return real(pieces, piece)

    monkeypatch.setattr(Pieces, "send", dying)
    with pytest.raises(KeyboardInterrupt):
        replayed(run, lake=str(lake), to="out")
    monkeypatch.setattr(Pieces, "send", real)
    lay_down(spark, database_url, lake, "payload::int >= 10 and payload::int < 150")
    kept.conn.execute("delete from holdfast.archive where payload::int < 150")
    monkeypatch.setattr(pipeline, "PIECE", 50)
    ended(kept, 1)

    figures = replayed(run, lake=str(lake), to="out", rate=1e9)

    assert (figures["sent_before"], figures["sent"]) == (90, 110)
    assert payloads(kept.claim(1000, queue="out")) == list(range(200))
    assert staged(kept) == 0


def test_lines_keep_their_order(engine: Engine, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    engine.create("q", ordering="key", keep=["done", "discarded"])
    engine.create("strict", ordering="strict")
    for n in range(120):
        engine.send(n, ordering_key=f"line {n % 5}", priority=n % 3)
    for _ in range(10):
        rows = engine.claim(100)
        engine.settle("ack", rows[0]["token"])
    engine.row("purge", queue="q", states=["ready", "blocked"])
    monkeypatch.setattr(pipeline, "PIECE", 17)

    figures = replayed(run)
    replayed(run, to="strict", where="ordering_key = 'line 3'")

    assert figures["sent"] == 120
    lines: dict[str, list[int]] = {}
    while rows := engine.claim(100):
        for row in rows:
            lines.setdefault(row["ordering_key"], []).append(row["payload"])
        engine.settle("ack", rows[0]["token"])
    assert lines == {f"line {k}": list(range(k, 120, 5)) for k in range(5)}
    found = []
    while rows := engine.claim(1, queue="strict"):
        found += payloads(rows)
        engine.settle("ack", rows[0]["token"], queue="strict")
    assert found == lines["line 3"]


def test_several_queues_go_back_to_themselves_or_together(kept: Engine, run: Run) -> None:
    kept.create("r", keep=["done"])
    ended(kept, 3)
    kept.send_numbers(2, queue="r")
    finish(kept, queue="r")

    figures = replayed(run, queues=["q", "r"])
    depths = [kept.stats(queue)["depth"] for queue in ("q", "r")]
    together = replayed(run, queues=["q", "r"], to="out")

    assert (figures["to"], figures["sent"], depths) == ("q, r", 5, [3, 2])
    assert together["sent"] == 5
    assert payloads(kept.claim(10, queue="out")) == [0, 1, 2, 0, 1]


def test_killed_in_the_middle_and_run_again_nothing_is_lost_and_nothing_goes_twice(
    kept: Engine, run: Run, start: Start
) -> None:
    ended(kept, 600)

    killed = start("command", "replay", "--queue", "q", "--to", "out", "--rate", "60")
    eventually(lambda: kept.stats("out")["depth"] > 0, what="some are sent", timeout=STARTING)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    before = kept.stats("out")["depth"]
    ended(kept, 1)
    figures = replayed(run, to="out")

    assert 0 < before < 600
    assert (figures["sent_before"], figures["sent"]) == (before, 600 - before)
    assert Counter(payloads(kept.claim(1000, queue="out"))) == Counter(range(600))


def test_a_name_is_what_a_replay_is_known_by(kept: Engine, run: Run) -> None:
    ended(kept, 3)
    kept.row("send_staged", queue="out", write_id="a/64-1/000001", stages=[], messages=0)

    sent = [replayed(run, to="out", write_id=name)["sent"] for name in ("a", "a", "b")]

    assert sent == [3, 0, 3]


def test_a_dry_run_counts_by_queue_and_day_and_leaves_nothing(
    kept: Engine, spark: SparkSession, database_url: str
) -> None:
    ended(kept, 12)
    moved = "update holdfast.archive set ended_at = case when payload::int < 5 then {} else {} end"
    days = ("timestamptz '2019-12-31 23:59Z'", "timestamptz '2020-01-01 00:00Z'")
    kept.conn.execute(moved.format(*days).encode())
    past = {"since": "2019-12-31T00:00:00+00:00", "until": "2020-01-02T00:00:00+00:00"}
    run = a_run(spark, database_url, dry_run=True)

    figures = replayed(run, to="out", **past)

    assert figures["would_be_sent"] == 12
    assert figures["days"] == {"q": {"2019-12-31": 5, "2020-01-01": 7}}
    assert (kept.stats("out")["depth"], kept.look("select count(*) from holdfast.write")) == (0, 0)
    with pytest.raises(PipelineError, match="expected a time that has passed"):
        replayed(run, to="out", until=(datetime.now(UTC) + timedelta(days=1)).isoformat())


def test_it_goes_no_faster_than_it_should_and_tells_how_far_it_is(
    spark: SparkSession, database_url: str, kept: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(kept, 25)
    screen = Screen()
    pauses: list[float] = []
    run = a_run(spark, database_url, screen=screen)
    monkeypatch.setattr(run, "pause", pauses.append)
    # A clock that stands still: the work itself takes no time, however busy the machine is.
    monkeypatch.setattr(pipeline, "Pace", lambda rate: Pace(rate, lambda: 100.0))

    replayed(run, to="out", rate=10)

    assert screen.steps == ["reading what ended in q", "sending to out"]
    assert screen.advances == [(10, 25), (20, 25), (25, 25)]
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"queues": []}, "got no queue; expected --queue"),
        ({"outcomes": ["gone"]}, "--outcome: got gone; expected one of done, expired, failed, discarded"),
        ({"since": "yesterday"}, "got 'yesterday'; expected a time"),
        ({"since": "2030-01-02", "until": "2030-01-01"}, "--until: got 2030-01-01; expected a time after"),
        ({"rate": -1.0}, "--rate: got -1"),
        ({"write_id": "x" * 101}, "--write-id: expected 1 to 100 characters"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_without_spark(
    parameters: dict[str, Any], message: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        Replay(**{"queues": ["q"], **parameters}).check()

    assert message in str(refused.value)


def test_what_is_not_there_is_named(kept: Engine, run: Run) -> None:
    kept.create("log", kind="log")
    ended(kept, 1)

    with pytest.raises(QueueNotFoundError):
        replayed(run, to="nowhere")
    with pytest.raises(NotAQueueError):
        replayed(run, to="log")
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        replayed(run, to="out", where="nothing = 1")

    assert staged(kept) == 0


def test_what_it_needs_is_looked_for_before_spark_starts(
    kept: Engine, database_url: str, tmp_path: Path
) -> None:
    kept.create("log", kind="log")
    ground = Ground(Secret(database_url))

    check_needs(Replay(queues=["gone"], to="out", lake=str(tmp_path)).needs, ground)
    for replay, refusal in (
        (Replay(queues=["gone"], to="out"), QueueNotFoundError),
        (Replay(queues=["q"], to="gone"), QueueNotFoundError),
        (Replay(queues=["q"], to="log"), NotAQueueError),
        (Replay(queues=["q"], lake=str(tmp_path / "none")), PipelineError),
    ):
        with pytest.raises(refusal):
            check_needs(replay.needs, ground)
    assert kept.stats("out")["depth"] == 0
