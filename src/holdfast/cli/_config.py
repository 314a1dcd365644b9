"""Configurations as people read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._command import Invocation

# As docs/configuration.md has them; PostgreSQL keeps them by the length of their names.
FIELDS = (
    "kind",
    "lease",
    "max_deliveries",
    "dead_letter",
    "backoff",
    "ttl",
    "expire_in_flight",
    "keep",
    "keep_for",
    "max_depth",
    "throughput_limit",
    "priority_default",
    "priorities",
    "shards",
    "notify",
    "max_payload",
    "retention",
    "ordering",
    "on_dead",
    "by_row",
    "replaces",
    "budget",
    "lapse_is_failure",
    "durability",
    "claim_window",
    "rate_limits",
    "annotations",
)
PARTS = {"backoff": ("base", "factor", "cap", "jitter"), "rate_limits": ("send", "claim", "settle")}
OWN_DEAD_LETTER = "QUEUE.dlq, each queue's own"


def arranged(config: Mapping[str, Any], fields: tuple[str, ...] = FIELDS) -> dict[str, Any]:
    """A configuration in the order of its description; what is not described comes last."""
    names = [*(name for name in fields if name in config), *(name for name in config if name not in fields)]
    return {
        name: arranged(config[name], PARTS.get(name, ()))
        if isinstance(config[name], Mapping)
        else config[name]
        for name in names
    }


def show_config(invocation: Invocation, config: Mapping[str, Any]) -> None:
    """Print what is in force; people are told what it means that nothing is said of dead letters."""
    shown = arranged(config)
    if not invocation.output.as_json and shown.get("dead_letter", "") is None:
        shown["dead_letter"] = OWN_DEAD_LETTER
    invocation.output.fields(shown)
