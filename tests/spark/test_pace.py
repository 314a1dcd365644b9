"""Pace: so many messages a second, no more after a pause; judged by a clock of the test's own."""

from __future__ import annotations

import pytest

from holdfast.spark.pipelines._pace import Pace, check_rate
from holdfast.spark.pipelines._pipeline import PipelineError


class Clock:
    """A time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("rate", "size"), [(None, 1000), (5000.0, 1000), (250.0, 250), (2.5, 2), (0.1, 1)]
)
def test_as_many_go_at_once_as_a_second_brings(rate: float | None, size: int) -> None:
    assert Pace(rate).size(1000) == size


def test_without_a_rate_nobody_waits() -> None:
    assert Pace(None).wait(1_000_000) == 0.0


def test_time_that_the_sending_took_counts() -> None:
    clock = Clock()
    pace = Pace(100.0, clock)

    clock.now += 0.25

    assert pace.wait(100) == pytest.approx(0.75)


def test_over_many_steps_the_rate_is_kept() -> None:
    clock = Clock()
    pace = Pace(40.0, clock)

    for _ in range(50):
        clock.now += 0.1
        clock.now += pace.wait(40)

    assert clock.now == pytest.approx(150.0)


def test_what_was_late_is_not_made_up_for() -> None:
    clock = Clock()
    pace = Pace(10.0, clock)

    clock.now += 3600.0
    waits = [pace.wait(10) for _ in range(3)]

    assert waits == pytest.approx([0.0, 1.0, 2.0])


def test_a_rate_below_one_waits_for_seconds() -> None:
    assert Pace(0.1, Clock()).wait(1) == pytest.approx(10.0)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_at_which_nothing_goes_is_refused(rate: float) -> None:
    with pytest.raises(PipelineError, match="--rate: got"):
        check_rate(rate)
