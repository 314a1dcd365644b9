"""What the history keeps of a run that has ended, without Spark: how far it was is told with the end."""

from __future__ import annotations

from contextlib import suppress
from threading import Event

import pytest

from holdfast.spark.options import Secret
from holdfast.spark.pipelines._history import History
from holdfast.spark.pipelines._pipeline import Interrupted, PipelineError
from holdfast.spark.pipelines.load import Load
from tests.engine.engine import Engine


@pytest.mark.parametrize(
    ("error", "state"), [(None, "done"), (PipelineError("no"), "failed"), (Interrupted(), "interrupted")]
)
def test_a_run_that_ended_shows_its_last_step_and_how_far_it_was(
    database_url: str, engine: Engine, error: BaseException | None, state: str
) -> None:
    history = History(Secret(database_url), Load(to="q"), replaced=pytest.fail)

    with suppress(PipelineError, Interrupted), history:
        history.begin(Event())
        history.step("staging")
        history.advance(0, 200_000)
        history.step("sending")
        history.advance(200_000, 200_000)
        if error is not None:
            raise error

    (run,) = engine.rows("runs")
    assert (run["state"], run["step"], run["done"], run["total"]) == (state, "sending", 200_000, 200_000)
