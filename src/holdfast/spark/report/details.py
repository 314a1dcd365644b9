"""Across queues: failures, dead letters, hot keys, consumers, objectives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from .charts import strip
from .figures import Burn, Consumer, Failure, Figures, HotKey, Kept, Total
from .markup import Markup, name, shortened, tag
from .scales import Logarithmic
from .summary import promise
from .tables import Column, bar, spread_bar, table
from .timeline import Timeline
from .words import duration, moment, number, percent, stretch

LONGEST_EXAMPLE = 300  # characters
MOST_FAILURES = 25  # rows, as the others
MOST_KEYS = 25
MOST_CONSUMERS = 40
MOST_OBJECTIVES = 40
BURNING = ((0.0, "b-none"), (0.5, "b-some"), (1.0, "b-near"), (3.0, "b-over"))  # up to this burn


def failures(found: Sequence[Failure]) -> Markup | None:
    """Errors by fingerprint, the most frequent first."""
    if not found:
        return None
    shown = sorted(found, key=lambda failure: (-failure.messages, failure.queue, failure.fingerprint))[
        :MOST_FAILURES
    ]
    top = shown[0].messages
    columns = (
        Column("Failure", "wrap"),
        Column("Queue", None),
        Column("Messages"),
        Column("", "pic"),
        Column(
            "Ended by it",
            title="Failed, dead, discarded or expired with this error; the others were done after all",
        ),
        Column("First", "t"),
        Column("Last", "t"),
    )
    rows = [
        [
            _failure(each),
            name(each.queue),
            number(each.messages),
            bar([(each.fatal / top, "c-dead"), ((each.messages - each.fatal) / top, "c-overcome")]),
            number(each.fatal),
            moment(each.first_seen),
            moment(each.last_seen),
        ]
        for each in shown
    ]
    legend = tag(
        "div",
        tag("span", tag("i", class_="c-dead"), "ended the message"),
        tag("span", tag("i", class_="c-overcome"), "was overcome"),
        class_="legend",
    )
    return tag("div", legend, table(columns, rows, "Failures by fingerprint", "bars errors"))


def dead_letters(totals: Sequence[Total]) -> Markup | None:
    """How many dead letters each queue has now, and how many died in the range."""
    found = [total for total in totals if total.counts.dead or (total.live and total.live.dead)]
    if not found:
        return None
    pairs = sorted(
        ((total.live.dead if total.live else 0, total) for total in found), key=lambda p: (-p[0], p[1].queue)
    )
    top = max(pairs[0][0], 1)
    rows = [
        [name(total.queue), number(waiting), bar([(waiting / top, "c-dead")]), number(total.counts.dead)]
        for waiting, total in pairs
    ]
    columns = (Column("Queue", None), Column("Waiting now"), Column("", "pic"), Column("Died in the range"))
    return table(columns, rows, "Dead letters by queue", "bars")


def hot_keys(found: Sequence[HotKey], totals: Sequence[Total]) -> Markup | None:
    """Ordering keys with the most messages."""
    if not found:
        return None
    keyed = {total.queue: total.keyed for total in totals}
    shown = sorted(found, key=lambda key: (-key.messages, key.queue, key.key))[:MOST_KEYS]
    top = shown[0].messages
    rows = [
        [
            name(each.key),
            name(each.queue),
            number(each.messages),
            bar([(each.messages / top, "c-done")]),
            percent(each.messages / keyed[each.queue]) if keyed.get(each.queue) else "",
        ]
        for each in shown
    ]
    columns = (
        Column("Key", "wrap"),
        Column("Queue", None),
        Column("Messages"),
        Column("", "pic"),
        Column("Share", title="Of the messages of this queue that have a key"),
    )
    return table(columns, rows, "Hottest ordering keys", "bars")


def consumers(found: Sequence[Consumer]) -> Markup | None:
    """Who did the work and how fast, the slowest first."""
    if not found:
        return None
    ends = [end for each in found for end in (each.processing.p50, each.processing.p99) if end is not None]
    scale = Logarithmic.over(ends or [1.0])
    totals = {
        queue: sum(each.messages for each in group)
        for queue, group in groupby(sorted(found, key=lambda each: each.queue), key=lambda each: each.queue)
    }
    slowest = sorted(found, key=lambda each: (-(each.processing.p95 or 0), each.queue, each.consumer or ""))
    rows = [
        [
            name(each.consumer),
            name(each.queue),
            spread_bar(each.processing, scale),
            *map(duration, (each.processing.p50, each.processing.p95, each.processing.p99)),
            number(each.messages),
            percent(each.messages / totals[each.queue]),
            number(each.failures),
        ]
        for each in slowest[:MOST_CONSUMERS]
    ]
    columns = (
        Column("Consumer", "wrap"),
        Column("Queue", None),
        Column(
            "Processing p50 to p99",
            "pic",
            f"From {duration(scale.low)} to {duration(scale.high)}, logarithmic",
        ),
        Column("p50"),
        Column("p95"),
        Column("p99"),
        Column("Done"),
        Column("Share", title="Of the messages done by all consumers listed for this queue"),
        Column(
            "Failures before",
            title="How often the messages that it finished had failed before, whoever had them then",
        ),
    )
    return table(columns, rows, "Consumers by processing time", "bars")


def objectives(figures: Figures, timeline: Timeline) -> Markup | None:
    """Which promises were kept, when they were not, and how badly."""
    if not figures.objectives:
        return None
    worst_first = sorted(figures.objectives, key=lambda kept: -kept.overall)[:MOST_OBJECTIVES]
    rows = [_objective(kept, figures, timeline) for kept in worst_first]
    columns = (
        Column("Objective", None),
        Column("Burn over time", "pic"),
        Column("Missed", title="Stretches of the range in breach, of those with messages"),
        Column(
            "Burn",
            title="Share of messages that were too slow, by the share that may be; above 1 it is missed",
        ),
        Column("Worst", title="The highest burn of one stretch"),
        Column("When", "t"),
    )
    key = tag(
        "div",
        *(
            tag("span", tag("i", class_=level), words)
            for level, words in (
                ("b-none", "nothing too slow"),
                ("b-some", "up to half of what is allowed"),
                ("b-near", "up to all of it"),
                ("b-over", "missed"),
                ("b-far", "by more than three times"),
            )
        ),
        class_="legend",
    )
    return tag("div", key, table(columns, rows, "Objectives", "bars strips"))


def _failure(failure: Failure) -> Markup:
    example = shortened(failure.example, LONGEST_EXAMPLE)
    return tag(
        "div",
        tag("code", tag("bdi", failure.fingerprint)),
        tag("small", "e.g. ", tag("bdi", example)) if example != failure.fingerprint else None,
    )


def _objective(kept: Kept, figures: Figures, timeline: Timeline) -> list[Markup | str]:
    burns = timeline.burns(kept)
    worst = max(kept.burns, key=kept.burn, default=None)
    verdict = "bad" if kept.overall > 1 else None
    return [
        tag("div", tag("b", name(kept.objective.queue)), tag("br"), promise(kept)),
        strip(
            [level(kept.burn(burn)) if burn else "" for burn in burns],
            timeline.axis,
            [_tip(kept, burn, timeline) if burn else None for burn in burns],
            f"How {promise(kept)} of {kept.objective.queue} was kept over time",
        ),
        f"{number(len(kept.missed))} of {number(len(kept.burns))}",
        tag("span", f"{kept.overall:.2f}", class_=verdict),
        f"{kept.burn(worst):.2f}" if worst else "",
        stretch(worst.start, figures.bucket) if worst and worst.over else "",
    ]


def level(burn: float) -> str:
    """The colour of a burn."""
    return next((style for limit, style in BURNING if burn <= limit), "b-far")


def _tip(kept: Kept, burn: Burn, timeline: Timeline) -> str:
    slow = f"{number(burn.over)} of {number(burn.messages)} too slow"
    return f"{stretch(burn.start, timeline.bucket)}\n{slow}\nburn {kept.burn(burn):.2f}"
