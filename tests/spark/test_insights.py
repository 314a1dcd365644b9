"""Insights, the pipeline: lake, archive, queues and samples in; rollups and a report out.

1. Figures are those of what happened, wherever it is recorded; nothing counts twice.
2. Where a queue keeps nothing, its samples tell.
   So they do of what was moved to a lake that is not named, and whoever watches is told.
3. The same range again replaces its rollups, in the database and as Parquet; what is outside of it stays.
4. The report is one file, written whole; a dry run writes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.lake import SCHEMA
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines._sources import moment
from holdfast.spark.pipelines.archive import Archive
from holdfast.spark.pipelines.insights import Insights
from holdfast.spark.transforms.insights.facts import Range
from tests.engine.engine import T0, Engine
from tests.spark.runs import Screen, a_run

pytestmark = pytest.mark.verify

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
KEEP = ["done", "failed", "expired", "discarded"]
SHORT = ("sent", "done", "dead", "retries", "waiting_count", "processing_count")


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


@pytest.fixture
def busy(engine: Engine) -> Engine:
    """Two hours of q: first three are sent, two done, one is dead; then one of two is done."""
    engine.at(T0)
    engine.create("q", keep=KEEP, max_deliveries=1)
    engine.send_numbers(3)
    worked(engine, T0 + 10 * SECOND, 2, "c1", took=5)
    engine.at(T0 + 20 * SECOND)
    engine.settle("nack", engine.claim_one()["token"], error="order 7 is gone")
    engine.at(T0 + 70 * MINUTE)
    engine.send_numbers(2)
    worked(engine, T0 + 71 * MINUTE, 1, "c2", took=1)
    return engine


def worked(engine: Engine, at: datetime, count: int, consumer: str, *, took: float) -> None:
    """Some messages are claimed at a time, and done later."""
    engine.at(at)
    token = engine.claim(count, consumer=consumer)[0]["token"]
    engine.at(at + took * SECOND)
    engine.settle("ack", token)


def insights(run: Run, **parameters: Any) -> dict[str, Any]:
    """Both hours, by the hour, without a report unless one is asked for."""
    period: dict[str, Any] = {"since": T0, "until": T0 + 2 * HOUR, "bucket": "1h", "report": None}
    pipeline = Insights(**(period | parameters))
    pipeline.check()
    return dict(pipeline.run(run))


def rollups(engine: Engine, queue: str = "q") -> list[tuple[Any, ...]]:
    """What the database holds: the hour, and SHORT."""
    rows = engine.rows("rollups", queue=queue)
    return [((row["start"] - T0) // HOUR, *(row[name] for name in SHORT)) for row in rows]


def parquet(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    """What is in a folder of rollups."""
    rows = spark.read.parquet(str(folder)).orderBy("queue", "start").collect()
    return [
        (row.bucket, row.queue, str(row.day), (row.start.astimezone(UTC) - T0) // HOUR, row.sent)
        for row in rows
    ]


def test_figures_are_those_of_what_happened(busy: Engine, run: Run) -> None:
    figures = insights(run)

    assert rollups(busy) == [(0, 3, 2, 1, 0, 2, 2), (1, 2, 1, 0, 0, 1, 1)]
    assert (figures["sent"], figures["done"], figures["failed_or_dead"], figures["rollups"]) == (5, 3, 1, 2)


def test_a_rollup_has_percentiles_and_details(busy: Engine, run: Run) -> None:
    insights(run, objectives=["q: waiting p95 < 5s"])
    first, second = busy.rows("rollups", queue="q")

    assert [first[f"{each}_p95"] for each in ("waiting", "processing")] == pytest.approx([10, 5], rel=0.011)
    assert first["details"]["errors"][0] | {"first_seen": 0, "last_seen": 0} == {
        "fingerprint": "order <n> is gone", "messages": 1, "fatal": 1, "first_seen": 0, "last_seen": 0
    }  # fmt: skip
    assert [each["consumer"] for each in first["details"]["consumers"]] == ["c1"]
    assert [
        (each["measure"], each["messages"], each["over"])
        for row in (first, second)
        for each in row["details"]["objectives"]
    ] == [("waiting", 2, 2), ("waiting", 1, 1)]
    assert (first["estimated"], second["estimated"]) == ([], [])


def test_samples_and_messages_together_count_each_thing_once(busy: Engine, run: Run) -> None:
    for minutes in (72, 73):
        busy.at(T0 + minutes * MINUTE)
        busy.value("maintain", budget="10 s")
        busy.send(1)

    insights(run)
    (row,) = busy.rows("rollups", queue="q", since=T0 + HOUR)
    (early,) = busy.rows("rollups", queue="q", until=T0 + HOUR)

    # The first sample is of 72 minutes, and counts at its middle; the message that came last is in none.
    assert (early["sent"], row["sent"]) == (5, 2)
    assert (early["done"], row["done"], early["dead"]) == (2, 1, 1)
    assert (early["estimated"], row["estimated"]) == (["dead", "sent"], ["sent"])


def test_of_a_queue_that_keeps_nothing_the_samples_tell(engine: Engine, run: Run) -> None:
    engine.at(T0)
    engine.create("plain")
    engine.send_numbers(3, queue="plain")
    engine.at(T0 + 30 * SECOND)
    engine.settle("ack", engine.claim(2, queue="plain")[0]["token"], queue="plain")
    engine.value("maintain", budget="10 s")

    insights(run)
    (row,) = engine.rows("rollups", queue="plain")

    assert (row["sent"], row["done"], row["waiting_count"]) == (3, 2, 2)
    assert row["waiting_p50"] == pytest.approx(60, rel=0.011)
    assert row["estimated"] == ["done", "processing", "sent", "waiting"]
    assert "consumers" not in row["details"]


def test_a_message_in_the_lake_and_in_the_archive_counts_once(
    busy: Engine, run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    archived = busy.rows("read_archive", queue="q", to=T0 + 2 * HOUR)[0]
    same = {name: archived.get(name) for name in SCHEMA.names} | {"outcome": "done", "origin": None}
    moved = same | {"id": 1, "ended_at": T0 + MINUTE, "payload": "1"}
    elsewhere = moved | {"queue": "dropped"}
    rows = [row | {"day": T0.date(), "payload": "1"} for row in (same, moved, elsewhere)]
    frame = spark.createDataFrame([tuple(row[name] for name in SCHEMA.names) for row in rows], SCHEMA)
    frame.write.partitionBy("queue", "day").parquet(str(tmp_path / "lake"))

    insights(run, lake=str(tmp_path / "lake"))
    named = insights(run, lake=str(tmp_path / "lake"), queues=["dropped"], output=str(tmp_path / "out"))

    assert [row[:3] for row in rollups(busy)] == [(0, 4, 3), (1, 2, 1)]
    assert (named["done"], parquet(spark, tmp_path / "out")) == (1, [("1h", "dropped", "2030-01-01", 0, 1)])


@pytest.fixture
def moved(engine: Engine, run: Run, tmp_path: Path) -> Path:
    """Two of q are done in the first hour, and moved to a lake; one is done in the second, and stays."""
    engine.at(T0)
    engine.create("q", keep=KEEP)
    for begin, count, consumer in ((T0, 2, "c1"), (T0 + 70 * MINUTE, 1, "c2")):
        engine.at(begin)
        engine.value("maintain", budget="10 s")
        engine.send_numbers(count)
        worked(engine, begin + 10 * SECOND, count, consumer, took=5)
        engine.at(begin + 2 * MINUTE)
        engine.value("maintain", budget="10 s")
    Archive(lake=str(tmp_path / "lake"), until=(T0 + HOUR).isoformat()).run(run)
    return tmp_path / "lake"


def test_of_messages_in_a_lake_that_is_not_named_the_samples_tell(
    moved: Path, engine: Engine, spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    said = [f"2 messages of q were moved to file:{moved}: name it with --lake"]

    for lake in (None, str(tmp_path / "other")):
        screen = Screen()
        figures = insights(
            a_run(spark, database_url, screen=screen), lake=lake, report=str(tmp_path / "r.html")
        )
        first, second = engine.rows("rollups", queue="q")

        assert (figures["done"], figures["not_read"], screen.notes) == (3, said, said)
        assert said[0] in (tmp_path / "r.html").read_text()
        assert (first["sent"], first["done"], first["waiting_count"]) == (2, 2, 2)
        assert first["estimated"] == ["done", "processing", "sent", "waiting"]
        assert (second["done"], second["estimated"]) == (1, ["sent"])


def test_of_messages_in_a_lake_that_is_named_the_lake_tells(
    moved: Path, engine: Engine, spark: SparkSession, database_url: str
) -> None:
    screen = Screen()

    figures = insights(a_run(spark, database_url, screen=screen), lake=str(moved))
    first, second = engine.rows("rollups", queue="q")

    assert (figures["done"], "not_read" in figures, screen.notes) == (3, False, [])
    assert [each["done"] for each in (first, second)] == [2, 1]
    assert [each["estimated"] for each in (first, second)] == [["sent"], ["sent"]]


def test_a_dry_run_names_the_lake_too(moved: Path, spark: SparkSession, database_url: str) -> None:
    run = a_run(spark, database_url, dry_run=True)

    assert "2 messages of q" in insights(run)["not_read"][0]
    assert "not_read" not in insights(run, since=T0 + HOUR)


def test_what_ends_while_it_is_read_is_still_alive(busy: Engine, run: Run) -> None:
    span = Range(T0, T0 + 2 * HOUR, HOUR)

    with moment(run) as now:
        queues = now.queues([], in_lake=False)
        busy.settle("ack", busy.claim_one()["token"])
        counts = now.live(queues, span).count(), now.ended(queues, span, None).count()

    assert counts == (1, 4)


def test_the_same_range_again_replaces_its_rollups(busy: Engine, run: Run, tmp_path: Path) -> None:
    folder = str(tmp_path / "rollups")
    insights(run, output=folder)
    before = parquet(run.spark, tmp_path / "rollups"), rollups(busy)
    busy.value("purge", queue="q", states=["archive"])

    insights(run, output=folder, since=T0 + HOUR)

    assert before == (
        [("1h", "q", "2030-01-01", 0, 3), ("1h", "q", "2030-01-01", 1, 2)],
        [(0, 3, 2, 1, 0, 2, 2), (1, 2, 1, 0, 0, 1, 1)],
    )
    assert parquet(run.spark, tmp_path / "rollups") == [
        ("1h", "q", "2030-01-01", 0, 3),
        ("1h", "q", "2030-01-01", 1, 1),
    ]
    assert rollups(busy) == [(0, 3, 2, 1, 0, 2, 2), (1, 1, 0, 0, 0, 0, 0)]


def test_a_stretch_in_which_nothing_is_known_any_more_has_no_rollups(busy: Engine, run: Run) -> None:
    insights(run)
    busy.value("purge", queue="q", states=["archive", "ready", "dead"])

    insights(run)

    assert rollups(busy) == []


def test_the_report_is_one_file(busy: Engine, run: Run, tmp_path: Path) -> None:
    busy.create("idle")
    path = tmp_path / "report.html"
    path.write_text("an old one")

    insights(run, report=str(path), rollups=False, objectives=["q: waiting p95 < 5s"])

    text = path.read_text()
    assert text.startswith("<!DOCTYPE html>")
    for words in ("order &lt;n&gt; is gone", "idle", "c1", "waiting p95 &lt; 5 s", "1 Jan 2030, 00:00"):
        assert words in text
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    assert rollups(busy) == []


def test_a_dry_run_counts_and_writes_nothing(
    busy: Engine, spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    figures = insights(
        a_run(spark, database_url, dry_run=True),
        report=str(tmp_path / "r.html"),
        output=str(tmp_path / "out"),
    )

    assert {name: figures[name] for name in ("queues", "ended", "live", "samples", "rollups_at_most")} == {
        "queues": 1,
        "ended": 4,
        "live": 1,
        "samples": 0,
        "rollups_at_most": 2,
    }
    assert (list(tmp_path.iterdir()), rollups(busy)) == ([], [])


def test_queues_that_hold_dead_letters_of_others_are_looked_at_if_they_are_named(
    busy: Engine, run: Run
) -> None:
    every = insights(run)
    named = insights(run, queues=["q.dlq"])

    assert (every["queues"], named["queues"], named["sent"]) == (1, 1, 1)


def test_a_queue_that_is_not_there_is_refused(busy: Engine, run: Run) -> None:
    with pytest.raises(PipelineError, match="--queue: got nowhere"):
        insights(run, queues=["nowhere"])
    with pytest.raises(PipelineError, match="--objective: got elsewhere"):
        insights(run, objectives=["elsewhere: waiting p95 < 5s"])
