"""Spark for tests: one small session for all of them, and a queue in a fresh database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from holdfast.spark.session import make_session
from tests.engine.engine import Engine
from tests.fix_database import Connect

SMALL = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that all tests share: starting one takes seconds."""
    session = make_session("holdfast tests", master="local[2]", settings=SMALL)
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
