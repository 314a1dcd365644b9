"""Archive, killed: kill -9 of the driver or of Spark's JVM at each step.

1. Whenever it is killed, every ended message is in the lake or in the database, and readers see whole files.
2. After the next run each is in the lake, exactly once, and none in the database.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.pipelines.archive import Archive
from tests.engine.engine import Engine
from tests.spark.archiver import ROWS
from tests.spark.archives import fill, fill_oddly, in_lake, journal
from tests.spark.conftest import STARTING, Start
from tests.spark.runs import a_run

pytestmark = pytest.mark.verify

MESSAGES = 54  # and six odd ones: six batches, in two waves


@pytest.mark.parametrize(
    ("point", "passed", "victim"),
    [
        ("opened", 1, "driver"),
        ("reading", 1, "driver"),
        ("reading", 4, "jvm"),
        ("written", 0, "driver"),
        ("publishing", 1, "driver"),
        ("published", 0, "driver"),
        ("published", 4, "jvm"),
        ("removing", 2, "driver"),
        ("removed", 2, "driver"),
    ],
)
def test_a_run_that_is_killed_is_finished_by_the_next(
    spark: SparkSession,
    database_url: str,
    engine: Engine,
    start: Start,
    tmp_path: Path,
    point: str,
    passed: int,
    victim: str,
) -> None:
    lake = tmp_path / "lake"
    engine.create("q", keep=["done"])
    fill_oddly(engine)
    fill(engine, MESSAGES)
    before = journal(engine)

    killed = start("archiver", lake, point, passed, victim).wait(STARTING)
    in_files, in_database = in_lake(lake), journal(engine)
    figures = Archive(lake=str(lake), rows=ROWS).run(a_run(spark, database_url))

    # Without a JVM the driver can still remove what has its place.
    twice = ROWS if point in ("published", "removing") and victim == "driver" else 0
    assert killed == (-signal.SIGKILL if victim == "driver" else 1)
    assert in_files | in_database == before
    assert sum((in_files & in_database).values()) == twice
    assert figures["finished"] > 0
    assert in_lake(lake) == before
    assert journal(engine) == {}
    assert sum(before.values()) == MESSAGES + 6
