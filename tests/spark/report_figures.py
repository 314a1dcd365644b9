"""Figures for tests of the report: a fleet of queues over two weeks, with some trouble in it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import pi, sin
from random import Random

from holdfast.spark.report.figures import (
    Bucket,
    Burn,
    Consumer,
    Counts,
    Failure,
    Figures,
    HotKey,
    Kept,
    Live,
    Objective,
    Spread,
    Total,
)

SINCE = datetime(2026, 11, 4, tzinfo=UTC)
UNTIL = datetime(2026, 11, 18, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


def fleet(queues: int = 5, bucket: timedelta = HOUR, names: int = 6) -> Figures:
    """So many queues, all of them busy; so many keys, consumers and failures of each."""
    chance = Random(4711)
    queue_names = [
        *("orders", "emails", "webhooks", "thumbnails", "ledger"),
        *(f"queue-{n}" for n in range(5, queues)),
    ]
    chosen = queue_names[:queues]
    series = {queue: _buckets(queue, bucket, n, chance) for n, queue in enumerate(chosen)}
    return Figures(
        since=SINCE,
        until=UNTIL,
        bucket=bucket,
        made_at=UNTIL,
        totals=[_total(queue, buckets) for queue, buckets in series.items()],
        buckets=[each for buckets in series.values() for each in buckets],
        failures=[
            _failure(queue, n, 4000 // (n + 1) // (m + 1))
            for m, queue in enumerate(chosen)
            for n in range(names)
        ],
        keys=[HotKey(queue, f"customer-{n}", 9000 // (n + 1)) for queue in chosen[:3] for n in range(names)],
        consumers=[_consumer(queue, n) for queue in chosen[:3] for n in range(names)],
        objectives=[_kept(queue, series[queue], chance) for queue in chosen[:3]],
    )


def _buckets(queue: str, bucket: timedelta, n: int, chance: Random) -> list[Bucket]:
    found = []
    for place in range(int((UNTIL - SINCE) / bucket)):
        start = SINCE + place * bucket
        day = 0.55 - 0.45 * sin(2 * pi * (start.hour + start.minute / 60) / 24 + 1)
        trouble = 8.0 if queue == "orders" and 200 <= place < 212 else 1.0
        done = int(12000 / (n + 1) * day * chance.uniform(0.85, 1.15) / (2 if trouble > 1 else 1))
        counts = Counts(
            sent=int(done * 1.02),
            done=done,
            dead=int(done * 0.004 * trouble),
            failed=int(done * 0.01) if queue == "webhooks" else 0,
            expired=int(done * 0.006) if queue == "thumbnails" else 0,
            discarded=3 if place % 50 == 7 else 0,
            retries=int(done * 0.03 * trouble),
        )
        waiting = Spread(done, 0.05 * trouble * day, 0.9 * trouble**1.6 * day, 3.1 * trouble**1.8 * day)
        processing = Spread(
            done, 0.012 + n * 0.004, 0.08 * chance.uniform(0.8, 1.3), 0.4 * chance.uniform(0.6, 2)
        )
        if not (queue == "ledger" and 120 < place < 170):
            found.append(Bucket(queue, start, counts, waiting, processing))
    return found


def _total(queue: str, buckets: list[Bucket]) -> Total:
    counts = sum((each.counts for each in buckets), Counts())
    live = Live(1204, 30, 0, 64, counts.dead // 3, timedelta(minutes=2), True)
    return Total(
        queue,
        counts,
        Spread(counts.done, 0.06, 3.2, 18.0),
        Spread(counts.done, 0.014, 0.09, 0.5),
        ("sent", "dead") if queue == "emails" else (),
        erring=9000,
        fatal=4300,
        keyed=60000,
        live=live,
    )


def _failure(queue: str, n: int, messages: int) -> Failure:
    texts = (
        ("card declined", "card declined"),
        ("timeout after <n> s at <ip>", "timeout after 30 s at 10.0.3.7:443"),
        ("order <uuid> not found", "order 7b4f6e6e-0f53-4a21-a7a5-0b1a7a7b8d11 not found"),
        ("HTTP <n> from <url>", "HTTP 503 from a service"),
        ("KeyError: <text>", "KeyError: 'shipping_address'"),
        (
            "ValueError: invalid literal for int() with base <n>: <text>",
            "ValueError: invalid literal for int() with base 10: 'x'",
        ),
    )
    fingerprint, example = texts[n % len(texts)]
    return Failure(
        queue, fingerprint, messages, messages * 3 // 4, SINCE + n * HOUR, UNTIL - n * HOUR, example
    )


def _consumer(queue: str, n: int) -> Consumer:
    slow = 6.0 if n == 2 else 1.0
    spread = Spread(9000, 0.012 * slow, 0.07 * slow, 0.3 * slow)
    return Consumer(queue, None if n == 5 else f"worker-{n}.eu-1", 90000 - 9000 * n, 40 * n, spread)


def _kept(queue: str, buckets: list[Bucket], chance: Random) -> Kept:
    burns = [
        Burn(
            each.start,
            each.counts.done,
            int(each.counts.done * (0.4 if (each.waiting.p95 or 0) > 8 else chance.uniform(0, 0.04))),
        )
        for each in buckets
    ]
    return Kept(Objective(queue, "waiting", 95, 30.0), tuple(burns))
