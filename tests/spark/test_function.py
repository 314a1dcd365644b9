"""A function of the user's between a read and a write, and the figures of what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.pipelines._counting import Counting
from holdfast.spark.pipelines._pipeline import Run
from holdfast.spark.pipelines.function import Function
from tests.engine.engine import Engine, payloads
from tests.spark.runs import a_run

pytestmark = pytest.mark.verify

MODULE = "tests.spark.test_function"


def even(frame: DataFrame) -> DataFrame:
    """Every second message."""
    return frame.where("cast(payload as int) % 2 = 0").select("payload")


def nothing_of_it(frame: DataFrame) -> DataFrame:
    """Something else altogether."""
    return frame.sparkSession.sql("select '1' as payload")


def run_of(run: Run, function: str, to: str, **parameters: Any) -> dict[str, Any]:
    return dict(Function(function=f"{MODULE}:{function}", source="q", to=to, **parameters).run(run))


@pytest.fixture
def run(spark: SparkSession, database_url: str, queue: Engine) -> Run:
    """A run with ten messages in q, and a queue other."""
    queue.create("other")
    for number in range(10):
        queue.send(number)
    return a_run(spark, database_url)


def test_what_was_read_and_sent_is_told_and_the_source_stays(run: Run, queue: Engine) -> None:
    figures = run_of(run, "even", "other", write_id="w")
    again = run_of(run, "even", "other", write_id="w")

    assert (figures["read"], figures["sent"]) == (10, 5)
    assert (again["sent"], again["sent_before"]) == (0, 5)
    assert sorted(payloads(queue.claim(100, queue="other"))) == [0, 2, 4, 6, 8]
    assert len(queue.claim(100)) == 10


def test_without_a_name_every_run_sends(run: Run, database_url: str, queue: Engine) -> None:
    first = run_of(run, "even", "other")
    second = run_of(Run(id="2", spark=run.spark, url=run.url, dry_run=False), "even", "other")

    assert (first["sent"], second["sent"]) == (5, 5)


def test_what_was_read_and_saved_is_told(run: Run, tmp_path: Path) -> None:
    figures = run_of(run, "even", str(tmp_path / "out"))

    assert (figures["read"], figures["saved"]) == (10, 5)
    assert run.spark.read.parquet(str(tmp_path / "out")).count() == 5


def test_a_source_that_was_not_used_is_not_counted(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.pipelines._counting.PATIENCE", 0.1)

    assert Counting(run.spark.range(3)).rows() is None
    figures = run_of(run, "nothing_of_it", "other")

    assert (figures["read"], figures["sent"]) == (None, 1)


def test_a_dry_run_shows_rows_as_objects(spark: SparkSession, run: Run, database_url: str) -> None:
    figures = run_of(a_run(spark, database_url, dry_run=True), "even", "other")

    assert figures["rows"] == 5
    assert sorted(row["payload"] for row in figures["sample"]) == [0, 2, 4, 6, 8]
