"""Configuration fields: every one at its edges.

1. Each field takes its documented range, ends included.
2. One step outside, or the wrong type, is QH104; so is an unknown field.
3. A refused configuration changes nothing: not the queue, not the defaults, no lane.
4. Durations are interval text or a number of seconds.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.engine.engine import Engine

GOOD: list[tuple[str, Any]] = [
    ("lease", "100 ms"),
    ("lease", 0.1),
    ("lease", "24 h"),
    ("lease", 86400),
    ("max_deliveries", 0),
    ("max_deliveries", 1000),
    ("dead_letter", "graves"),
    ("dead_letter", "x" * 200),
    ("dead_letter", False),
    ("backoff", {}),
    ("backoff", {"base": 0, "factor": 1, "cap": 0, "jitter": 0}),
    ("backoff", {"base": "1 year", "factor": 10, "cap": "1 year", "jitter": 1}),
    ("backoff", {"factor": 1.5, "jitter": 0.25}),
    ("ttl", "1 ms"),
    ("ttl", "10 years"),
    ("max_depth", 1),
    ("max_depth", 1_000_000_000),
    ("priority_default", 0),
    ("priority_default", 10),
    ("priorities", [0]),
    ("priorities", [10, 0, 5, 5]),
    ("shards", 1),
    ("shards", 16),
    ("notify", False),
    ("max_payload", 1),
    ("max_payload", 67_108_864),
    ("throughput_limit", 0.001),
    ("throughput_limit", 1_000_000),
    ("kind", "queue"),
    ("kind", "log"),
    ("claim_window", 0),
    ("claim_window", "5 s"),
    ("claim_window", 0.25),
    ("rate_limits", {}),
    ("rate_limits", {"send": 0.001, "claim": 1_000_000, "settle": None}),
    ("by_row", False),
    ("annotations", {}),
    ("annotations", {"shop": {"owner": "Ada", "colour": None}}),
]

BAD: list[tuple[str, Any]] = [
    ("lease", "99 ms"),
    ("lease", 0),
    ("lease", -5),
    ("lease", 86400.001),
    ("lease", "soon"),
    ("lease", True),
    ("lease", ["30 s"]),
    ("max_deliveries", -1),
    ("max_deliveries", 1001),
    ("max_deliveries", 1.5),
    ("max_deliveries", "5"),
    ("dead_letter", True),
    ("dead_letter", ""),
    ("dead_letter", "not a name"),
    ("dead_letter", "x" * 201),
    ("dead_letter", 5),
    ("backoff", "1 s"),
    ("backoff", {"base": -1}),
    ("backoff", {"base": None}),
    ("backoff", {"base": "2 years"}),
    ("backoff", {"cap": "much"}),
    ("backoff", {"factor": 0.9}),
    ("backoff", {"factor": 11}),
    ("backoff", {"factor": "2"}),
    ("backoff", {"jitter": 1.1}),
    ("backoff", {"jitter": -0.1}),
    ("backoff", {"slope": 1}),
    ("ttl", 0),
    ("ttl", "11 years"),
    ("ttl", "infinity"),
    ("max_depth", 0),
    ("max_depth", 1_000_000_001),
    ("priority_default", -1),
    ("priority_default", 11),
    ("priorities", []),
    ("priorities", [0, 11]),
    ("priorities", 5),
    ("priorities", ["0"]),
    ("shards", 0),
    ("shards", 17),
    ("notify", "yes"),
    ("notify", 1),
    ("max_payload", 0),
    ("max_payload", 67_108_865),
    ("max_payload", 1e40),
    ("throughput_limit", 0),
    ("throughput_limit", 1_000_001),
    ("throughput_limit", "5"),
    ("kind", "topic"),
    ("kind", True),
    ("claim_window", "5001 ms"),
    ("claim_window", -0.001),
    ("claim_window", "soon"),
    ("claim_window", False),
    ("claim_window", {"send": 1}),
    ("rate_limits", 5),
    ("rate_limits", [1]),
    ("rate_limits", {"send": 0}),
    ("rate_limits", {"claim": 1_000_001}),
    ("rate_limits", {"settle": "5"}),
    ("rate_limits", {"send": True}),
    ("rate_limits", {"read": 5}),
    ("by_row", 1),
    ("annotations", "Ada"),
    ("annotations", ["Ada"]),
    ("annotations", {"shop": "x" * 16_384}),
    ("retention", {"age": "1 day"}),
    ("retention", {"age": 0}),
    ("retention", {"count": 1.5}),
    ("retention", {"size": 1}),
    ("retention", "1 day"),
    ("colour", "red"),
    ("", 1),
]


@pytest.mark.parametrize(("field", "value"), GOOD)
def test_a_value_in_range_is_taken(engine: Engine, field: str, value: Any) -> None:
    created = engine.value("create_queue", queue="q", config={field: value})

    assert created is True
    assert engine.row("queues")["config"] == {field: value}


@pytest.mark.parametrize(("field", "value"), BAD)
def test_a_value_out_of_range_is_refused_everywhere_and_changes_nothing(
    refusing: Engine, field: str, value: Any
) -> None:
    config = {"max_deliveries": 7} | {field: value}
    before = refusing.state()

    for verb, arguments in (
        ("create_queue", {"queue": "new", "config": config}),
        ("configure_queue", {"queue": "q", "config": config}),
        ("configure_defaults", {"config": config}),
    ):
        with pytest.raises(psycopg.Error) as caught:
            refusing.value(verb, **arguments)
        assert caught.value.sqlstate == "QH104"
        assert field in (caught.value.diag.message_primary or "")

    assert refusing.state() == before


@pytest.mark.parametrize("config", ["[]", "5", '"lease"', "null", None])
def test_a_configuration_that_is_no_object_is_refused(refusing: Engine, config: str | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.value("create_queue", queue="new", config=config)

    assert caught.value.sqlstate == "QH104"


def test_a_dead_letter_queue_cannot_be_named_for_all(refusing: Engine) -> None:
    before = refusing.state()

    with pytest.raises(psycopg.Error) as caught:
        refusing.value("configure_defaults", config={"dead_letter": "graves"})

    assert caught.value.sqlstate == "QH104"
    assert refusing.state() == before


@pytest.mark.parametrize("verb", ["configure_queue", "pause_queue", "resume_queue"])
def test_what_changes_a_queue_needs_one(refusing: Engine, verb: str) -> None:
    config: dict[str, Any] = {"config": {}} if verb == "configure_queue" else {}

    with pytest.raises(psycopg.Error) as caught:
        refusing.value(verb, queue="nowhere", **config)

    assert caught.value.sqlstate == "QH101"


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "q\n", "é", "x" * 201, None])
def test_bad_names_are_refused(refusing: Engine, name: str | None) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.value("create_queue", queue=name)

    assert caught.value.sqlstate == "QH103"
    assert refusing.look("select count(*) from holdfast.queue") == 1
