"""Running a pipeline: what is in the history, who may run beside whom, and how it is broken off.

1. A run that ends is done with its figures, failed with its error, or interrupted.
2. A dry run is not in the history.
3. Told to end, Spark's job is cancelled, and so is a loop that says how far it is.
4. A pipeline that ends by itself is not broken off, unless somebody insists.
5. An exclusive pipeline waits for a run that is lost, and is refused by one that lives.
6. A run whose place was taken stops.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any, ClassVar

import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from holdfast.client import RunInProgressError
from holdfast.spark._database import DatabaseError
from holdfast.spark.pipelines import _history
from holdfast.spark.pipelines._pipeline import Interrupted, PipelineError, Run, identity
from tests.engine.engine import Engine
from tests.spark.runs import PATIENCE, Screen, a_runner
from tests.waiting import eventually

pytestmark = pytest.mark.verify

SLOW = 60.0  # seconds that a task would take


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Does what a test wants."""

    name: ClassVar[str] = "job"
    summary: ClassVar[str] = "For tests"

    work: Callable[[Run], Mapping[str, Any]] = field(repr=False)
    number: int = 1

    def run(self, run: Run) -> Mapping[str, Any]:
        """Do it."""
        return self.work(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone(Job):
    """A job that must not run twice at once."""

    @property
    def exclusive(self) -> str:
        """The same for all of them."""
        return "alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked(Job):
    """A job that can tell beforehand that it will not work."""

    def check(self) -> None:
        """It never works."""
        raise PipelineError("expected something else")


def history(engine: Engine) -> list[dict[str, Any]]:
    return engine.rows("runs")


def slow_task(run: Run) -> Mapping[str, Any]:
    """A job of Spark that takes a minute."""

    def work(numbers: Any) -> Any:
        time.sleep(SLOW)
        return numbers

    return {"n": run.spark.sparkContext.parallelize(range(2), 2).mapPartitions(work).count()}


def test_a_run_that_is_done_has_its_figures_steps_and_parameters(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    def work(run: Run) -> Mapping[str, Any]:
        with run.step("counting"):
            run.advance(1, 2)
            return {"rows": run.spark.range(5).count(), "odd": float("nan")}

    screen = Screen()
    runner = a_runner(spark, database_url, Job(work=work), display=screen)

    runner.start()
    assert runner.wait(PATIENCE)

    assert runner.result()["rows"] == 5
    (run,) = history(engine)
    assert (str(run["id"]), run["pipeline"], run["state"]) == (runner.id, "job", "done")
    assert run["figures"] == {"rows": 5, "odd": None}
    assert run["parameters"]["number"] == 1
    assert screen.steps[-1] == "counting"
    assert screen.advances == [(1, 2)]
    assert screen.counted[-1] == (0, 0)


def test_a_run_that_fails_has_its_error_without_secrets(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    def work(run: Run) -> Mapping[str, Any]:
        raise PipelineError(f"cannot reach {database_url}")

    runner = a_runner(spark, database_url, Job(work=work))
    runner.start()
    assert runner.wait(PATIENCE)

    with pytest.raises(PipelineError):
        runner.result()
    (run,) = history(engine)
    assert (run["state"], run["error"], run["figures"]) == ("failed", "cannot reach ***", None)


def test_a_dry_run_is_not_in_the_history(spark: SparkSession, database_url: str, engine: Engine) -> None:
    runner = a_runner(spark, database_url, Job(work=lambda run: {"dry": run.dry_run}), dry_run=True)
    runner.start()
    assert runner.wait(PATIENCE)

    assert runner.result() == {"dry": True}
    assert history(engine) == []


def test_what_can_be_told_beforehand_is_no_run(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    runner = a_runner(spark, database_url, Checked(work=lambda run: {}))
    runner.start()
    assert runner.wait(PATIENCE)

    with pytest.raises(PipelineError, match="expected something else"):
        runner.result()
    assert history(engine) == []


def test_a_job_of_spark_is_cancelled_and_the_run_is_interrupted(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    screen = Screen()
    runner = a_runner(spark, database_url, Job(work=slow_task), display=screen)
    runner.start()
    eventually(lambda: any(total for _, total in screen.counted), what="Spark is at work", timeout=PATIENCE)

    began = time.monotonic()
    while not runner.wait(0.2):
        runner.interrupt()
        assert time.monotonic() - began < SLOW / 2

    with pytest.raises(Interrupted):
        runner.result()
    assert [run["state"] for run in history(engine)] == ["interrupted"]


def test_a_loop_that_says_how_far_it_is_can_be_interrupted(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    begun = Event()

    def work(run: Run) -> Mapping[str, Any]:
        for number in range(1_000_000):
            run.advance(number)
            begun.set()
            time.sleep(0.01)
        return {}

    runner = a_runner(spark, database_url, Job(work=work))
    runner.start()
    assert begun.wait(PATIENCE)
    runner.interrupt()

    assert runner.wait(PATIENCE)
    with pytest.raises(Interrupted):
        runner.result()
    assert [run["state"] for run in history(engine)] == ["interrupted"]


def test_a_pipeline_that_ends_by_itself_is_done(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    begun = Event()

    def work(run: Run) -> Mapping[str, Any]:
        with run.ends_by_itself() as told:
            begun.set()
            assert told.wait(PATIENCE)
            run.advance(1)
            return {"rows": run.spark.range(3).count()}

    runner = a_runner(spark, database_url, Job(work=work))
    runner.start()
    assert begun.wait(PATIENCE)
    assert runner.ends_by_itself
    runner.interrupt()

    assert runner.wait(PATIENCE)
    assert runner.result() == {"rows": 3}
    assert [run["state"] for run in history(engine)] == ["done"]


def test_who_insists_breaks_off_a_pipeline_that_ends_by_itself(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    begun = Event()

    def work(run: Run) -> Mapping[str, Any]:
        with run.ends_by_itself():
            begun.set()
            return slow_task(run)

    screen = Screen()
    runner = a_runner(spark, database_url, Job(work=work), display=screen)
    runner.start()
    eventually(lambda: any(total for _, total in screen.counted), what="Spark is at work", timeout=PATIENCE)
    runner.interrupt()
    assert not runner.wait(0.5)

    while not runner.wait(0.2):
        runner.interrupt(now=True)

    with pytest.raises(Interrupted):
        runner.result()
    assert begun.is_set()


def test_an_exclusive_pipeline_is_refused_while_another_lives(
    spark: SparkSession, database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_history, "PATIENCE", 0.2)
    release = Event()
    first = a_runner(spark, database_url, Alone(work=lambda run: {"waited": release.wait(PATIENCE)}))
    second = a_runner(spark, database_url, Alone(work=lambda run: {}))

    first.start()
    eventually(lambda: history(engine), what="the first run", timeout=PATIENCE)
    second.start()
    assert second.wait(PATIENCE)
    release.set()
    assert first.wait(PATIENCE)

    with pytest.raises(RunInProgressError):
        second.result()
    assert [run["state"] for run in history(engine)] == ["done"]


def test_an_exclusive_pipeline_goes_on_once_the_other_is_lost(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    engine.value("begin_run", pipeline="job", exclusive="alone")
    engine.conn.execute("update holdfast.pipeline_run set seen_at = seen_at - interval '58 seconds'")
    runner = a_runner(spark, database_url, Alone(work=lambda run: {}))

    runner.start()

    assert runner.wait(PATIENCE)
    assert runner.result() == {}
    assert [run["state"] for run in history(engine)] == ["done", "lost"]


def test_a_run_whose_place_was_taken_stops(
    spark: SparkSession, database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_history, "BEAT_SECONDS", 0.1)
    screen = Screen()
    runner = a_runner(spark, database_url, Alone(work=slow_task), display=screen)
    runner.start()
    eventually(lambda: any(total for _, total in screen.counted), what="Spark is at work", timeout=PATIENCE)

    engine.conn.execute("update holdfast.pipeline_run set state = 'lost'")

    assert runner.wait(SLOW / 2)
    with pytest.raises(PipelineError, match="another took its place"):
        runner.result()
    assert [run["state"] for run in history(engine)] == ["lost"]


def test_a_run_reports_its_step_while_it_works(
    spark: SparkSession, database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_history, "BEAT_SECONDS", 0.05)
    release = Event()

    def work(run: Run) -> Mapping[str, Any]:
        with run.step("waiting"):
            run.advance(3, 7)
            return {"released": release.wait(PATIENCE)}

    runner = a_runner(spark, database_url, Job(work=work))
    runner.start()
    reported = eventually(
        lambda: [row for row in history(engine) if row["step"] == "waiting" and row["done"]],
        what="a report",
        timeout=PATIENCE,
    )
    release.set()
    assert runner.wait(PATIENCE)

    assert [(row["state"], row["done"], row["total"]) for row in reported] == [("running", 3, 7)]


def test_an_identity_is_the_same_for_the_same_parameters_only() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: ClassVar[str] = "named"
        summary: ClassVar[str] = ""
        to: str
        only: list[str]

        def run(self, run: Run) -> Mapping[str, Any]:
            return {}

    one = Named(to="q", only=["a"])

    assert identity(one) == identity(Named(to="q", only=["a"]))
    assert identity(one).startswith("named-")
    assert len({identity(one), identity(Named(to="p", only=["a"])), identity(one, "file")}) == 3


def test_a_run_without_rights_says_which_role_is_missing(
    spark: SparkSession, database_url: str, engine: Engine
) -> None:
    user = f"stranger_{os.getpid()}"
    engine.conn.execute(f"create role {user} login password 'x' in role holdfast_monitor".encode())
    try:
        url = make_conninfo(database_url, user=user, password="x")
        runner = a_runner(spark, url, Job(work=lambda run: {}))
        runner.start()
        assert runner.wait(PATIENCE)
        with pytest.raises(DatabaseError, match="holdfast_producer or holdfast_consumer or holdfast_admin"):
            runner.result()
    finally:
        engine.conn.execute(f"drop role {user}".encode())
