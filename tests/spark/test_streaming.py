"""Streams in Spark itself: tailed, typed, stopped; and killed.

1. A stream into a queue sends each batch once, also if Spark does not know that it was sent.
2. A tail of a log takes each record once, over restarts, also of its first batch.
3. A drain that is started again takes what came since; payloads come as the schema says.
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
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.database import URL_VARIABLE
from holdfast.embedded import temporary_postgres
from holdfast.migrate import migrate
from tests.engine.engine import Engine
from tests.fault.servers import DURABLE, kill_server
from tests.spark.conftest import STARTING, Start
from tests.spark.frames import consumed, drained, payload_counts
from tests.spark.streamer import FATE, LEASE, NOTE
from tests.waiting import eventually

pytestmark = pytest.mark.verify

MESSAGES = 1200  # three batches


def test_a_drain_that_is_started_again_takes_what_came_since(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    frame = consumed(spark, database_url)
    taken = []

    for count in (40, 5):
        queue.send_numbers(count)
        query = drained(frame, tmp_path, "noop")
        taken.append(sum(progress["numInputRows"] for progress in query.recentProgress))

    assert taken == [40, 5]
    assert queue.stats()["depth"] == 0


def forget_commit(checkpoint: Path) -> None:
    """As if Spark had been killed after the sink's commit: batch 0 is not in the commit log."""
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink(missing_ok=True)


def test_the_first_batch_of_a_tail_is_run_again_from_where_it_began(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.create("log", kind="log")
    queue.send_numbers(10, queue="log")
    reader = spark.readStream.format("holdfast").options(url=database_url, queue="log", mode="tail")
    drained(reader.option("start", "earliest").load(), tmp_path, "noop")
    forget_commit(tmp_path)

    # Spark asks anew where a stream begins whose first batch was not done, and is told another place.
    again = drained(reader.option("start", "latest").load(), tmp_path, "noop")

    assert sum(p["numInputRows"] for p in again.recentProgress) == 10


def test_a_sink_that_has_a_batch_is_not_sent_it_again(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.create("log", kind="log")
    queue.create("out")
    queue.send_numbers(10, queue="log")
    options = {"url": database_url, "queue": "log", "mode": "tail"}
    frame = spark.readStream.format("holdfast").options(**options).load().select("payload")
    drained(frame, tmp_path, "holdfast", url=database_url, queue="out")
    forget_commit(tmp_path)
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


@pytest.fixture
def streamer(start: Start, tmp_path: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Starts the stream, always with the same checkpoint."""
    return lambda **fate: start("streamer", tmp_path / "checkpoint", **fate)


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
        stream = streamer(**{URL_VARIABLE: url, FATE: "staged 2", NOTE: str(note)})
        eventually(note.exists, what="rows are staged", timeout=STARTING)

        kill_server(server)
        server.ensure_running()
        # What was staged is gone, so the batch cannot be committed: the query fails, and is started again.
        stream.wait(STARTING)
        again = streamer(**{URL_VARIABLE: url}).wait(STARTING)

        with psycopg.connect(url, autocommit=True) as connection:
            engine = Engine(connection)
            assert again == 0
            assert payload_counts(engine, "out") == Counter(range(MESSAGES))
            assert engine.stats()["depth"] == 0
