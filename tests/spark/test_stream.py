"""The pipeline stream, on a Spark that is there.

1. Messages go through SQL, a function or nothing, to a queue, a folder or a table; a drain leaves none
2. Started again, the same checkpoint goes on; a batch that a sink has is not written again.
3. Windows and state work, over restarts.
4. A dry run shows the schema and some rows, and takes nothing.
5. What cannot work is refused before anything is taken.
6. Told to end, it finishes its batch and acks it, also if the next one is not due for long.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from holdfast.spark._outgoing import ColumnError
from holdfast.spark._table import TableError
from holdfast.spark.pipelines._explain import explain
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines.stream import Stream
from tests.engine.engine import Engine
from tests.spark.frames import payload_counts
from tests.spark.runs import PATIENCE, Screen, a_run, a_runner
from tests.waiting import eventually

pytestmark = pytest.mark.verify

PER_MINUTE = """
select window.start as minute, count(*) as orders
from messages watermark to_timestamp(payload.at) as at delay of interval 1 minute
group by window(at, '1 minute')
"""


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def streamed(run: Run, checkpoint: str, **parameters: Any) -> dict[str, Any]:
    """What a drain of q tells."""
    pipeline = Stream(source="q", checkpoint=checkpoint, once=True, **parameters)
    pipeline.check()
    return dict(pipeline.run(run))


def table(engine: Engine, columns: str) -> None:
    engine.conn.execute(f"create table target ({columns})".encode())


def rows(engine: Engine, query: str = "select * from target order by 1") -> list[tuple[Any, ...]]:
    return engine.conn.execute(query.encode()).fetchall()


def forget_commit(checkpoint: str, batch: int) -> None:
    """As if Spark had been killed between the sink's commit and its own."""
    commits = Path(checkpoint) / "commits"
    (commits / str(batch)).unlink()
    (commits / f".{batch}.crc").unlink(missing_ok=True)


def test_messages_go_through_sql_to_a_queue_and_the_checkpoint_goes_on(
    spark: SparkSession, database_url: str, queue: Engine, checkpoint: str
) -> None:
    queue.create("out")
    queue.send_numbers(25)
    screen = Screen()
    query = "select payload, 'odd' as tag from messages where cast(payload as int) % 2 = 1"
    wanted = {"to": "out", "sql": query, "max_messages": 10}

    first = streamed(a_run(spark, database_url, screen=screen), checkpoint, **wanted)
    queue.send(101)
    again = streamed(a_run(spark, database_url), checkpoint, **wanted)

    assert (first["batches"], first["messages"], first["rows"]) == (3, 25, 12)
    assert (again["batches"], again["messages"], again["rows"]) == (1, 1, 1)
    assert first["query_id"] == again["query_id"]
    assert payload_counts(queue, "out") == Counter([*range(1, 25, 2), 101])
    assert queue.stats()["depth"] == 0
    assert screen.steps == ["planning", "streaming q to out"]


def test_messages_of_a_log_are_read_along_into_a_folder(run: Run, queue: Engine, tmp_path: Path) -> None:
    queue.create("log", kind="log")
    queue.send_numbers(5, queue="log")
    folder = tmp_path / "lake"
    wanted = {"source": "log", "mode": "tail", "to": str(folder), "once": True}

    figures = Stream(checkpoint=str(tmp_path / "one"), **wanted).run(run)  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="belongs to a stream with another checkpoint"):
        Stream(checkpoint=str(tmp_path / "two"), **wanted).run(run)  # type: ignore[arg-type]

    assert (figures["messages"], figures["rows"]) == (5, 5)
    assert sorted(row.seq for row in run.spark.read.parquet(str(folder)).collect()) == [1, 2, 3, 4, 5]


def test_a_table_takes_every_batch_once_in_its_own_types(run: Run, queue: Engine, checkpoint: str) -> None:
    queue.create("log", kind="log")
    table(queue, "n bigint, at timestamptz, more jsonb, raw bytea, mark text")
    queue.send_numbers(25, queue="log")
    query = """
        select seq as n, enqueued_at as at, named_struct('p', payload) as more, '' as mark,
          cast(payload as binary) as raw from messages
    """
    read = {"source": "log", "mode": "tail", "max_messages": 10, "once": True}
    stream = Stream(to_table="target", sql=query, checkpoint=checkpoint, **read)  # type: ignore[arg-type]

    first = stream.run(run)
    forget_commit(checkpoint, 2)
    queue.send_numbers(1, queue="log")
    again = stream.run(run)

    assert (first["batches"], first["messages"], first["rows"]) == (3, 25, 25)
    assert again["batches"] == 2
    found = rows(queue)
    assert [row[0] for row in found] == list(range(1, 27))
    assert found[7][2:] == ({"p": "7"}, b"7", "")
    assert rows(queue, "select rows, batch_id from holdfast_batch") == [(1, 3)]
    assert rows(queue, "select count(*) from pg_tables where tablename like 'holdfast_stage%'") == [(0,)]


def test_rows_of_a_key_are_replaced_and_windows_go_on_over_restarts(
    run: Run, queue: Engine, checkpoint: str
) -> None:
    table(queue, "minute timestamptz primary key, orders bigint")
    target = {"to_table": "public.target", "output_mode": "update", "key": ["minute"]}
    wanted: dict[str, Any] = {**target, "sql": PER_MINUTE, "payload_schema": "at STRING"}

    for at in ("12:00:10", "12:00:20", "12:01:10"):
        queue.send({"at": f"2030-01-31T{at}Z"})
    streamed(run, checkpoint, **wanted)
    queue.send({"at": "2030-01-31T12:00:50Z"})
    streamed(run, checkpoint, **wanted)

    assert [(minute.minute, orders) for minute, orders in rows(queue)] == [(0, 3), (1, 1)]


def test_windows_that_are_over_are_sent_once(run: Run, queue: Engine, checkpoint: str) -> None:
    queue.create("out")
    query = f"select to_json(struct(minute(minute) as minute, orders)) as payload from ({PER_MINUTE})"
    wanted = {"to": "out", "sql": query, "payload_schema": "at STRING"}
    for at in ("12:00:10", "12:00:20", "12:05:00"):
        queue.send({"at": f"2030-01-31T{at}Z"})

    streamed(run, checkpoint, **wanted)

    sent = queue.conn.execute("select payload from holdfast.message where queue_id <> 1").fetchall()
    assert sent == [({"minute": 0, "orders": 2},)]


def test_a_complete_result_replaces_the_rows_of_a_table(run: Run, queue: Engine, checkpoint: str) -> None:
    table(queue, "tag text, messages bigint")
    query = "select tag, count(*) as messages from messages group by tag"
    wanted = {"to_table": "target", "sql": query, "output_mode": "complete"}

    for tag in ("a", "b"):
        queue.send_numbers(2, tag=tag)
        streamed(run, checkpoint, **wanted)

    assert rows(queue) == [("a", 2), ("b", 2)]


def test_state_of_a_function_is_kept_over_restarts(run: Run, queue: Engine, checkpoint: str) -> None:
    table(queue, "customer text primary key, total bigint")
    target = {"to_table": "target", "output_mode": "update", "key": ["customer"]}
    wanted: dict[str, Any] = {**target, "function": "examples.streams.spending:spending"}
    wanted["payload_schema"] = "customer STRING, price BIGINT"

    for price in (10, 5):
        queue.send({"customer": "ann", "price": price})
        queue.send({"customer": f"only {price}", "price": price})
        streamed(run, checkpoint, **wanted)

    assert rows(queue) == [("ann", 15), ("only 10", 10), ("only 5", 5)]


def test_told_to_end_between_two_triggers_it_acks_its_last_batch(
    spark: SparkSession, database_url: str, queue: Engine, checkpoint: str
) -> None:
    queue.create("out")
    queue.send_numbers(3)
    only = {"to": "out", "sql": "select payload from messages", "trigger": 3600.0}
    runner = a_runner(spark, database_url, Stream(source="q", checkpoint=checkpoint, **only))  # type: ignore[arg-type]
    runner.start()
    eventually(
        lambda: payload_counts(queue, "out") or runner.wait(0), what="a batch is sent", timeout=PATIENCE
    )

    runner.interrupt()
    assert runner.wait(PATIENCE)

    assert (runner.result()["batches"], runner.result()["messages"]) == (1, 3)
    assert queue.stats()["depth"] == 0
    assert [run["state"] for run in queue.rows("runs")] == ["done"]


def test_a_dry_run_shows_what_would_be_written_and_takes_nothing(
    spark: SparkSession, database_url: str, queue: Engine, checkpoint: str
) -> None:
    queue.create("out")
    queue.send_numbers(20)
    run = a_run(spark, database_url, dry_run=True)

    figures = streamed(run, checkpoint, to="out", sql="select payload, 3 as priority from messages")

    assert figures["schema"] == "struct<payload:string,priority:int>"
    assert len(figures["sample"]) == 5
    assert figures["sample"][0] == {"payload": 0, "priority": 3}
    assert (queue.stats()["ready"], queue.stats()["in_flight"]) == (20, 0)
    assert not Path(checkpoint).exists()


def test_a_dry_run_says_how_to_make_a_table_that_is_missing(
    spark: SparkSession, database_url: str, queue: Engine, checkpoint: str
) -> None:
    queue.send_numbers(1)
    run = a_run(spark, database_url, dry_run=True)

    figures = streamed(run, checkpoint, to_table="shop.t", sql="select 1 as a from messages")

    assert figures["make_first"] == 'create table shop.t ("a" integer)'
    assert figures["sample"] == [{"a": 1}]


def test_what_cannot_work_is_refused_before_anything_is_taken(
    run: Run, queue: Engine, checkpoint: str
) -> None:
    queue.send_numbers(3)
    table(queue, "n bigint")

    one = "select 1 as a from messages"
    for error, told, parameters in (
        (ColumnError, "column id is no option of a send", {"to": "q"}),
        (TableError, 'create table shop.t \\("a" integer\\)', {"to_table": "shop.t", "sql": one}),
        (ColumnError, "column a is none that .*target takes", {"to_table": "target", "sql": one}),
        (PipelineError, "reads no messages", {"to": "q", "sql": "select 'x' as payload"}),
        (PipelineError, "for q; expected append or update", {"to": "q", "output_mode": "complete"}),
    ):
        with pytest.raises(error, match=told):
            streamed(run, checkpoint, **parameters)

    assert queue.stats()["ready"] == 3


def test_a_checkpoint_of_another_queue_is_refused(run: Run, queue: Engine, checkpoint: str) -> None:
    queue.create("other")
    queue.create("out")
    queue.send_numbers(3)
    only = {"to": "out", "sql": "select payload from messages", "once": True, "checkpoint": checkpoint}
    Stream(source="q", **only).run(run)  # type: ignore[arg-type]

    with pytest.raises(StreamingQueryException) as refused:
        Stream(source="other", **only).run(run)  # type: ignore[arg-type]

    assert explain(refused.value).message == (
        "option queue: got 'other'; expected 'q', which the checkpoint is about, or a new checkpoint"
    )
