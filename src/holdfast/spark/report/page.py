"""The whole report: one HTML file that loads nothing, runs nothing, and opens anywhere."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib.resources import files

from .details import consumers, dead_letters, failures, hot_keys, objectives
from .figures import Bucket, Figures
from .markup import Child, Markup, tag
from .overview import queue_list, tiles, told
from .queues import queue_section
from .summary import busiest
from .throughput import ended, figures_table, not_done
from .timeline import Point, Timeline
from .words import length, moment, plural

DETAILED_QUEUES = 6  # with plots of their own
SPARKED_QUEUES = 60  # with a small one in the list
# Should anything that a message says ever pass as markup, it could still neither load nor run anything.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def render(figures: Figures) -> str:
    """The report as HTML."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"Holdfast insights, {_range(figures)}"),
        tag("style", Markup(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))),
    )
    body = tag("body", _header(figures), tag("main", *_sections(figures)), _footer(figures))
    return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _header(figures: Figures) -> Markup:
    told = (
        f"{_range(figures)} UTC, {plural(len(figures.totals), 'queue')}, in steps of {length(figures.bucket)}"
    )
    return tag("header", tag("h1", "Holdfast insights"), tag("p", told))


def _range(figures: Figures) -> str:
    return f"{moment(figures.since)} to {moment(figures.until)}"


def _sections(figures: Figures) -> Iterator[Markup]:
    if not any(total.counts.sent or total.counts.ended for total in figures.totals):
        words = tag("p", "In this range nothing was sent, and nothing ended.")
        yield tag("section", tag("h2", "Nothing to show"), words)
        if figures.totals:
            yield from _section("Queues", "as they are now", queue_list(figures, {}, ()))
        return
    timeline = Timeline(figures.since, figures.until, figures.bucket)
    points = _points(figures, timeline)
    everything = timeline.points(figures.buckets)
    detailed = [total for total in busiest(figures)[:DETAILED_QUEUES] if any(points[total.queue])]

    yield tag("section", tag("h2", "Summary"), tiles(figures), told(figures))
    yield from _section(
        "Objectives", "what was promised, and when it was not kept", objectives(figures, timeline)
    )
    yield tag(
        "section",
        _title("Throughput", _merged(timeline) or "ended messages of all queues, by outcome"),
        tag("figure", ended(everything, timeline, "Throughput of all queues over time")),
        _not_done(everything, timeline),
        figures_table(
            everything, timeline, "All queues over time; their percentiles are the highest of any queue"
        ),
    )
    names = [total.queue for total in detailed]
    yield from _section("Queues", "over the whole range", queue_list(figures, points, names))
    yield from _section(
        "Failures", "by fingerprint: numbers, ids and the like are folded", failures(figures.failures)
    )
    yield from _section("Dead letters", "by the queue they came from", dead_letters(figures.totals))
    yield from _section(
        "Hottest keys", "ordering keys with the most messages", hot_keys(figures.keys, figures.totals)
    )
    yield from _section("Slowest consumers", "by processing time", consumers(figures.consumers))
    if detailed:
        sections = [queue_section(figures, total, points[total.queue], timeline) for total in detailed]
        yield tag("section", _title("Queue by queue", _merged(timeline)), *sections, class_="queues")


def _not_done(points: Sequence[Point | None], timeline: Timeline) -> Markup | None:
    drawn = not_done(points, timeline, "What was not done in all queues over time")
    caption = tag("figcaption", tag("b", "Not done"), " ", tag("span", "failed, dead, expired, discarded"))
    return tag("figure", caption, drawn, class_="low") if drawn else None


def _section(title: str, remark: str, content: Child) -> Iterator[Markup]:
    if content is not None:
        yield tag("section", _title(title, remark), content)


def _title(title: str, remark: str | None) -> Markup:
    return tag("h2", title, tag("small", remark) if remark else None)


def _merged(timeline: Timeline) -> str | None:
    """What is to be said where buckets share a point."""
    if timeline.merged == 1:
        return None
    return (
        f"a point is {length(timeline.stride)}: its counts are summed up, its percentiles the highest in it"
    )


def _points(figures: Figures, timeline: Timeline) -> dict[str, list[Point | None]]:
    by_queue: dict[str, list[Bucket]] = defaultdict(list)
    for bucket in figures.buckets:
        by_queue[bucket.queue].append(bucket)
    ranked = busiest(figures)[:SPARKED_QUEUES]
    return {total.queue: timeline.points(by_queue[total.queue]) for total in ranked}


def _footer(figures: Figures) -> Markup:
    return tag(
        "footer",
        tag("h2", "How to read it"),
        tag("ul", *(tag("li", note) for note in (*NOTES, *figures.notes))),
        tag("p", f"Made by holdfast pipeline run insights on {moment(figures.made_at)} UTC."),
    )


NOTES = (
    "All times are UTC. A message counts where it ended, and as sent where it was sent.",
    "Waiting is from sent to claimed, retries and delays included; processing is from that claim to done."
    " Both are known of messages that are done and kept, and percentiles of them are right within 1 %.",
    "Failures are messages with an error, by the last one that they had.",
    "What has a ~ comes from the samples of each minute. They count ids: one of a send that was rolled back"
    " counts as sent, and as done.",
    "The burn of an objective is the share of messages that were too slow, by the share that may be:"
    " of waiting p95 < 30 s, 5 % may be.",
)
