"""Runs of pipelines for tests, on a Spark that is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from pyspark.sql import SparkSession

from holdfast.spark.options import Secret
from holdfast.spark.pipelines._pipeline import Pipeline, Run
from holdfast.spark.pipelines._runner import OpenSession, Runner

PATIENCE = 120.0  # seconds


class Screen:
    """Takes down what people would see."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.advances: list[tuple[int, int | None]] = []
        self.notes: list[str] = []
        self.counted: list[tuple[int, int]] = []

    def step(self, name: str) -> None:
        """A step begins."""
        self.steps.append(name)

    def advance(self, done: int, total: int | None) -> None:
        """So much is done."""
        self.advances.append((done, total))

    def note(self, text: str) -> None:
        """A remark."""
        self.notes.append(text)

    def tasks(self, done: int, total: int) -> None:
        """Tasks of Spark."""
        self.counted.append((done, total))


def a_run(spark: SparkSession, url: str, *, dry_run: bool = False, screen: Screen | None = None) -> Run:
    """What a pipeline is given."""
    return Run(id="1", spark=spark, url=Secret(url), dry_run=dry_run, watchers=(screen or Screen(),))


def a_runner(spark: SparkSession, url: str, pipeline: Pipeline, **options: Any) -> Runner:
    """A runner on a Spark that goes on afterwards."""
    settings = {"display": Screen(), **options}
    return Runner(pipeline, url=Secret(url), session=borrowed(spark), **settings)


def borrowed(spark: SparkSession) -> OpenSession:
    """A session that is not ended."""

    def opened() -> AbstractContextManager[SparkSession]:
        return lent(spark)

    return opened


@contextmanager
def lent(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as it is, active in the thread of the run as one that is made there would be."""
    jvm: Any = spark.sparkContext._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    yield spark
