"""Webhook endpoints and events, through every door.

1. Endpoints are made, changed, looked at and dropped; what is wrong is refused with one error everywhere.
2. Secrets go in as they are, and come out of no door; in the database they are sealed, for this endpoint.
3. Events reach the endpoints that subscribe, with all their options, digit for digit.
4. Attempts, health and what happened are told with the same values.
5. A rejected message is dead.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    EndpointExistsError,
    EndpointInUseError,
    EndpointNotFoundError,
    EventTypeExistsError,
    EventTypeNotFoundError,
    ForbiddenAddressError,
    InvalidEndpointError,
    InvalidEventTypeError,
    InvalidPriorityError,
    NewEvent,
    Settlement,
)
from holdfast.vault import Vault
from tests.conformance.conftest import SECRET_KEY, Clock, OpenClient

URL = "https://example.com/hooks"
SECRET = "whsec_" + b64encode(b"s" * 32).decode()

Conn = psycopg.Connection[Any]


async def made(client: AsyncHoldfast, name: str, **config: Any) -> str:
    assert await client.create_endpoint(name, {"url": URL} | config)
    return name


def stored(conn: Conn, endpoint: str) -> tuple[list[str], Any]:
    ((secrets, auth),) = conn.execute(
        "select secrets, auth from holdfast.dispatch_endpoints(array[%s])", [endpoint]
    ).fetchall()
    return secrets, auth


async def test_an_endpoint_is_made_changed_and_dropped(client: AsyncHoldfast, name: str) -> None:
    config = {"url": URL, "timeout": timedelta(seconds=20), "rate_limit": 5, "headers": {"x-shop": "1"}}
    created = [await client.create_endpoint(name, config) for _ in range(2)]
    changed = await client.configure_endpoint(name, {"timeout": None, "retry": {"base": 1}})
    switched = [
        await client.disable_endpoint(name, "moving"),
        await client.disable_endpoint(name),
    ]
    info = await client.endpoint_info(name)
    switched += [await client.enable_endpoint(name), await client.enable_endpoint(name)]
    listed = [each for each in await client.endpoints() if each.endpoint == name]
    events = await client.endpoint_events(name)
    dropped = [await client.drop_endpoint(name, with_queue=True), await client.drop_endpoint(name)]

    assert (created, switched, dropped) == ([True, False], [True, False, True, False], [True, False])
    assert (changed["timeout"], changed["rate_limit"], changed["retry"]["base"]) == (10, 5, 1)
    assert info is not None
    assert (info.queue, info.enabled, info.disabled_reason) == (name, False, "moving")
    assert info.disabled_at is not None
    assert (listed[0].config, listed[0].enabled) == (changed, True)
    assert [(event.event, event.reason) for event in events] == [("enabled", None), ("disabled", "moving")]
    assert await client.endpoint_info(name) is None
    assert name not in [queue.queue for queue in await client.queues()]


async def test_an_endpoint_consumes_the_queue_that_is_named(
    client: AsyncHoldfast, name: str, queue: str
) -> None:
    await client.create_endpoint(name, {"url": URL}, queue=queue)

    with pytest.raises(EndpointInUseError):
        await client.create_endpoint(name + "-2", {"url": URL}, queue=queue)
    with pytest.raises(EndpointInUseError):
        await client.drop_queue(queue)
    with pytest.raises(EndpointExistsError):
        await client.create_endpoint(name, {"url": URL})


async def test_secrets_are_sealed_and_shown_by_no_door(client: AsyncHoldfast, conn: Conn, name: str) -> None:
    await made(
        client, name, signing_secret=SECRET, auth={"type": "basic", "username": "u", "password": "pw-1"}
    )
    secrets, auth = stored(conn, name)
    shown = repr(await client.endpoint_info(name)) + repr(await client.endpoints())
    changed = await client.configure_endpoint(name, {"auth": {"type": "bearer", "token": "tk-1"}})
    vault = Vault(SECRET_KEY)

    assert [vault.open(each, f"webhook:{name}") for each in secrets] == [SECRET]
    assert vault.open(auth["password"], f"webhook:{name}") == "pw-1"
    assert vault.open(stored(conn, name)[1]["token"], f"webhook:{name}") == "tk-1"
    assert changed["auth"] == {"type": "bearer"}
    for secret in (SECRET, "pw-1", "tk-1", *secrets, auth["password"]):
        assert secret not in shown + repr(changed)
    dumped = conn.execute("select to_jsonb(e)::text from holdfast.endpoint e").fetchall()
    assert all(secret not in repr(dumped) for secret in (SECRET, "pw-1", "tk-1"))


async def test_a_secret_is_rotated(client: AsyncHoldfast, conn: Conn, clock: Clock, name: str) -> None:
    now = clock.stop()
    await made(client, name)

    first = await client.rotate_secret(name, SECRET)
    second = await client.rotate_secret(name, overlap=timedelta(hours=2))
    opened = [Vault(SECRET_KEY).open(each, f"webhook:{name}") for each in stored(conn, name)[0]]

    assert (first.secret, first.until) == (SECRET, None)
    assert second.until == now + timedelta(hours=2)
    assert opened == [second.secret, SECRET]
    assert second.secret.startswith("whsec_")
    assert second.secret not in repr(second)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "whsec_???", "topsecret"])
async def test_a_bad_signing_secret_is_refused_and_not_shown(
    client: AsyncHoldfast, name: str, secret: str
) -> None:
    await made(client, name)

    for call in (
        client.rotate_secret(name, secret),
        client.configure_endpoint(name, {"signing_secret": secret}),
    ):
        with pytest.raises(InvalidEndpointError, match="signing_secret") as caught:
            await call
        assert "topsecret" not in repr(caught.value) + str(caught.value)


@pytest.mark.parametrize(
    ("error", "config"),
    [
        (InvalidEndpointError, {}),
        (InvalidEndpointError, {"url": URL, "speed": 1}),
        (InvalidEndpointError, {"url": URL, "timeout": -1}),
        (InvalidEndpointError, {"url": URL, "auth": {"type": "digest"}}),
        (ForbiddenAddressError, {"url": "http://127.0.0.1/"}),
    ],
)
async def test_a_bad_configuration_is_refused_and_nothing_is_made(
    client: AsyncHoldfast, name: str, error: type[Exception], config: dict[str, Any]
) -> None:
    with pytest.raises(error):
        await client.create_endpoint(name, config)
    assert await client.endpoint_info(name) is None


async def test_what_is_not_there_is_told(client: AsyncHoldfast, name: str) -> None:
    for call in (
        client.configure_endpoint(name, {}),
        client.rotate_secret(name),
        client.enable_endpoint(name),
        client.disable_endpoint(name),
        client.reset_breaker(name),
        client.endpoint_health(name),
        client.endpoint_events(name),
        client.endpoint_attempts(name),
        client.subscriptions(endpoint=name),
    ):
        with pytest.raises(EndpointNotFoundError):
            await call
    for publication in (
        client.publish(name, 1),
        client.publish_batch([NewEvent(event_type=name, payload=1)]),
    ):
        with pytest.raises(EventTypeNotFoundError):
            await publication
    with pytest.raises(EventTypeNotFoundError):
        await client.subscribe(name, name)
    with pytest.raises(InvalidEndpointError):
        await client.create_endpoint("two words", {"url": URL})
    with pytest.raises(InvalidEventTypeError):
        await client.create_event_type("two words")


async def test_attempts_and_health_are_told(
    client: AsyncHoldfast, conn: Conn, clock: Clock, name: str
) -> None:
    now = clock.stop()
    await made(client, name, breaker={"threshold": 1})
    first = await client.send(name, {"n": 1})
    (held,) = await client.claim(name)
    attempt = {
        "message": first,
        "token": held.token,
        "outcome": "retry",
        "status": 503,
        "latency": 0.25,
        "error": "503 Service Unavailable",
        "response": "busy",
        "delivery": 1,
    }
    conn.execute("select holdfast.record_attempts(%s, %s)", [name, Jsonb([attempt])])

    (seen,) = await client.attempts(name, first)
    (health,) = await client.endpoint_health(name)

    assert (seen.endpoint, seen.queue, seen.id, seen.root_id, seen.at) == (name, name, first, first, now)
    assert (seen.outcome, seen.status, seen.latency, seen.delivery) == ("retry", 503, 0.25, 1)
    assert (seen.error, seen.response) == ("503 Service Unavailable", "busy")
    assert await client.endpoint_attempts(name, outcomes=["retry"], limit=5) == [seen]
    assert await client.endpoint_attempts(name, outcomes=["done"]) == []
    assert await client.endpoint_attempts(name, until=now) == []
    assert (health.endpoint, health.breaker, health.failures, health.attempts) == (name, "open", 1, 1)
    assert (health.success_rate, health.latency_p95, health.pending) == (0.0, 0.25, 1)
    assert health.retry_at == now + timedelta(seconds=30)
    assert [error["status"] for error in health.last_errors] == [503]
    assert [event.event for event in await client.endpoint_events(name, 1)] == ["opened"]
    assert [await client.reset_breaker(name) for _ in range(2)] == [True, False]
    clock.forward(hours=1)
    (later,) = await client.endpoint_health(name, window=timedelta(minutes=1))
    assert (later.attempts, later.success_rate, later.breaker) == (0, None, "closed")
    assert name in [each.endpoint for each in await client.endpoint_health()]


async def test_events_reach_those_who_subscribe(client: AsyncHoldfast, name: str) -> None:
    for endpoint in ("a", "b"):
        await made(client, f"{name}-{endpoint}")
    schema = {"type": "object"}
    types = [await client.create_event_type(name, description="An order", schema=schema) for _ in range(2)]
    with pytest.raises(EventTypeExistsError):
        await client.create_event_type(name)
    number = await client.subscribe(name, f"{name}-a")
    other = await client.subscribe(name, f"{name}-b", {"country": "de"})

    everybody = await client.publish(name, {"country": "de"})
    one = await client.publish(name, {"country": "at"})
    told = await client.subscriptions(name)
    (kind,) = [each for each in await client.event_types() if each.name == name]
    ended = [await client.unsubscribe(number) for _ in range(2)]
    nobody = await client.publish(name, None)
    dropped = [await client.drop_event_type(name) for _ in range(2)]

    assert (types, ended, dropped) == ([True, False], [True, False], [True, False])
    assert [each.endpoint for each in everybody] == [f"{name}-a", f"{name}-b"]
    assert [each.queue for each in one] == [f"{name}-a"]
    assert nobody == []
    assert [(each.id, each.endpoint, each.filter) for each in told] == [
        (number, f"{name}-a", None),
        (other, f"{name}-b", {"country": "de"}),
    ]
    assert (kind.description, kind.schema, kind.subscriptions) == ("An order", schema, 2)
    message = await client.message(everybody[1].queue, everybody[1].id)
    assert message is not None
    assert (message.payload, message.headers) == ({"country": "de"}, {"event-type": name})


async def test_an_event_has_the_options_of_a_message(
    open_client: OpenClient, clock: Clock, name: str
) -> None:
    now = clock.stop()
    client = open_client()
    await made(client, name, ordering="key")
    await client.create_event_type(name)
    await client.subscribe(name, name)
    correlation = UUID(int=7)
    options: dict[str, Any] = {
        "headers": {"shop": 1},
        "priority": 7,
        "ttl": timedelta(hours=1),
        "tag": "eu",
        "max_deliveries": 3,
        "ordering_key": "k",
        "idempotency_key": "once",
        "correlation_id": correlation,
    }

    payload = {"price": 12345678901234567890}
    (first,) = await client.publish(name, payload, **options)
    (again,) = await client.publish(name, payload, **options)
    (later,) = await client.publish(name, 1, deliver_at=now.astimezone(UTC) + timedelta(hours=1))
    batch = await client.publish_batch(
        [
            NewEvent(event_type=name, payload=1, delay=60, tag="x"),
            NewEvent(event_type=name, payload=Jsonb({"n": 2}), expires_at=now + timedelta(hours=3)),
        ]
    )

    message = await client.message(name, first.id)
    assert message is not None
    assert again.id == first.id
    assert (message.payload, message.headers) == (payload, {"shop": 1, "event-type": name})
    assert (message.priority, message.tag, message.max_deliveries) == (7, "eu", 3)
    assert (message.ordering_key, message.correlation_id) == ("k", correlation)
    assert message.expires_at == now + timedelta(hours=1)
    assert [each.nth for each in batch] == [0, 1]
    due = [await client.message(name, id) for id in (later.id, batch[0].id)]
    assert [each.due_at for each in due if each] == [now + timedelta(hours=1), now + timedelta(minutes=1)]
    last = await client.message(name, batch[1].id)
    assert last is not None
    assert (last.payload, last.expires_at) == ({"n": 2}, now + timedelta(hours=3))


async def test_an_error_names_the_event(client: AsyncHoldfast, name: str) -> None:
    await made(client, name)
    await client.create_event_type(name)
    await client.subscribe(name, name)
    events = [NewEvent(event_type=name, payload=1), NewEvent(event_type=name, payload=1, priority=11)]

    with pytest.raises(InvalidPriorityError) as caught:
        await client.publish_batch(events)

    assert caught.value.index == 1
    assert await client.browse(name) == []
    assert await client.publish_batch([]) == []


async def test_a_rejected_message_is_dead(client: AsyncHoldfast, queue: str) -> None:
    sent = [await client.send(queue, n) for n in range(2)]
    held = await client.claim(queue, 2)

    settlement = await client.reject(queue, held[0].token, [sent[0]], error="no such customer")

    (letter,) = await client.browse(queue, "dead")
    assert settlement == Settlement(settled=[sent[0]], skipped=[])
    assert (letter.payload, letter.last_error) == (0, "no such customer")
    assert (await client.queue_stats(queue)).in_flight == 1
