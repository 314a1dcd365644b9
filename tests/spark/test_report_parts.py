"""The small parts of the report: words, scales, objectives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.spark.report.figures import Objective
from holdfast.spark.report.objectives import parsed
from holdfast.spark.report.scales import Linear, Logarithmic, Time
from holdfast.spark.report.words import compact, duration, percent, step, stretch

DAY = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0000021, "2.1 µs"),
        (0.00321, "3.2 ms"),
        (0.0999, "100 ms"),
        (0.9996, "1 s"),
        (1.0, "1 s"),
        (3.21, "3.2 s"),
        (41.4, "41 s"),
        (59.96, "1 min"),
        (75.0, "1 min 15 s"),
        (5400.0, "1 h 30 min"),
        (7199.9, "2 h"),
        (90000.0, "1 d 1 h"),
    ],
)
def test_durations_have_two_digits_or_two_units(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.00001, "< 0.1 %"),
        (0.005, "0.5 %"),
        (0.0123, "1.2 %"),
        (0.96, "96 %"),
        (0.9999, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_shares_are_never_rounded_to_nothing_or_everything(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (999, "999"), (1250, "1.2 k"), (45_000, "45 k"), (5e6, "5 M")]
)
def test_large_numbers_are_short_on_axes(value: float, text: str) -> None:
    assert compact(value) == text


def test_a_stretch_of_time_is_a_day_or_from_one_time_to_another() -> None:
    assert stretch(DAY, timedelta(days=1)) == "18 Nov 2026"
    assert stretch(DAY, timedelta(days=2)) == "18 Nov 2026 – 19 Nov 2026"
    assert stretch(DAY, timedelta(minutes=5)) == "18 Nov, 00:00–00:05"
    assert [step(timedelta(minutes=n)) for n in (1, 5, 60, 1440)] == [
        "minute",
        "step",
        "hour",
        "day",
    ]


@pytest.mark.parametrize(
    ("highest", "labels"),
    [
        (0, ["0", "1"]),
        (3, ["0", "1", "2", "3"]),
        (30_100, ["0", "10 k", "20 k", "30 k", "40 k"]),
        (1_000_000, ["0", "500 k", "1 M"]),
    ],
)
def test_a_scale_of_counts_ends_at_a_round_number(highest: float, labels: list[str]) -> None:
    assert [tick.label for tick in Linear.up_to(highest).ticks()] == labels


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([0.02, 3.0], ["10 ms", "100 ms", "1 s", "10 s"]),
        ([1.0], ["100 ms", "1 s", "10 s"]),
        ([0.0, 4e9], ["1 µs", "100 µs", "10 ms", "1 s", "1 min", "1 h", "1 d", "100 d"]),
    ],
)
def test_a_scale_of_durations_has_steps_that_clocks_show(values: list[float], labels: list[str]) -> None:
    scale = Logarithmic.over(values)

    assert [tick.label for tick in scale.ticks()] == labels
    assert all(0 <= scale.at(value) <= 1 for value in values)


def test_a_scale_of_time_has_midnights_and_full_hours() -> None:
    days = Time(DAY + timedelta(hours=5), DAY + timedelta(days=4))
    hours = Time(DAY + timedelta(minutes=50), DAY + timedelta(hours=4))

    assert [tick.label for tick in days.ticks()] == [
        "12:00",
        "19 Nov",
        "12:00",
        "20 Nov",
        "12:00",
        "21 Nov",
        "12:00",
        "22 Nov",
    ]
    assert [tick.label for tick in hours.ticks()] == [
        "01:00",
        "01:30",
        "02:00",
        "02:30",
        "03:00",
        "03:30",
        "04:00",
    ]
    assert hours.ticks()[-1].at == 1


def test_objectives_are_read_as_people_write_them() -> None:
    assert parsed("eu:orders.v2: waiting p95 < 30s, processing p99<1.5 min") == [
        Objective("eu:orders.v2", "waiting", 95, 30.0),
        Objective("eu:orders.v2", "processing", 99, 90.0),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "names no queue"),
        ("waiting p95 < 30s", "names no queue"),
        ("a b: waiting p95 < 30s", "names no queue"),
        ("q:", "is no objective"),
        ("q: waiting p95 > 30s", "is no objective"),
        ("q: waiting p97 < 30s", "is no objective"),
        ("q: sleeping p95 < 30s", "is no objective"),
        ("q: waiting p95 < 30s,", "is no objective"),
        ("q: waiting p95 < 30", "is no objective"),
        ("q: waiting p95 < 30y", "is no unit of time"),
        ("q: waiting p95 < 0s", "cannot be kept"),
    ],
)
def test_what_is_no_objective_is_refused_with_what_was_expected(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"{reason}.*expected"):
        parsed(text)
