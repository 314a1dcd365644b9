"""Insights, without Spark: the range, what is refused, and how rollups are cut and told."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from holdfast.spark.pipelines import _rollups
from holdfast.spark.pipelines._figures import Gathered, bucket, totals
from holdfast.spark.pipelines._pipeline import PipelineError
from holdfast.spark.pipelines.insights import Insights, ranged, replaced, shown
from holdfast.spark.report.figures import Counts, Objective, Spread, Total
from holdfast.spark.transforms.insights.facts import COUNTED, Range
from holdfast.spark.transforms.insights.insight import SPREADS
from holdfast.spark.transforms.insights.percentiles import bin_of, value_of
from tests.engine.engine import T0

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SPAN = Range(T0, T0 + DAY, HOUR)


def a_row(queue: str, hour: int, **figures: Any) -> Row:
    """A rollup as Spark hands it out: its times have no zone."""
    nothing = dict.fromkeys(COUNTED, 0) | dict.fromkeys(SPREADS) | {"waiting_count": 0, "processing_count": 0}
    start = (T0 + hour * HOUR).astimezone().replace(tzinfo=None)
    lists = dict.fromkeys(("errors", "keys", "consumers", "objectives"))
    return Row(**{"queue": queue, "start": start, **nothing, **lists, "estimated": [], **figures})


@pytest.mark.parametrize(
    ("since", "label"),
    [(HOUR, "1m"), (400 * timedelta(minutes=1), "1m"), (7 * HOUR, "5m"), (2 * DAY, "1h"), (17 * DAY, "1d")],
)
def test_buckets_are_as_small_as_a_plot_can_show(since: timedelta, label: str) -> None:
    assert ranged(since, timedelta(), None, T0)[1] == label


def test_a_range_is_made_of_whole_buckets() -> None:
    span, label = ranged(T0 + timedelta(minutes=1), timedelta(minutes=5), "1h", T0 + 2 * HOUR)

    assert (span, label) == (Range(T0, T0 + 2 * HOUR, HOUR), "1h")


@pytest.mark.parametrize(
    ("since", "until", "bucket", "expected"),
    [
        (timedelta(), timedelta(), None, "expected --since to be before --until"),
        (T0 + HOUR, T0, None, "expected --since to be before --until"),
        (3 * DAY, timedelta(), "1m", "--bucket 1m: got more than 3,000"),
    ],
)
def test_a_range_that_cannot_be_is_refused(
    since: datetime | timedelta, until: datetime | timedelta, bucket: str | None, expected: str
) -> None:
    with pytest.raises(PipelineError, match=expected):
        ranged(since, until, bucket, T0 + DAY)


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"bucket": "2h"}, "--bucket: got 2h; expected one of 1m, 5m, 1h, 1d"),
        ({"objectives": ["q: p95"]}, "--objective: 'p95' is no objective"),
        ({"objectives": ["q: waiting p95 < 5s"] * 101}, "--objective: expected at most 100"),
        ({"report": "/nowhere/r.html"}, "--report: got /nowhere/r.html"),
        ({"report": None, "rollups": False}, "got nothing to write"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(parameters: dict[str, Any], expected: str) -> None:
    with pytest.raises(PipelineError, match=expected):
        Insights(**parameters).check()


def test_two_that_write_the_same_exclude_each_other() -> None:
    assert Insights(queues=["a", "b"]).exclusive == Insights(queues=["b", "a"]).exclusive
    assert Insights(queues=["a"]).exclusive != Insights(queues=["b"]).exclusive
    assert Insights(queues=["a"], output="/o").exclusive == Insights(queues=["b"], output="/o").exclusive


def test_stretches_cover_the_range_without_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rollups, "ROWS_PER_CALL", 2)
    rows = [a_row("q", hour) for hour in (3, 5, 9, 10, 20)]

    found = [
        ((since - T0) // HOUR, (until - T0) // HOUR, len(rows))
        for since, until, rows in _rollups.stretches(rows, SPAN)
    ]

    assert found == [(0, 9, 2), (9, 20, 2), (20, 24, 1)]


def test_a_rollup_is_told_without_examples_and_empty_lists() -> None:
    error = Row(fingerprint="f", messages=2, fatal=1, first_seen=a_row("q", 1).start, example="long")

    told = _rollups.told(a_row("q", 2, sent=4, waiting_p95=1.5, errors=[error], keys=[]))

    assert (told["start"], told["sent"], told["waiting_p95"]) == ("2030-01-01T02:00:00+00:00", 4, 1.5)
    assert told["details"] == {
        "errors": [{"fingerprint": "f", "messages": 2, "fatal": 1, "first_seen": "2030-01-01T01:00:00+00:00"}]
    }


def test_queues_without_a_plot_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spark.pipelines._figures.SPARKED_QUEUES", 1)
    gathered = Gathered(SPAN, [Total("a", Counts(done=9)), Total("b", Counts()), Total("c", Counts())], [])
    for name, p95 in (("a", 1.0), ("b", 2.0), ("c", 3.0)):
        gathered.add(a_row(name, 0, done=5, waiting_count=1, waiting_p95=p95))

    own, others = gathered.figures([], T0, []).buckets

    assert (own.queue, own.counts.done) == ("a", 5)
    assert (others.queue, others.counts.done, others.waiting.p95) == ("", 10, 3.0)


def test_an_objective_gathers_its_buckets() -> None:
    objective = Objective("q", "waiting", 95, 5.0)
    gathered = Gathered(SPAN, [Total("q", Counts())], [objective])
    burned = Row(measure="waiting", percentile=95, seconds=5.0, messages=10, over=2)
    gathered.add(a_row("q", 3, objectives=[burned]))

    (kept,) = gathered.figures([], T0, []).objectives

    assert (kept.objective, kept.missed[0].start) == (objective, T0 + 3 * HOUR)
    assert kept.overall == pytest.approx(4)


def test_a_queue_in_which_nothing_happened_has_a_total_too() -> None:
    row = a_row("q", 0, sent=3, erring_count=2, fatal_count=1, keyed=1, waiting_count=1, waiting_p50=0.5)

    found = totals(["idle", "q"], [row], {})

    assert found == [
        Total("idle", Counts()),
        Total("q", Counts(sent=3), Spread(1, 0.5), Spread(), (), 2, 1, 1),
    ]


def test_percentiles_from_samples_are_the_ends_of_classes() -> None:
    row = a_row(
        "q", 0, waiting_count=2, waiting_p50=value_of(bin_of(10)), waiting_p99=7.0, processing_p50=0.99
    )

    found = bucket(Row(**{**row.asDict(), "estimated": ["waiting"]}))

    assert (found.waiting.p50, found.waiting.p99, found.processing.p50) == (10.0, 7.0, 0.99)


def test_times_without_a_zone_are_local() -> None:
    assert bucket(a_row("q", 5)).start == T0 + 5 * HOUR


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    path.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        replaced(path, "new \ud800")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("r.html", "old")]
    replaced(path, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("r.html", "new")]


def test_many_names_are_shortened() -> None:
    assert shown(["a", "b"]) == "a, b"
    assert shown([str(n) for n in range(7)]) == "0, 1, 2, 3, 4 and 2 more"
