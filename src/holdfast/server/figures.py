"""The figures of queues, for Prometheus: of so many queues, and not counted anew at each look."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from time import monotonic
from typing import cast

import msgspec
import psycopg
from msgspec import Raw
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from holdfast import __version__
from holdfast.client import HoldfastError, QueueStats
from holdfast.client._rows import record, scalar

from .engine import Engine

FRESH_SECONDS = 10.0
# In one statement, so that the figures are of one moment.
FIGURES = (
    b"select s.* from (select q.queue from holdfast.queues() q order by q.queue limit %s) q, "
    b"lateral holdfast.queue_stats(q.queue) s"
)
HOW_MANY = b"select count(*) from holdfast.queues()"
STATES = ("ready", "scheduled", "blocked", "in_flight", "dead")
COUNTED = ("sent", "nacked", "lapsed", "dead", "failed", "expired", "discarded", "moved")


class Figures(Collector):
    """What queue_stats says of each queue, a few seconds old at most."""

    def __init__(self, engine: Engine, most: int) -> None:
        """most: how many queues are counted, the first by name."""
        self._engine = engine
        self._most = most
        self._stats: list[QueueStats] = []
        self._queues = 0
        self._at = float("-inf")
        self._up = False
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Count, unless that was done a moment ago; who comes meanwhile waits for it, and not for another."""
        async with self._lock:
            if self._up and monotonic() - self._at < FRESH_SECONDS and not self._engine.connections.away:
                return
            try:
                await self._count()
            except (HoldfastError, psycopg.Error):
                self._up = False
                return
            self._up, self._at = True, monotonic()

    async def _count(self) -> None:
        (self._queues,) = await self._engine.fetch("queues", HOW_MANY, [], scalar(int))
        self._stats = []
        if self._most:
            self._stats = await self._engine.fetch("queue_stats", FIGURES, [self._most], record(QueueStats))

    def collect(self) -> Iterable[Metric]:
        """The figures as Prometheus wants them; none of queues while the database does not answer."""
        yield InfoMetricFamily("holdfast", "The server.", value={"version": __version__})
        yield GaugeMetricFamily("holdfast_database_up", "Whether the database answers.", value=self._up)
        if self._up:
            yield GaugeMetricFamily("holdfast_queues", "How many queues there are.", value=self._queues)
            yield from of_queues(self._stats)


def of_queues(stats: list[QueueStats]) -> Iterator[Metric]:
    """The figures of each queue."""
    states = GaugeMetricFamily("holdfast_queue_messages", "Messages, by state.", labels=["queue", "state"])
    age = GaugeMetricFamily(
        "holdfast_queue_oldest_age_seconds", "How long the oldest ready message waits.", labels=["queue"]
    )
    lines = GaugeMetricFamily(
        "holdfast_queue_blocked_lines", "Lines that stand at a dead message.", labels=["queue"]
    )
    paused = GaugeMetricFamily("holdfast_queue_paused", "Whether it hands out nothing.", labels=["queue"])
    events = CounterMetricFamily(
        "holdfast_queue_events",
        "What happened to messages of a queue, through any door, since it was made.",
        labels=["queue", "event"],
    )
    for each in stats:
        for state in STATES:
            states.add_metric([each.queue, state], getattr(each, state))
        age.add_metric([each.queue], each.oldest_age.total_seconds() if each.oldest_age else 0.0)
        lines.add_metric([each.queue], each.blocked_lines)
        paused.add_metric([each.queue], each.paused)
        counters: dict[str, int] = msgspec.json.decode(cast(Raw, each.counters))
        for event in COUNTED:
            events.add_metric([each.queue, event], counters[event])
    yield from (states, age, lines, paused, events)
