"""The few sentences that an operator needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

from .figures import Failure, Figures, Kept, Live, Total
from .markup import shortened
from .words import duration, number, percent, plural, roughly, some, step

MOST_SENTENCES = 8  # queues that are told of
LONGEST_NAME = 90  # characters of a failure in a sentence
OLD = timedelta(hours=1)


def sentences(figures: Figures) -> list[tuple[str, str]]:
    """For each of the busiest queues its name, and what is to be said about it."""
    return [(total.queue, " ".join(_of_queue(total, figures))) for total in busiest(figures)[:MOST_SENTENCES]]


def busiest(figures: Figures) -> list[Total]:
    """The queues, those in which most happened first; then by what waits in them."""

    def activity(total: Total) -> tuple[int, int, str]:
        waiting = total.live.ready + total.live.dead if total.live else 0
        return -(total.counts.sent + total.counts.ended), -waiting, total.queue

    return sorted(figures.totals, key=activity)


def _of_queue(total: Total, figures: Figures) -> Iterator[str]:
    yield _what_happened(total)
    yield from _what_failed(total, figures.failures)
    for kept in figures.objectives:
        if kept.objective.queue == total.queue and kept.missed:
            yield _what_was_missed(kept, step(figures.bucket))
    if total.live:
        yield from _what_waits(total.live)


def _what_happened(total: Total) -> str:
    counts = total.counts
    facts = [
        f"{some(count) if name in total.estimated else number(count)} {name}"
        for name in ("done", "dead", "failed", "expired", "discarded")
        if (count := getattr(counts, name)) or name == "done"
    ]
    for name, spread in (("waiting", total.waiting), ("processing", total.processing)):
        if spread.p95 is not None:
            worded = roughly if name in total.estimated else duration
            facts.append(f"p95 {name} {worded(spread.p95)}")
    if not (counts.sent or counts.ended):
        return "nothing happened."
    return ", ".join(facts) + "."


def _what_failed(total: Total, failures: Sequence[Failure]) -> Iterator[str]:
    mine = [failure for failure in failures if failure.queue == total.queue]
    if total.fatal:
        worst = max(mine, key=lambda failure: failure.fatal)
        yield f"{percent(worst.fatal / total.fatal)} of failures are {quoted(worst.fingerprint)}."
    elif total.erring:
        worst = max(mine, key=lambda failure: failure.messages)
        yield (
            f"{plural(total.erring, 'message')} failed at first,"
            f" {percent(worst.messages / total.erring)} with {quoted(worst.fingerprint)}."
        )


def _what_was_missed(kept: Kept, step: str) -> str:
    of_all = f"{number(len(kept.missed))} of {plural(len(kept.burns), step)}"
    verdict = "Missed" if kept.overall > 1 else "Kept over all, but missed at times"
    return f"{verdict}: {promise(kept)}, in {of_all}; burn {kept.overall:.2f}."


def _what_waits(live: Live) -> Iterator[str]:
    if live.dead:
        yield f"{plural(live.dead, 'dead letter')} {'waits' if live.dead == 1 else 'wait'} for a decision."
    if live.oldest_age and live.oldest_age > OLD:
        yield f"The oldest message has waited for {duration(live.oldest_age.total_seconds())}."


def promise(kept: Kept) -> str:
    """waiting p95 < 30 s."""
    objective = kept.objective
    return f"{objective.measure} p{objective.percentile} < {duration(objective.limit)}"


def quoted(text: str) -> str:
    """A failure in a sentence."""
    return f"«{shortened(text, LONGEST_NAME)}»"
