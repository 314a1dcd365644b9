"""Batches in Spark itself: refused, large, and killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from holdfast.database import URL_VARIABLE
from holdfast.embedded import DEFAULT_DATA_DIR, EmbeddedPostgres
from holdfast.migrate import migrate
from holdfast.spark.java import _wheel
from holdfast.spark.options import URL_SETTING, OptionError
from holdfast.spark.pipelines._explain import explain
from holdfast.spark.session import make_session
from tests.engine.engine import Engine, payloads
from tests.spark.conftest import STARTING, Start
from tests.spark.frames import read, write
from tests.waiting import eventually

pytestmark = pytest.mark.verify

MANY = 200_000


def test_a_bad_row_fails_the_job_and_nothing_is_sent(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr("if(id = 77, '{', '1') as payload")

    with pytest.raises(PySparkException, match="row 28: payload: invalid input syntax for type json"):
        write(rows, database_url)

    assert queue.stats()["depth"] == 0
    assert queue.look("select count(*) from holdfast.staged") == 0


def test_a_frame_with_other_columns_is_refused_before_a_task_runs(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    with pytest.raises(PySparkException, match="column id is no option of a send; expected"):
        write(spark.range(1), database_url)


def test_a_queue_that_is_not_there_is_refused_before_a_task_runs(
    spark: SparkSession, database_url: str, queue: Engine
) -> None:
    with pytest.raises(PySparkException) as refused:
        write(spark.range(1).selectExpr("'1' as payload"), database_url, queue="nowhere")

    assert explain(refused.value).message == 'queue "nowhere" does not exist'
    assert "stage failure" not in str(refused.value)


def test_a_database_that_spark_was_not_started_with_is_refused_late(
    spark: SparkSession, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URL_VARIABLE, raising=False)

    with pytest.raises(OptionError, match=r"option spark.holdfast.url: got it for a Spark that runs already"):
        make_session(settings={URL_SETTING: database_url})
    with pytest.raises(PySparkException, match=r"option url: got nothing; .*a Spark that runs already"):
        spark.read.format("holdfast").load("q").count()

    assert URL_VARIABLE not in os.environ


def test_200_000_ordered_keys_go_in_one_write(spark: SparkSession, database_url: str, engine: Engine) -> None:
    engine.create("q", ordering="key")
    rows = spark.range(0, MANY, 1, 2).selectExpr(
        "cast(id as string) as payload", "'key ' || id as ordering_key"
    )

    write(rows, database_url)

    assert engine.look("select count(distinct ordering_key) from holdfast.message") == MANY
    assert read(spark, database_url, columns="id").count() == MANY


def test_a_driver_killed_in_mid_write_loses_nothing_and_sends_nothing_twice(
    queue: Engine, start: Start
) -> None:
    rows = 1000
    staged = "select count(*) from holdfast.staged"

    killed = start("writer", "w", rows, 600)
    eventually(lambda: queue.look(staged) >= rows / 2, what="rows are staged", timeout=STARTING)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    assert queue.stats()["depth"] == 0
    again = [start("writer", "w", rows, 0).wait(STARTING) for _ in range(2)]

    assert again == [0, 0]
    assert Counter(payloads(queue.claim(10_000))) == Counter(range(rows))
    assert queue.look(staged) == 0


IN_A_FOLDER = """
from holdfast.spark.session import make_session
spark = make_session(master="local[1]", settings={"spark.log.level": "OFF", "spark.driver.memory": "1g"})
print(spark.read.format("holdfast").load("q").count())
"""


def test_a_session_uses_the_database_of_its_folder_and_ends_it_with_the_process(tmp_path: Path) -> None:
    server = EmbeddedPostgres(data_dir=tmp_path / DEFAULT_DATA_DIR)
    with server as url, psycopg.connect(url, autocommit=True) as connection:
        migrate(url)
        connection.execute("select holdfast.create_queue('q'), holdfast.send('q', '1')")
    environment = {name: value for name, value in os.environ.items() if name != URL_VARIABLE}

    answer = subprocess.run(
        [sys.executable, "-c", IN_A_FOLDER],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=STARTING,
        check=False,
    )

    assert (answer.stdout.strip(), answer.returncode) == ("1", 0), answer.stderr
    assert server.pid is None


def test_spark_runs_on_the_java_of_the_wheel(queue: Engine, start: Start) -> None:
    assert start("writer", "w", 10, 0, JAVA_HOME=str(_wheel())).wait(STARTING) == 0
    assert len(queue.claim(100)) == 10
