"""Publish and subscribe.

1. An event becomes a message for each enabled endpoint that subscribes to its type, once, if a filter fits.
2. It is part of the caller's transaction, with the options of send; what a queue does not have is left out.
3. Many events are published at once; an error names the event that is to blame, and nothing is sent.
4. Event types and subscriptions are made, listed and dropped.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row


def hub_of(engine: Engine) -> Engine:
    for endpoint in "abc":
        config = {"url": "https://example.com"}
        assert engine.value("create_endpoint", endpoint=endpoint, config=config)
    for name in ("made", "paid"):
        assert engine.value("create_event_type", name=name)
    return engine


@pytest.fixture
def hub(engine: Engine) -> Engine:
    """Endpoints a, b and c, and the event types made and paid."""
    return hub_of(engine)


@pytest.fixture(scope="module")
def shared(refusing: Engine) -> Engine:
    """The same, for calls that change nothing."""
    return hub_of(refusing)


def subscribe(engine: Engine, endpoint: str, filter: Any = None, event_type: str = "made") -> int:
    return int(engine.value("subscribe", event_type=event_type, endpoint=endpoint, filter=filter))


def publish(engine: Engine, payload: Any, event_type: str = "made", **options: Any) -> list[str]:
    rows = engine.rows("publish", event_type=event_type, payload=Jsonb(payload), **options)
    return [row["endpoint"] for row in rows]


def waiting(engine: Engine, queue: str) -> list[Row]:
    return engine.rows("browse", queue=queue)


def test_an_event_goes_to_the_endpoints_that_asked_for_it(hub: Engine) -> None:
    subscribe(hub, "a")
    subscribe(hub, "b", {"country": "de"})
    subscribe(hub, "b", {"items": [{"kind": "book"}]})
    subscribe(hub, "c", event_type="paid")

    reached = [
        publish(hub, payload)
        for payload in ({"country": "at"}, {"country": "de", "items": [{"kind": "book", "n": 2}]}, 7, None)
    ]

    assert reached == [["a"], ["a", "b"], ["a"], ["a"]]
    assert publish(hub, {}, "paid") == ["c"]
    (message,) = waiting(hub, "b")
    assert message["headers"] == {"event-type": "made"}
    assert message["payload"] == {"country": "de", "items": [{"kind": "book", "n": 2}]}
    assert [row["payload"] for row in waiting(hub, "a")][2:] == [7, None]


def test_the_ids_are_those_of_the_messages(hub: Engine) -> None:
    subscribe(hub, "a")

    (row,) = hub.rows("publish", event_type="made", payload=Jsonb(1))

    assert row == {"nth": 0, "endpoint": "a", "queue": "a", "id": waiting(hub, "a")[0]["id"]}


def test_a_disabled_endpoint_gets_nothing(hub: Engine) -> None:
    for endpoint in "ab":
        subscribe(hub, endpoint)
    hub.value("disable_endpoint", endpoint="a")

    assert publish(hub, 1) == ["b"]
    assert waiting(hub, "a") == []


def test_nothing_is_sent_if_the_transaction_rolls_back(hub: Engine) -> None:
    subscribe(hub, "a")

    with hub.conn.transaction(force_rollback=True):
        assert publish(hub, 1) == ["a"]

    assert waiting(hub, "a") == []


def test_options_are_those_of_send(hub: Engine) -> None:
    subscribe(hub, "a")

    publish(
        hub,
        {"n": 12345678901234567890.5},
        headers=Jsonb({"x": 1, "event-type": "mine"}),
        priority=7,
        ttl="1 h",
        tag="t",
        correlation_id="00000000-0000-0000-0000-000000000001",
        max_deliveries=3,
        idempotency_key="once",
    )
    publish(hub, 2, delay="1 h")

    message = waiting(hub, "a")[0]
    assert (message["headers"], message["priority"], message["tag"]) == (
        {"x": 1, "event-type": "made"},
        7,
        "t",
    )
    assert (message["max_deliveries"], message["expires_at"]) == (3, T0 + timedelta(hours=1))
    assert str(message["correlation_id"]).endswith("1")
    assert hub.stats("a")["scheduled"] == 1


def test_what_a_queue_does_not_have_is_left_out_there(hub: Engine) -> None:
    hub.value("configure_endpoint", endpoint="b", config={"ordering": "key"})
    hub.value("configure_endpoint", endpoint="c", config={"ordering": "strict"})
    for endpoint in "abc":
        subscribe(hub, endpoint)

    assert publish(hub, 1, ordering_key="k", priority=3) == ["a", "b", "c"]
    assert [(row["ordering_key"], row["priority"]) for queue in "abc" for row in waiting(hub, queue)] == [
        (None, 3),
        ("k", 3),
        (None, 0),
    ]


def test_many_events_are_published_at_once(hub: Engine) -> None:
    subscribe(hub, "a")
    subscribe(hub, "b", {"n": 1})
    subscribe(hub, "b", event_type="paid")

    events: list[Row] = [
        {"event_type": "made", "payload": {"n": 0}},
        {"event_type": "paid", "payload": {"n": 1}, "priority": 3},
        {"event_type": "made", "payload": {"n": 1}},
    ]
    rows = hub.rows("publish_batch", events=Jsonb(events))

    assert [(row["nth"], row["endpoint"]) for row in rows] == [(0, "a"), (2, "a"), (1, "b"), (2, "b")]
    for row in rows:
        message = hub.row("message", queue=row["queue"], id=row["id"])
        assert message["payload"] == events[row["nth"]]["payload"]
        assert message["headers"] == {"event-type": events[row["nth"]]["event_type"]}
    assert hub.rows("publish_batch", events=Jsonb([])) == []


@pytest.mark.parametrize(
    ("code", "place", "event"),
    [
        ("QH203", "messages[1]", 7),
        ("QH203", "messages[1]", {"payload": 1}),
        ("QH203", "messages[1]", {"event_type": "made"}),
        ("QH203", "messages[1]", {"event_type": "made", "body": "AA=="}),
        ("QH203", "messages[1]", {"event_type": "made", "payload": 1, "headers": 3}),
        ("QH203", "messages[1]", {"event_type": "made", "payload": 1, "speed": 3}),
        ("QH204", "messages[1]", {"event_type": "made", "payload": 1, "priority": 11}),
        ("QH201", "messages[1]", {"event_type": "paid", "payload": "x" * 2_000_000}),
        ("QH876", None, {"event_type": "none", "payload": 1}),
    ],
)
def test_an_error_names_the_event_and_nothing_is_sent(
    hub: Engine, code: str, place: str | None, event: Any
) -> None:
    for event_type in ("made", "paid"):
        subscribe(hub, "a", event_type=event_type)
    good = {"event_type": "made", "payload": 1}

    with pytest.raises(psycopg.Error) as error:
        hub.rows("publish_batch", events=Jsonb([good, event, good]))

    assert error.value.sqlstate == code
    assert error.value.diag.column_name == place
    assert str(error.value.diag.message_primary).count(f"[{code}]") == 1
    assert str(error.value.diag.message_detail).count("messages[") == (place is not None)
    assert hub.look("select count(*) from holdfast.message") == 0


def test_an_error_of_one_event_has_no_place(hub: Engine) -> None:
    subscribe(hub, "a")

    with pytest.raises(psycopg.Error) as error:
        publish(hub, 1, priority=11)

    assert (error.value.sqlstate, error.value.diag.column_name) == ("QH204", None)
    assert str(error.value.diag.message_primary).count("[QH204]") == 1


@pytest.mark.parametrize("events", [None, 7, {}])
def test_events_are_an_array(hub: Engine, events: Any) -> None:
    with pytest.raises(psycopg.Error, match="QH203"):
        hub.rows("publish_batch", events=None if events is None else Jsonb(events))


def test_event_types_are_made_listed_and_dropped(engine: Engine) -> None:
    create = [
        engine.value("create_event_type", name="made", description="An order", schema={"type": "object"})
        for _ in range(2)
    ]
    with pytest.raises(psycopg.Error, match="QH877"):
        engine.value("create_event_type", name="made", description="Another")
    listed = engine.rows("event_types")
    dropped = [engine.value("drop_event_type", name="made") for _ in range(2)]

    assert (create, dropped) == ([True, False], [True, False])
    assert listed == [
        {
            "name": "made",
            "description": "An order",
            "schema": {"type": "object"},
            "subscriptions": 0,
            "created_at": T0,
        }
    ]
    assert engine.rows("event_types") == []


def test_subscriptions_are_made_listed_and_ended(hub: Engine) -> None:
    first = subscribe(hub, "a")
    same = [subscribe(hub, "a"), subscribe(hub, "a", {})]
    others = [subscribe(hub, "a", {"n": 1}), subscribe(hub, "b", event_type="paid")]

    assert same == [first, first]
    assert [row["id"] for row in hub.rows("subscriptions")] == [first, *others]
    assert [row["filter"] for row in hub.rows("subscriptions", endpoint="a")] == [None, {"n": 1}]
    assert [row["endpoint"] for row in hub.rows("subscriptions", event_type="paid")] == ["b"]
    assert [row["subscriptions"] for row in hub.rows("event_types")] == [2, 1]
    assert [hub.value("unsubscribe", id=others[0]) for _ in range(2)] == [True, False]
    hub.value("drop_endpoint", endpoint="b")
    hub.value("drop_event_type", name="made")
    assert hub.rows("subscriptions") == []


def test_the_same_subscription_at_the_same_moment_is_one(hub: Engine, open_engine: Open) -> None:
    other = open_engine()
    with other.conn.transaction():
        first = subscribe(other, "a")
        hub.conn.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            subscribe(hub, "a")

    assert subscribe(hub, "a") == first


@pytest.mark.parametrize(
    ("code", "verb", "arguments"),
    [
        ("QH876", "publish", {"event_type": "none", "payload": Jsonb(1)}),
        ("QH876", "publish", {"event_type": None, "payload": Jsonb(1)}),
        ("QH876", "subscribe", {"event_type": "none", "endpoint": "a"}),
        ("QH870", "subscribe", {"event_type": "made", "endpoint": "none"}),
        ("QH878", "subscribe", {"event_type": "made", "endpoint": "a", "filter": Jsonb([1])}),
        ("QH878", "subscribe", {"event_type": "made", "endpoint": "a", "filter": {"x": "x" * 20_000}}),
        ("QH876", "subscriptions", {"event_type": "none"}),
        ("QH870", "subscriptions", {"endpoint": "none"}),
        ("QH878", "create_event_type", {"name": "a b"}),
        ("QH878", "create_event_type", {"name": None}),
        ("QH878", "create_event_type", {"name": "x", "description": "x" * 2001}),
        ("QH106", "create_event_type", {"name": "x", "schema": Jsonb(3)}),
    ],
)
def test_what_is_bad_is_refused(shared: Engine, code: str, verb: str, arguments: Row) -> None:
    with pytest.raises(psycopg.Error) as error:
        shared.rows(verb, **arguments)

    assert error.value.sqlstate == code
    assert shared.rows("subscriptions") == []
    assert len(shared.rows("event_types")) == 2
