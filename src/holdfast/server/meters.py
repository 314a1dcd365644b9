"""What a server counts and measures of its own work, for Prometheus.

Several processes of one server share a folder of files, in which each counts for itself: whichever of them is
asked answers for all. Gauges are those of the processes that live.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector

from .visit import Visit

if TYPE_CHECKING:
    from .service import Service

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # the client library's own
MOST_QUEUES = 1_000  # that have counters of their own
OTHER = "other"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, which tells nothing

EVENTS = {
    "ack": "acked",
    "nack": "nacked",
    "reject": "rejected",
    "release": "released",
    "extend": "extended",
}


def shared_folder() -> str | None:
    """Where several processes count together; None if this one is alone."""
    return os.environ.get(FOLDER_VARIABLE)


class Meters:
    """The counters and gauges of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        if shared_folder() is not None:
            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
            own = None  # type: ignore[assignment]  # what the files say is what is told
        self.own: CollectorRegistry | None = own  # where those are registered that count here
        self._requests = Counter(
            "holdfast_http_requests",
            "Requests that were answered.",
            ["route", "method", "status"],
            registry=own,
        )
        self._durations = Histogram(
            "holdfast_http_request_duration_seconds",
            "From the request to the beginning of its answer; a claim's wait counts.",
            ["route", "method"],
            buckets=SECONDS,
            registry=own,
        )
        self._messages = Counter(
            "holdfast_messages",
            "Messages that passed this server, by what happened to them.",
            ["queue", "event"],
            registry=own,
        )
        self._batches = Histogram(
            "holdfast_coalesced_requests",
            "Requests that one call of the database served.",
            ["call"],
            buckets=SIZES,
            registry=own,
        )
        self._gauges = {
            name: Gauge(f"holdfast_{name}", text, registry=own, multiprocess_mode="livesum")
            for name, text in {
                "pool_connections": "Connections of the pool to the database.",
                "pool_connections_in_use": "Connections of the pool that are at work.",
                "pool_waiting": "Callers that wait for a connection of the pool.",
                "streams_open": "Work streams that are open.",
                "claims_waiting": "Claims that wait for messages, those of streams too.",
            }.items()
        }
        self._known_requests: dict[tuple[str | None, str, int], tuple[Counter, Histogram]] = {}
        self._known_messages: dict[tuple[str, str], Counter] = {}
        self._queues: set[str] = set()

    def request(self, method: str, visit: Visit, seconds: float) -> None:
        """A request was answered."""
        key = (visit.route, method, visit.status // 100)
        known = self._known_requests.get(key)
        if known is None:
            known = self._known_requests[key] = self._new_request(*key)
        known[0].inc()
        known[1].observe(seconds)

    def _new_request(self, route: str | None, method: str, hundreds: int) -> tuple[Counter, Histogram]:
        place = (route or "none", method if method in METHODS else OTHER)
        return self._requests.labels(*place, f"{hundreds}xx"), self._durations.labels(*place)

    def messages(self, event: str, queue: str, count: int) -> None:
        """Something happened to messages of a queue."""
        if not count:
            return
        known = self._known_messages.get((queue, event))
        if known is None:
            known = self._new_messages(queue, event)
        known.inc(count)

    def _new_messages(self, queue: str, event: str) -> Counter:
        if queue not in self._queues and len(self._queues) >= MOST_QUEUES:
            return self._messages.labels(OTHER, event)
        self._queues.add(queue)
        known = self._known_messages[queue, event] = self._messages.labels(queue, event)
        return known

    def settled(self, verb: str, queue: str, count: int) -> None:
        """Messages were settled."""
        self.messages(EVENTS[verb], queue, count)

    def batches(self, call: str) -> Callable[[float], None]:
        """What is to be told how many requests each call of some kind serves."""
        return self._batches.labels(call).observe

    def look(self, service: Service) -> None:
        """Measure what cannot be counted."""
        pool = service.engine.connections.figures()
        self._gauges["pool_connections"].set(pool["open"])
        self._gauges["pool_connections_in_use"].set(pool["lent"])
        self._gauges["pool_waiting"].set(pool["waiting"])
        self._gauges["streams_open"].set(len(service.streams.open))
        self._gauges["claims_waiting"].set(service.desks.waiting)
        if service.dispatcher is not None:
            service.dispatcher.look()

    def written(self, accept: str) -> tuple[bytes, str]:
        """Everything that is known, as text, and in which format."""
        write, media = choose_encoder(accept)
        return write(self.registry), media
