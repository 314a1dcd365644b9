"""The configuration of a topic, and what it is for the engine.

What the engine has a field for is the engine's to say, whoever has set it. The rest is kept with the queue
as an annotation: the durability class by name, what to do with a full topic, what only this dialect knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.client import InvalidRequestError, KindFixedError
from holdfast.durations import parse_duration

from .requests import TopicConfig
from .values import LEASE_MS, clamped

ANNOTATION = "topics"
JITTER_MS = (0, 5_000)
PRIORITY = (-1_000, 1_000)
MOST_DELIVERIES = 1_000
LONGEST_WINDOW_MS = 7 * 86_400_000
LONGEST_TTL_YEARS = {"queue": 10, "log": 100}
YEAR_MS = 365 * 86_400_000
ON_DISK = ("disk", "fsync")

Config = dict[str, Any]

DEFAULTS: Config = {
    "type": "log",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}
# Also what the engine has a field for: a log has none of a queue's, and a queue none of a log's.
KEPT = tuple(name for name in DEFAULTS if name not in ("type", "durable"))


def merged(base: Config, given: TopicConfig) -> Config:
    """A configuration after a change, every number within its bounds; what cannot be is refused."""
    named = {name: value for name in DEFAULTS if (value := getattr(given, name)) is not msgspec.UNSET}
    config = base | named
    if "durable" in named and named["durable"] != (named.get("durability", config["durability"]) == "fsync"):
        if "durability" in named:
            raise refused("durable", 'It is another word for the durability "fsync", which is named too.')
        config["durability"] = "fsync" if named["durable"] else "disk"
    config["durable"] = config["durability"] == "fsync"
    config["lease_ms"] = clamped(config["lease_ms"], LEASE_MS)
    config["claim_jitter_ms"] = clamped(config["claim_jitter_ms"], JITTER_MS)
    if config["priority"] is not None:
        config["priority"] = clamped(config["priority"], PRIORITY)
    check(config)
    return config


def check(config: Config) -> None:
    """Refuse what is no configuration here, and say why."""
    if config["leases_durable"]:
        raise refused("leases_durable", "Leases are never durable here: a crash lets them end.")
    if config["cap_bytes"]:
        raise refused("cap_bytes", "Records are not limited by their bytes here, only by cap_records.")
    if config["type"] == "queue" and config["cap_records"] and config["discard"] == "old":
        raise refused(
            "cap_records", 'A queue drops no job to make room; with discard "reject" it is a limit.'
        )
    years = LONGEST_TTL_YEARS[config["type"]]
    if config["ttl_ms"] > years * YEAR_MS:
        raise refused("ttl_ms", f"It takes at most {years * YEAR_MS}, {years} years.")
    if config["max_deliveries"] > MOST_DELIVERIES:
        raise refused("max_deliveries", f"It takes at most {MOST_DELIVERIES}; 0 is no limit.")
    if config["idempotency_window_ms"] > LONGEST_WINDOW_MS:
        raise refused("idempotency_window_ms", f"It takes at most {LONGEST_WINDOW_MS}, seven days.")


def refused(field: str, reason: str) -> InvalidRequestError:
    """The refusal of a field."""
    return InvalidRequestError("QH911", f"bad value for {field}", reason)


def check_type(current: Config, given: TopicConfig) -> None:
    """Refuse another type than a topic has."""
    if given.type is not msgspec.UNSET and given.type != current["type"]:
        raise KindFixedError(
            "QH601",
            "the type of a topic cannot be changed",
            f"It is a {current['type']}.",
            "Make another topic.",
        )


def for_engine(config: Config) -> Config:
    """A topic's configuration as the engine takes it, but for the kind."""
    annotations = {ANNOTATION: {name: config[name] for name in KEPT}}
    limit = config["cap_records"] if config["discard"] == "reject" else 0
    shared = {"max_depth": limit or None, "annotations": annotations}
    return shared | (of_queue(config) if config["type"] == "queue" else of_log(config))


def change(current: Config, config: Config) -> Config:
    """What the engine is told for one configuration to become the other: what stays is not said again."""
    before = for_engine(current)
    return {name: value for name, value in for_engine(config).items() if value != before[name]}


def of_queue(config: Config) -> Config:
    """What only a queue has."""
    # Without a dead-letter topic a job is reclaimed for ever, however often that is.
    buries = config["dead_letter"] is not None
    return {
        "lease": config["lease_ms"] / 1000,
        "claim_window": config["claim_jitter_ms"] / 1000,
        "max_deliveries": config["max_deliveries"] if buries else 0,
        "dead_letter": config["dead_letter"] if buries else False,
        "ttl": config["ttl_ms"] / 1000 or None,
        "durability": "durable" if config["durability"] in ON_DISK else "fast",
    }


def of_log(config: Config) -> Config:
    """What only a log has."""
    count = config["cap_records"] if config["discard"] == "old" else 0
    retention = {"age": config["ttl_ms"] / 1000} if config["ttl_ms"] else {}
    retention |= {"count": count} if count else {}
    return {"retention": retention or None}


def shown(effective: Mapping[str, Any]) -> Config:
    """The configuration of a topic, by what the engine says holds for it."""
    kept = effective["annotations"].get(ANNOTATION) or {}
    config = DEFAULTS | {"durability": "fsync"} | {name: kept[name] for name in KEPT if name in kept}
    config["type"] = effective["kind"]
    config |= queue_shown(effective, config) if effective["kind"] == "queue" else log_shown(effective)
    if effective["max_depth"] is not None:
        config |= {"cap_records": effective["max_depth"], "discard": "reject"}
    config["durable"] = config["durability"] == "fsync"
    return config


def queue_shown(effective: Mapping[str, Any], config: Config) -> Config:
    """What the engine says of a queue."""
    found: Config = {
        "lease_ms": ms(effective["lease"]),
        "claim_jitter_ms": ms(effective["claim_window"]),
        "ttl_ms": ms(effective["ttl"]),
        "cap_records": 0,
    }
    if effective["dead_letter"] is False:
        found["dead_letter"] = None
    else:
        found |= {"dead_letter": effective["dead_letter"], "max_deliveries": effective["max_deliveries"]}
    if (config["durability"] in ON_DISK) != (effective["durability"] == "durable"):
        found["durability"] = "fsync" if effective["durability"] == "durable" else "memory"
    return found


def log_shown(effective: Mapping[str, Any]) -> Config:
    """What the engine says of a log."""
    retention = effective["retention"] or {}
    return {"ttl_ms": ms(retention.get("age")), "cap_records": retention.get("count") or 0}


def ms(duration: float | str | None) -> int:
    """A duration of the engine's configuration in milliseconds; 0 for none."""
    if duration is None:
        return 0
    return round(parse_duration(str(duration)).total_seconds() * 1000)


def kept(annotations: Mapping[str, Any], name: str) -> Any:
    """A setting that only this dialect knows, of a topic or of any other queue."""
    return (annotations.get(ANNOTATION) or DEFAULTS).get(name, DEFAULTS[name])
