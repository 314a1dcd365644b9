"""Of several messages in one call, an error names the one that is refused.

1. As messages[n], counted from 0: for programs as the column of the error, for people in its detail.
2. Whatever the refusal: by the message's own fields, by what the queue takes, by a key, for want of room.
3. A queue that is full names the first message that does not fit: as many as stand before it would.
4. Where there is but one message, and where the call as a whole is wrong, no place is named.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import Engine

GOOD: dict[str, Any] = {"payload": 1}


def refusal(engine: Engine, verb: str, **arguments: Any) -> psycopg.errors.Diagnostic:
    """What is said of a call that is refused, and changes nothing."""
    before = engine.state()
    with pytest.raises(psycopg.Error) as refused:
        engine.rows(verb, **{"queue": "q"} | arguments)
    assert engine.state() == before
    return refused.value.diag


def many(*messages: Any) -> dict[str, Any]:
    return {"messages": Jsonb(list(messages))}


def batch(*payloads: Any) -> dict[str, Any]:
    return {"payloads": [Jsonb(payload) for payload in payloads]}


@pytest.mark.parametrize(
    ("code", "bad"),
    [
        ("QH203", 7),
        ("QH203", {"payloda": 1}),
        ("QH203", {"payload": 1, "body": "eA=="}),
        ("QH203", {"correlation_id": "x"}),
        ("QH203", {"headers": []}),
        ("QH203", {"tag": 1}),
        ("QH201", {"payload": "x" * 1_048_576}),
        ("QH202", {"headers": {"h": "x" * 65_536}}),
        ("QH204", {"priority": 11}),
        ("QH205", {"delay": -1}),
        ("QH206", {"ttl": 0}),
        ("QH207", {"tag": "x" * 201}),
        ("QH210", {"max_deliveries": -1}),
        ("QH220", {"key": ""}),
        ("QH220", {"key": "k", "idempotency_key": "i"}),
        ("QH221", {"ordering_key": "o"}),
    ],
)
def test_send_many_names_the_message_that_is_refused(refusing: Engine, code: str, bad: Any) -> None:
    said = refusal(refusing, "send_many", **many(GOOD, GOOD, bad, GOOD, bad))
    alone = refusal(refusing, "send_many", **many(bad))

    assert (said.sqlstate, said.column_name) == (code, "messages[2]")
    assert said.message_primary == alone.message_primary
    assert said.message_detail == f"messages[2]: {alone.message_detail}"
    assert said.message_hint == alone.message_hint
    assert alone.column_name is None


def test_the_first_of_several_that_are_refused_is_named(refusing: Engine) -> None:
    said = refusal(refusing, "send_many", **many(GOOD, {"priority": 11}, {"tag": 7}))

    assert (said.sqlstate, said.column_name) == ("QH204", "messages[1]")


def test_send_batch_names_the_payload_that_is_too_large(refusing: Engine) -> None:
    large = "x" * 1_048_576

    said = refusal(refusing, "send_batch", **batch(1, 2, 3, large, 5))
    keyed = refusal(refusing, "send_batch", key="k", **batch(1, large))
    alone = refusal(refusing, "send_batch", **batch(large))

    assert (said.sqlstate, said.column_name) == ("QH201", "messages[3]")
    assert (said.message_detail or "").startswith("messages[3]: It has ")
    assert (keyed.sqlstate, keyed.column_name) == ("QH201", "messages[1]")
    assert (alone.sqlstate, alone.column_name) == ("QH201", None)


def test_a_key_that_another_payload_has_is_named_by_its_message(queue: Engine) -> None:
    queue.send(1, idempotency_key="i")
    again, other = {"payload": 1, "idempotency_key": "i"}, {"payload": 2, "idempotency_key": "i"}

    stored = refusal(queue, "send_many", **many(GOOD, again, other))
    within = refusal(queue, "send_many", **many(*[{"payload": n, "idempotency_key": "j"} for n in (1, 1, 2)]))
    batched = refusal(queue, "send_batch", idempotency_key="k", **batch(1, 1, 1, 2))

    assert (stored.sqlstate, stored.column_name) == ("QH222", "messages[2]")
    assert (within.sqlstate, within.column_name) == ("QH222", "messages[2]")
    assert (batched.sqlstate, batched.column_name) == ("QH222", "messages[3]")


def test_a_strict_queue_names_the_message_with_a_priority(engine: Engine) -> None:
    engine.create(ordering="strict")

    said = refusal(engine, "send_many", **many(GOOD, {"priority": 0}, {"priority": 3}))

    assert (said.sqlstate, said.column_name) == ("QH221", "messages[2]")


def test_a_log_names_the_message_with_an_option(engine: Engine) -> None:
    engine.create(kind="log")

    said = refusal(engine, "send_many", **many(GOOD, {"priority": 3, "key": "k"}, {"delay": 1}))

    assert (said.sqlstate, said.column_name) == ("QH604", "messages[1]")
    assert (said.message_detail or "").endswith("got priority, key.")


@pytest.mark.parametrize("options", [{}, {"tag": "t"}, {"priority": 3}])
def test_a_full_queue_names_the_first_message_that_does_not_fit(
    engine: Engine, options: dict[str, Any]
) -> None:
    engine.create(max_depth=5)
    engine.send_numbers(3)

    said = refusal(engine, "send_many", **many(*[GOOD | options] * 4))
    batched = refusal(engine, "send_batch", **batch(1, 2, 3))

    assert (said.sqlstate, said.column_name) == ("QH209", "messages[2]")
    assert (batched.sqlstate, batched.column_name) == ("QH209", "messages[2]")
    engine.send_numbers(2)
    assert refusal(engine, "send_batch", **batch(1, 2)).column_name == "messages[0]"
    assert refusal(engine, "send_many", **many(GOOD)).column_name is None


def test_what_adds_nothing_fits_into_a_full_queue(engine: Engine) -> None:
    engine.create(max_depth=2)
    first = engine.send(1, idempotency_key="a")
    again = {"payload": 1, "idempotency_key": "a"}

    said = refusal(engine, "send_many", **many(again, GOOD, again, GOOD))

    assert (said.sqlstate, said.column_name) == ("QH209", "messages[3]")
    assert engine.value("send_many", queue="q", **many(again, GOOD, again))[::2] == [first, first]


@pytest.mark.parametrize(
    ("code", "verb", "arguments"),
    [
        ("QH101", "send_many", {"queue": "nowhere"} | many(GOOD, GOOD)),
        ("QH101", "send_batch", {"queue": "nowhere"} | batch(1, 2)),
        ("QH203", "send_many", {"messages": Jsonb({})}),
        ("QH204", "send_batch", {"priority": 11} | batch(1, 2)),
        ("QH220", "send_batch", {"key": ""} | batch(1, 2)),
    ],
)
def test_a_call_that_is_wrong_as_a_whole_names_no_message(
    refusing: Engine, code: str, verb: str, arguments: dict[str, Any]
) -> None:
    said = refusal(refusing, verb, **arguments)

    assert (said.sqlstate, said.column_name) == (code, None)


def test_a_send_names_no_place(refusing: Engine) -> None:
    assert refusal(refusing, "send", payload=Jsonb("x" * 1_048_576)).column_name is None
    assert refusal(refusing, "send", priority=11).column_name is None
