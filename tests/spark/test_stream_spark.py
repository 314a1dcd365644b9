"""Streams in Spark itself: consumed, tailed, written; and killed.

1. A drain takes every message once, and leaves the queue empty and acked; payloads come as the schema says.
2. A stream into a queue sends each batch once, also if the query is started again.
3. A tail of a log takes each record once, over restarts.
4. A query that is stopped leaves no process behind that holds on to messages.
5. kill -9 of the JVM when rows are staged, after the sink's commit, between claim and offset log: after a
   restart every message is in the target exactly once.
6. A stream that sleeps through its lease loses nothing, and takes nothing from whoever has the messages now.
7. A crash of PostgreSQL in the middle of a batch loses nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from holdfast.database import URL_VARIABLE
from holdfast.embedded import temporary_postgres
from holdfast.migrate import migrate
from tests.engine.engine import Engine
from tests.fault.servers import DURABLE, kill_server
from tests.spark.streamer import FATE, LEASE, NOTE
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
STARTING = 120.0  # seconds for a process with Spark to do its work
MESSAGES = 1200  # three batches


def consumed(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.readStream.format("holdfast").options(url=url, queue="q", mode="consume", **options).load()


def drained(frame: DataFrame, checkpoint: Path, sink: str, **options: str) -> StreamingQuery:
    """A query over what is there, ended."""
    writer = frame.writeStream.format(sink).options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(int(STARTING))
    return query


def payload_counts(engine: Engine, queue: str) -> Counter[Any]:
    """What a queue holds, whatever its state."""
    of_queue = "(select id from holdfast.queue where name = %s)"
    rows = engine.conn.execute(
        f"select payload from holdfast.message where queue_id = {of_queue}".encode(), [queue]
    ).fetchall()
    return Counter(payload for (payload,) in rows)


def test_a_drain_takes_every_message_once_and_a_restart_sends_nothing_twice(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.create("out")
    queue.send_numbers(40)
    frame = consumed(spark, database_url, max_messages="20").select("payload")

    first = drained(frame, tmp_path / "one", "holdfast", url=database_url, queue="out")
    queue.send_numbers(5)
    second = drained(frame, tmp_path / "one", "holdfast", url=database_url, queue="out")

    assert payload_counts(queue, "out") == Counter([*range(40), *range(5)])
    assert queue.stats()["depth"] == 0
    assert [sum(p["numInputRows"] for p in query.recentProgress) for query in (first, second)] == [40, 5]


def test_a_sink_that_has_a_batch_is_not_sent_it_again(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.create("log", kind="log")
    queue.create("out")
    queue.send_numbers(10, queue="log")
    options = {"url": database_url, "queue": "log", "mode": "tail"}
    frame = spark.readStream.format("holdfast").options(**options).load().select("payload")
    drained(frame, tmp_path, "holdfast", url=database_url, queue="out")
    # As if Spark had been killed after the sink's commit: batch 0 is not in the commit log.
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink(missing_ok=True)
    queue.send_numbers(3, queue="log")

    again = drained(frame, tmp_path, "holdfast", url=database_url, queue="out")

    assert sum(p["numInputRows"] for p in again.recentProgress) == 13
    assert payload_counts(queue, "out") == Counter([*range(10), *range(3)])


def test_payloads_of_a_stream_come_as_the_schema_says(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.send({"order": 7, "name": "ü"})
    options = {"payload": "struct", "payload_schema": "order BIGINT, name STRING", "columns": "payload"}
    frame = consumed(spark, database_url, **options)
    found: list[Any] = []

    def keep(batch: DataFrame, _: int) -> None:
        found.extend(batch.select("payload.*").collect())

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path))
    assert query.trigger(availableNow=True).start().awaitTermination(int(STARTING))

    assert [tuple(row) for row in found] == [(7, "ü")]


def test_a_query_that_is_stopped_holds_on_to_nothing(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.send_numbers(3)
    frame = consumed(spark, database_url, wait="100 ms")
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    eventually(lambda: queue.stats()["depth"] == 0, what="all is acked", timeout=STARTING)

    query.stop()

    leading = "select count(*) = 0 from pg_stat_activity where application_name = 'holdfast spark'"
    eventually(lambda: queue.look(leading), what="the leading process has ended")


def start(url: str, checkpoint: Path, **fate: str) -> subprocess.Popen[bytes]:
    """A stream in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.streamer", str(checkpoint)],
        cwd=ROOT,
        env={**os.environ, URL_VARIABLE: url, **fate},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.fixture
def streamer(database_url: str, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts streams, and ends those that are left."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(url: str = database_url, **fate: str) -> subprocess.Popen[bytes]:
        started.append(start(url, tmp_path / "checkpoint", **fate))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.verify
@pytest.mark.parametrize("fate", ["staged 2", "sent 2", "asked 2", "sent 3", "asked 1"])
def test_a_stream_that_is_killed_goes_on_as_if_nothing_had_happened(
    queue: Engine, streamer: Callable[..., subprocess.Popen[bytes]], fate: str
) -> None:
    queue.create("out")
    queue.send_numbers(MESSAGES)
    # A claim that no offset log knows of, for a stream that has none, comes back only when its lease is over.
    lease = {LEASE: "2 s"} if fate == "asked 1" else {}

    killed = streamer(**{FATE: fate}, **lease).wait(STARTING)
    if lease:
        eventually(lambda: queue.value("sweep", queue="q"), what="the lease is over")
    finished = streamer(**lease).wait(STARTING)

    assert killed != 0
    assert finished == 0
    assert payload_counts(queue, "out") == Counter(range(MESSAGES))
    assert queue.stats()["depth"] == 0
    assert queue.look("select count(*) from holdfast.staged") == 0


@pytest.mark.verify
def test_a_stream_that_sleeps_through_its_lease_loses_nothing(
    queue: Engine, streamer: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    queue.create("out")
    queue.send_numbers(MESSAGES)
    note = tmp_path / "note"
    sleeper = streamer(**{FATE: "staged 1", NOTE: str(note), LEASE: "1 s"})
    eventually(note.exists, what="rows are staged", timeout=STARTING)
    os.killpg(sleeper.pid, signal.SIGSTOP)

    theirs = eventually(lambda: queue.claim(2000, lease="5 min"), what="the lease is over")
    token = theirs[0]["token"]
    acked, _ = queue.settle("ack", token, [row["id"] for row in theirs[:100]])
    os.killpg(sleeper.pid, signal.SIGCONT)
    finished = sleeper.wait(STARTING)
    queue.settle("release", token)
    again = streamer().wait(STARTING)

    assert (finished, again, len(acked)) == (0, 0, 100)
    done = payload_counts(queue, "out") + Counter(row["payload"] for row in theirs[:100])
    assert set(done) == set(range(MESSAGES))
    # What was staged before the sleep was sent, for it had been read: at most the first batch comes twice.
    assert sum(done.values()) <= MESSAGES + 500
    assert queue.stats()["depth"] == 0


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_a_crash_of_the_database_in_mid_batch_loses_nothing(
    streamer: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    note = tmp_path / "note"
    with temporary_postgres(settings=DURABLE) as server:
        url = server.ensure_running()
        migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            engine = Engine(connection)
            engine.create("q")
            engine.create("out")
            engine.send_numbers(MESSAGES)
        stream = streamer(url, **{FATE: "staged 2", NOTE: str(note)})
        eventually(note.exists, what="rows are staged", timeout=STARTING)

        kill_server(server)
        server.ensure_running()
        # What was staged is gone, so the batch cannot be committed: the query fails, and is started again.
        stream.wait(STARTING)
        again = streamer(url).wait(STARTING)

        with psycopg.connect(url, autocommit=True) as connection:
            engine = Engine(connection)
            assert again == 0
            assert payload_counts(engine, "out") == Counter(range(MESSAGES))
            assert engine.stats()["depth"] == 0
