"""Spark for tests: one small session for all of them, or processes of their own; and a queue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.database import URL_VARIABLE
from holdfast.spark.session import make_session
from tests.engine.engine import Engine
from tests.fix_database import Connect
from tests.fix_folder import open_folder
from tests.spark.cluster import Cluster, running_cluster
from tests.spark.submit import Submit

ROOT = Path(__file__).parents[2]
STARTING = 120.0  # seconds for a process with Spark to do its work
Start = Callable[..., subprocess.Popen[bytes]]
SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all tests share, which knows no database: starting one takes seconds."""
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv(URL_VARIABLE, raising=False)
        session = make_session("holdfast tests", master="local[2]", settings=SMALL, embedded=False)
    yield session
    session.stop()


@pytest.fixture
def engine(connect: Connect) -> Engine:
    """The engine, in the test's database."""
    return Engine(connect())


@pytest.fixture
def queue(engine: Engine) -> Engine:
    """The engine, with a plain queue `q`."""
    engine.create("q")
    return engine


@pytest.fixture
def start(database_url: str) -> Iterator[Start]:
    """Starts modules of these tests, in process groups of their own; ends those that are left."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(module: str, *words: object, **environment: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", f"tests.spark.{module}", *map(str, words)],
                cwd=ROOT,
                env={**os.environ, URL_VARIABLE: database_url, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster for the tests of one module: starting it takes as long as a job."""
    with open_folder() as folder, running_cluster(folder) as running:
        yield running


@pytest.fixture
def submit(cluster: Cluster, database_url: str, tmp_path: Path) -> Iterator[Submit]:
    """Submits jobs to the cluster, and ends those that are left."""
    submit = Submit(cluster, database_url, tmp_path)
    yield submit
    submit.end()
