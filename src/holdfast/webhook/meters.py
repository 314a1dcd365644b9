"""What the metrics say of deliveries."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.registry import CollectorRegistry

from .breaker import CLOSED, DISABLED, HALF_OPEN, OPEN

MOST_ENDPOINTS = 1_000  # that have counters of their own
OTHER = "other"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class DeliveryMeters:
    """Counts the deliveries of this process."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        """registry: where they are told; None: in a folder that processes share."""
        self._deliveries = Counter(
            "holdfast_webhook_deliveries",
            "Attempts to deliver a message, by endpoint and outcome: done, retry, dead, gone.",
            ["endpoint", "outcome"],
            registry=registry,
        )
        self._durations = Histogram(
            "holdfast_webhook_delivery_duration_seconds",
            "From the beginning of an attempt to the status of its answer.",
            ["endpoint"],
            buckets=SECONDS,
            registry=registry,
        )
        self._active = Gauge(
            "holdfast_webhook_deliveries_in_flight",
            "Deliveries that are on their way.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._endpoints = Gauge(
            "holdfast_webhook_endpoints",
            "Endpoints that this server delivers to, by the state of their breaker, as it last saw it.",
            ["state"],
            registry=registry,
            multiprocess_mode="livemax",
        )
        self._known: set[str] = set()

    def delivered(self, endpoint: str, outcome: str, seconds: float) -> None:
        """An attempt has ended."""
        if endpoint not in self._known:
            if len(self._known) >= MOST_ENDPOINTS:
                endpoint = OTHER
            self._known.add(endpoint)
        self._deliveries.labels(endpoint, outcome).inc()
        self._durations.labels(endpoint).observe(seconds)

    def look(self, couriers: Iterable[tuple[int, str]]) -> None:
        """Measure what cannot be counted: requests on their way, and states of breakers."""
        seen = [*couriers]
        self._active.set(sum(active for active, _ in seen))
        states = Tally(state for _, state in seen)
        for state in (CLOSED, OPEN, HALF_OPEN, DISABLED):
            self._endpoints.labels(state).set(states[state])
