"""The configuration of a queue that was told nothing, but for its dead-letter queue, which has its name."""

from __future__ import annotations

from typing import Any

BUILT_IN: dict[str, Any] = {
    "lease": "30 s",
    "max_deliveries": 5,
    "dead_letter": None,
    "ttl": None,
    "max_depth": None,
    "backoff": {"base": "0 s", "factor": 2, "cap": "300 s", "jitter": 0},
    "priority_default": 0,
    "priorities": [0],
    "shards": 1,
    "notify": True,
    "max_payload": 1048576,
    "kind": "queue",
    "throughput_limit": None,
    "retention": None,
    "expire_in_flight": False,
    "keep": [],
    "keep_for": "7 days",
    "ordering": "none",
    "on_dead": "continue",
    "replaces": "unclaimed",
    "by_row": False,
    "budget": "deliveries",
    "lapse_is_failure": False,
    "durability": "durable",
    "claim_window": "0 s",
    "rate_limits": {"send": None, "claim": None, "settle": None},
    "annotations": {},
}
