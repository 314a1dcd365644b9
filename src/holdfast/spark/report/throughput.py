"""What ended over time, by how it ended; and all that the plots of a queue show, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Series, columns
from .figures import OUTCOMES
from .markup import Markup
from .tables import Column, folded, table
from .timeline import Point, Timeline
from .words import duration, number, stretch

COUNTS = ("sent", "done", "failed", "dead", "expired", "discarded", "retries")
HEADS = (
    "Time",
    *(name.capitalize() for name in COUNTS),
    "Waiting p50",
    "p95",
    "p99",
    "Processing p50",
    "p95",
    "p99",
)


def ended(points: Sequence[Point | None], timeline: Timeline, label: str) -> Markup:
    """Columns of all that ended."""
    return columns(_series(points, OUTCOMES, always="done"), timeline.axis, _tips(points, timeline), label)


def not_done(points: Sequence[Point | None], timeline: Timeline, label: str) -> Markup | None:
    """Columns of what ended otherwise, on a scale of its own: beside what is done it would not be seen."""
    series = _series(points, OUTCOMES[1:])
    return columns(series, timeline.axis, _tips(points, timeline), label) if series else None


def figures_table(points: Sequence[Point | None], timeline: Timeline, caption: str) -> Markup:
    """What the plots show, as a table."""
    rows = [_row(point, timeline) for point in points if point]
    return folded("Table", table([Column(head, None) for head in HEADS], rows, caption, "wide figures"))


def _series(
    points: Sequence[Point | None], outcomes: Sequence[str], always: str | None = None
) -> list[Series]:
    """A row of values for each outcome that occurs."""
    found = [
        Series(each, f"c-{each}", [getattr(point.counts, each) if point else None for point in points])
        for each in outcomes
    ]
    return [series for series in found if series.name == always or any(series.values)]


def _tips(points: Sequence[Point | None], timeline: Timeline) -> list[str | None]:
    return [_tip(point, timeline) if point else None for point in points]


def _tip(point: Point, timeline: Timeline) -> str:
    happened = [(each, getattr(point.counts, each)) for each in COUNTS]
    lines = [f"{number(count)} {each}" for each, count in happened if count or each in ("sent", "done")]
    return "\n".join([stretch(point.start, timeline.stride), *lines])


def _row(point: Point, timeline: Timeline) -> list[str]:
    waiting, processing = point.waiting, point.processing
    return [
        stretch(point.start, timeline.stride),
        *(number(getattr(point.counts, each)) for each in COUNTS),
        *map(duration, (waiting.p50, waiting.p95, waiting.p99)),
        *map(duration, (processing.p50, processing.p95, processing.p99)),
    ]
