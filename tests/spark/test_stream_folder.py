"""Folders that streams write to: each belongs to one query, as Spark's sink knows batches by numbers alone.

1. A checkpoint that has got further elsewhere, or just as far, is refused: its numbers mean other batches.
2. Of two streams that begin on a new folder at once, one is refused before it has taken anything.
3. The stream whose folder it is goes on, by the id that Spark knows it by; not from an old copy of itself.
4. A folder that some other program streams into is refused.
"""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.pipelines._owner import Owner
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines._storage import Storage
from holdfast.spark.pipelines.stream import Stream
from tests.engine.engine import Engine
from tests.spark.runs import a_run

pytestmark = pytest.mark.verify

OTHERS = "belongs to a stream with another checkpoint"
BATCH = 2  # messages


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


def streamed(run: Run, checkpoint: Path, folder: Path) -> str:
    """Drain q into a folder, in small batches; returns the id of the query."""
    wanted = {"source": "q", "to": str(folder), "once": True, "max_messages": BATCH}
    return str(Stream(checkpoint=str(checkpoint), **wanted).run(run)["query_id"])  # type: ignore[arg-type]


def rows(run: Run, folder: Path) -> int:
    return run.spark.read.parquet(str(folder)).count()


@pytest.mark.parametrize("batches", [1, 3])
def test_a_stream_that_has_got_as_far_or_further_elsewhere_is_refused(
    run: Run, queue: Engine, tmp_path: Path, batches: int
) -> None:
    queue.send_numbers(BATCH)
    streamed(run, tmp_path / "one", tmp_path / "lake")
    queue.send_numbers(BATCH * batches)
    streamed(run, tmp_path / "two", tmp_path / "elsewhere")
    queue.send_numbers(BATCH * 3)

    with pytest.raises(PipelineError, match=OTHERS):
        streamed(run, tmp_path / "two", tmp_path / "lake")
    assert queue.stats()["ready"] == BATCH * 3
    streamed(run, tmp_path / "one", tmp_path / "lake")

    assert rows(run, tmp_path / "lake") == BATCH * 4


def test_the_folder_is_noted_under_the_id_that_spark_knows_the_query_by(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    queue.send_numbers(BATCH)

    first = streamed(run, tmp_path / "one", tmp_path / "lake")
    again = streamed(run, tmp_path / "one", tmp_path / "lake")

    assert first == again
    assert json.loads((tmp_path / "lake/_holdfast/stream.json").read_text()) == {"query": first}
    assert rows(run, tmp_path / "lake") == BATCH


def test_of_streams_that_begin_at_once_one_gets_the_folder(spark: SparkSession, tmp_path: Path) -> None:
    streams, rounds = 4, 10
    meet = Barrier(streams)

    def take(number: int, stream: int) -> bool:
        owner = Owner(
            Storage(spark, str(tmp_path / f"lake{number}")),
            Storage(spark, str(tmp_path / f"checkpoint{number}-{stream}")),
        )
        meet.wait()
        try:
            owner.take()
        except PipelineError:
            return False
        return True

    with ThreadPoolExecutor(streams) as pool:
        taken = [sum(pool.map(take, [number] * streams, range(streams))) for number in range(rounds)]

    assert taken == [1] * rounds
    assert [path.name for path in (tmp_path / "lake0/_holdfast").iterdir()] == ["stream.json"]


@pytest.mark.parametrize("root", ["", "viewfs://tests/on"])
def test_a_file_that_is_there_is_not_made_again_wherever_it_is(
    spark: SparkSession, tmp_path: Path, root: str
) -> None:
    settings: Any = spark._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.tests.link./on", tmp_path.as_uri())
    storage = Storage(spark, root or str(tmp_path))

    assert storage.create("_holdfast/note", "first") is True
    assert storage.create("_holdfast/note", "second") is False

    assert storage.read("_holdfast/note") == "first"


def test_an_old_copy_of_a_checkpoint_is_refused(run: Run, queue: Engine, tmp_path: Path) -> None:
    queue.send_numbers(BATCH)
    streamed(run, tmp_path / "one", tmp_path / "lake")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    queue.send_numbers(BATCH)
    streamed(run, tmp_path / "one", tmp_path / "lake")
    queue.send_numbers(BATCH)

    with pytest.raises(PipelineError, match="it is an old copy"):
        streamed(run, tmp_path / "copy", tmp_path / "lake")

    assert queue.stats()["ready"] == BATCH


def test_a_folder_that_says_nothing_of_its_stream_is_refused(run: Run, queue: Engine, tmp_path: Path) -> None:
    queue.send_numbers(BATCH)
    streamed(run, tmp_path / "one", tmp_path / "lake")
    note = tmp_path / "lake/_holdfast/stream.json"
    note.write_text("")

    with pytest.raises(PipelineError, match=r"stream\.json: expected JSON with 'query'"):
        streamed(run, tmp_path / "one", tmp_path / "lake")
    note.unlink()
    with pytest.raises(PipelineError, match=r"got _spark_metadata and no _holdfast/stream\.json"):
        streamed(run, tmp_path / "one", tmp_path / "lake")
