"""Queue by queue: throughput, waiting and processing time over time."""

from __future__ import annotations

from collections.abc import Sequence

from .charts import Series, lines
from .figures import Figures, Objective, Spread, Total
from .markup import Child, Markup, name, tag
from .overview import anchor
from .throughput import ended, figures_table, not_done
from .timeline import Point, Timeline
from .words import duration, plural, stretch

PERCENTILES = ("p50", "p95", "p99")


def queue_section(
    figures: Figures, total: Total, points: Sequence[Point | None], timeline: Timeline
) -> Markup:
    """One queue's plots, and the table behind them."""
    return tag(
        "section",
        tag("h3", name(total.queue)),
        _estimates(total),
        tag(
            "div",
            _panel(
                "Throughput",
                "ended, by outcome",
                ended(points, timeline, f"Throughput of {total.queue} over time"),
            ),
            _others(total, points, timeline),
            _spreads("waiting", "Waiting time", "from sent to claimed", figures, total, points, timeline),
            _spreads(
                "processing", "Processing time", "from claimed to done", figures, total, points, timeline
            ),
            class_="panels",
        ),
        figures_table(points, timeline, f"{total.queue} over time"),
        id=anchor(total.queue),
        class_="queue",
    )


def _others(total: Total, points: Sequence[Point | None], timeline: Timeline) -> Markup | None:
    drawn = not_done(points, timeline, f"What was not done in {total.queue} over time")
    return _panel("Not done", "failed, dead, expired, discarded", drawn) if drawn else None


def _spreads(
    measure: str,
    title: str,
    remark: str,
    figures: Figures,
    total: Total,
    points: Sequence[Point | None],
    timeline: Timeline,
) -> Markup:
    spreads: list[Spread | None] = [getattr(point, measure) if point else None for point in points]
    series = [
        Series(each, f"l-{each}", [getattr(spread, each) if spread else None for spread in spreads])
        for each in reversed(PERCENTILES)
    ]
    tips = [
        _tip(spread, point, timeline) if point and spread and spread.messages else None
        for spread, point in zip(spreads, points, strict=True)
    ]
    limits = [
        (each.limit, f"p{each.percentile} < {duration(each.limit)}")
        for each in _promised(figures, total.queue, measure)
    ]
    drawn = lines(
        series, timeline.axis, tips, f"{title} of {total.queue} over time, as p50, p95 and p99", limits
    )
    return _panel(
        title,
        remark,
        drawn or tag("p", "Not known: nothing that is done was kept or sampled.", class_="none"),
    )


def _promised(figures: Figures, queue: str, measure: str) -> list[Objective]:
    promised = [kept.objective for kept in figures.objectives]
    return [each for each in promised if each.queue == queue and each.measure == measure]


def _tip(spread: Spread, point: Point, timeline: Timeline) -> str:
    values = [f"{each} {duration(getattr(spread, each))}" for each in reversed(PERCENTILES)]
    return "\n".join([stretch(point.start, timeline.stride), *values, plural(spread.messages, "message")])


def _panel(title: str, remark: str, content: Child) -> Markup:
    return tag("figure", tag("figcaption", tag("b", title), " ", tag("span", remark)), content)


def _estimates(total: Total) -> Markup | None:
    if not total.estimated:
        return None
    return tag("p", f"Estimates, from the minute samples: {', '.join(total.estimated)}.", class_="note")
