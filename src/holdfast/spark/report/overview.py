"""The top of the report: tiles, sentences, and the list of queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .charts import sparkline
from .figures import COUNTED, Counts, Figures, Spread, Total
from .markup import Child, Markup, name, tag
from .summary import busiest, sentences
from .tables import Column, table
from .timeline import Point
from .words import NOTHING, compact, duration, number, percent, plural, roughly, some, step

MOST_QUEUES = 200  # rows of the list
HAPPENED = (
    Column("Queue", None),
    Column("Done over time", "pic"),
    Column("Sent"),
    Column("Done"),
    Column("Failed", title="Used up their deliveries, and there is no dead-letter queue"),
    Column("Dead", title="Moved to the dead-letter queue"),
    Column("Expired"),
    Column("Discarded"),
    Column("Retries", title="Deliveries beyond the first"),
)
BAD = ("failed", "dead")
TOOK = (
    Column("Queue", None),
    Column("Waiting p50", title="From sent to claimed"),
    Column("p95"),
    Column("p99"),
    Column("Processing p50", title="From claimed to done"),
    Column("p95"),
    Column("p99"),
    Column("Ready now"),
    Column("In flight"),
    Column("Scheduled"),
    Column("Blocked"),
    Column("Oldest", title="How long the oldest message that is ready has waited"),
)


def tiles(figures: Figures) -> Markup:
    """The figures that are looked at first."""
    counts = sum((total.counts for total in figures.totals), Counts())
    dead = sum(total.live.dead for total in figures.totals if total.live)
    lost = f"{percent(counts.lost / counts.ended)} of what ended" if counts.ended else "nothing ended"
    return tag(
        "div",
        _tile("done", compact(counts.done), f"of {compact(counts.sent)} sent"),
        _tile("failed or dead", compact(counts.lost), lost, bad=counts.lost > 0),
        _slowest("waiting", figures.totals),
        _slowest("processing", figures.totals),
        _tile(
            "dead letters now", compact(dead), "wait for a decision" if dead else "none waits", bad=dead > 0
        ),
        _promises(figures) if figures.objectives else None,
        class_="tiles",
    )


def told(figures: Figures) -> Markup:
    """The sentences, queue by queue."""
    lines = [tag("li", tag("b", name(queue)), ": ", words) for queue, words in sentences(figures)]
    return tag("ul", *lines, class_="told")


def queue_list(figures: Figures, points: dict[str, list[Point | None]], detailed: Sequence[str]) -> Markup:
    """All queues: what happened in them, how long it took, and what is there now."""
    ranked = busiest(figures)
    shown = ranked[:MOST_QUEUES]
    rest = len(ranked) - len(shown)
    happened = [_happened(total, points.get(total.queue, []), total.queue in detailed) for total in shown]
    return tag(
        "div",
        table(HAPPENED, happened, "What happened in each queue", "wide"),
        table(
            TOOK, [_took(total) for total in shown], "How long it took, and what is there now", "wide next"
        ),
        tag("p", f"{plural(rest, 'more queue')} not listed.", class_="note") if rest else None,
    )


def anchor(queue: str) -> str:
    """Where a queue's own section is; the names of queues have no characters that a link does not take."""
    return f"queue-{queue}"


def _tile(label: str, value: str, remark: str, *, bad: bool = False) -> Markup:
    style = "tile bad" if bad else "tile"
    return tag("div", tag("b", value), tag("span", label), tag("small", remark), class_=style)


def _slowest(measure: str, totals: Sequence[Total]) -> Markup:
    measured = [total for total in totals if _spread(total, measure).p95 is not None]
    if not measured:
        return _tile(f"p95 {measure}", NOTHING, "not known")
    # An estimate does not tell which queue is the slowest.
    exact = [total for total in measured if measure not in total.estimated]
    slowest = max(exact or measured, key=lambda total: (_spread(total, measure).p95 or 0, total.queue))
    where = "" if len(totals) == 1 else f"in {slowest.queue}, the slowest"
    value = _worded(slowest, measure)(_spread(slowest, measure).p95)
    return _tile(f"p95 {measure}", value, where)


def _spread(total: Total, measure: str) -> Spread:
    found: Spread = getattr(total, measure)
    return found


def _worded(total: Total, measure: str) -> Callable[[float | None], str]:
    """How a duration of a queue is put."""
    return roughly if measure in total.estimated else duration


def _promises(figures: Figures) -> Markup:
    promised = len(figures.objectives)
    missed = sum(kept.overall > 1 for kept in figures.objectives)
    breaches = sum(len(kept.missed) for kept in figures.objectives)
    remark = f"{plural(breaches, step(figures.bucket))} in breach"
    return _tile("objectives kept", f"{promised - missed} of {promised}", remark, bad=breaches > 0)


def _happened(total: Total, points: Sequence[Point | None], detailed: bool) -> list[Child]:
    counts, shown = total.counts, name(total.queue)
    done = [point.counts.done if point else 0 for point in points]
    return [
        tag("a", shown, href=f"#{anchor(total.queue)}") if detailed else shown,
        sparkline(done, f"Done over time in {total.queue}") if any(done) else None,
        *(
            _count(getattr(counts, each), bad=each in BAD, rough=each in total.estimated) for each in COUNTED
        ),
    ]


def _took(total: Total) -> list[Child]:
    waiting, processing, live = total.waiting, total.processing, total.live
    age = live.oldest_age.total_seconds() if live and live.oldest_age else None
    now = (live.ready, live.in_flight, live.scheduled, live.blocked) if live else None
    return [
        name(total.queue),
        *map(_worded(total, "waiting"), (waiting.p50, waiting.p95, waiting.p99)),
        *map(_worded(total, "processing"), (processing.p50, processing.p95, processing.p99)),
        *(map(_count, now) if now else (NOTHING,) * 4),
        duration(age),
    ]


def _count(value: int, *, bad: bool = False, rough: bool = False) -> Markup:
    shown = some(value) if rough else number(value)
    return tag("span", shown, class_="zero" if value == 0 else "bad" if bad else None)
