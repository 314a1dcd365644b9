"""The dispatcher: what is sent to an endpoint's queue arrives there, and what is not, is told.

1. A message is delivered, signed, settled, and its attempts are written down.
2. What fails is tried again by the endpoint's policy, or is a dead letter at once, by its outcome.
3. A breaker that is open costs no message an attempt; one delivery finds out whether it may close.
4. An endpoint has as many deliveries at once as it says, and its messages keep the order of its queue.
5. What changes is in force at once. What ends gives back what it has not begun.
6. Nothing is connected to that is not allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from holdfast import Holdfast
from holdfast.webhook.guard import Address
from tests.waiting import comes
from tests.webhook.conftest import Contacts, Dispatching, Endpoints, Receive
from tests.webhook.receiver import Receiver, Reply
from tests.webhook.sample import SECRET


async def until(condition: Callable[[], Any], what: str) -> None:
    """Wait, in the loop."""

    async def check() -> bool:
        return bool(condition())

    await comes(check, what=what)


def settled(holdfast: Holdfast, queue: str = "shop") -> Callable[[], bool]:
    """Whether a queue has nothing left."""
    return lambda: holdfast.queue_stats(queue).depth == 0


async def test_a_message_arrives_signed_and_is_done(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    endpoints.make(f"{receiver.url}/in")
    await dispatching()
    id = holdfast.send("shop", {"order": 1})

    await until(settled(holdfast), "the message is settled")

    (got,) = receiver.received
    assert Webhook(SECRET).verify(got.body, got.headers) == {"order": 1}
    assert (got.target, got.id) == ("/in", f"msg_{id}")
    (attempt,) = endpoints.rows("attempts", "shop", id)
    assert (attempt["outcome"], attempt["status"], attempt["delivery"]) == ("done", 204, 1)


async def test_what_was_sent_before_it_began_is_delivered_too(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    endpoints.make(receiver.url)
    holdfast.send_batch("shop", range(500))

    await dispatching()
    await until(settled(holdfast), "all messages are settled")

    assert sorted(map(int, receiver.bodies())) == [*range(500)]


async def test_an_endpoint_that_is_made_meanwhile_is_delivered_to(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    await dispatching()
    endpoints.make(receiver.url)
    holdfast.send("shop", 1)

    await until(settled(holdfast), "the message is settled")

    assert receiver.bodies() == [b"1"]


@pytest.mark.parametrize("listen", [True, False])
async def test_with_and_without_notifications_what_comes_late_is_found(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching, listen: bool
) -> None:
    endpoints.make(receiver.url)
    await dispatching(settings={"listen": listen})
    for n in range(3):
        holdfast.send("shop", n)
        await until(lambda: len(receiver.received) == n + 1, f"message {n} arrives")  # noqa: B023


async def test_what_fails_is_tried_again_until_it_succeeds(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    replies = iter([Reply(500), Reply(reset=True), Reply(429), Reply(204)])
    receiver.answering = lambda _: next(replies)
    endpoints.make(receiver.url)
    await dispatching()
    id = holdfast.send("shop", 1)

    await until(settled(holdfast), "the message is settled")

    attempts = endpoints.rows("attempts", "shop", id)
    assert [(each["delivery"], each["outcome"], each["status"]) for each in attempts] == [
        (4, "done", 204),
        (3, "retry", 429),
        (2, "retry", None),
        (1, "retry", 500),
    ]
    assert len({got.id for got in receiver.received}) == 1


async def test_what_fails_as_often_as_it_may_is_a_dead_letter(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(503, body=b"busy")
    endpoints.make(receiver.url, retry={"strategy": "fixed", "base": 0.05, "max_attempts": 3})
    await dispatching()
    holdfast.send("shop", 1)

    await until(lambda: holdfast.queue_stats("shop").dead == 1, "the message is dead")

    (dead,) = holdfast.browse("shop", "dead")
    assert (len(receiver.received), dead.last_error) == (3, "503 Service Unavailable")


@pytest.mark.parametrize("status", [301, 307, 400, 404, 422])
async def test_what_no_repetition_helps_is_a_dead_letter_at_once(
    receiver: Receiver,
    endpoints: Endpoints,
    holdfast: Holdfast,
    dispatching: Dispatching,
    contacts: Contacts,
    status: int,
) -> None:
    receiver.answering = lambda _: Reply(status, {"location": "http://" + "169.254.169.254/"}, b"no")
    endpoints.make(receiver.url)
    await dispatching()
    id = holdfast.send("shop", 1)

    await until(lambda: holdfast.queue_stats("shop").dead == 1, "the message is dead")

    (attempt,) = endpoints.rows("attempts", "shop", id)
    assert (attempt["outcome"], attempt["status"], attempt["response"]) == ("dead", status, "no")
    assert len(receiver.received) == 1
    assert contacts.addresses() == {"127.0.0.1"}


async def test_410_disables_the_endpoint_and_the_others_wait(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(410)
    endpoints.make(receiver.url, concurrency=1)
    await dispatching()
    holdfast.send("shop", 1)
    await until(lambda: holdfast.queue_stats("shop").dead == 1, "the message is dead")
    holdfast.send("shop", 2)

    (info,) = endpoints.rows("endpoint_info", "shop")
    assert (info["enabled"], info["disabled_reason"].startswith("410 Gone")) == (False, True)

    receiver.answering = lambda _: Reply()
    endpoints.call("enable_endpoint", "shop")
    await until(settled(holdfast), "the other message is settled")
    assert receiver.bodies() == [b"1", b"2"]


async def test_retry_after_puts_off_the_next_attempt(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(429, {"retry-after": "600"})
    endpoints.make(receiver.url)
    await dispatching()
    holdfast.send("shop", 1)

    await until(lambda: holdfast.queue_stats("shop").scheduled == 1, "the message is put off")

    (entry,) = holdfast.browse("shop", "scheduled")
    assert entry.due_at is not None
    assert 590 < (entry.due_at - holdfast.now()).total_seconds() <= 600


async def test_an_open_breaker_costs_no_message_an_attempt_and_closes_by_one_probe(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(500)
    endpoints.make(receiver.url, concurrency=2, breaker={"threshold": 4, "cooldown": 2})
    holdfast.send_batch("shop", range(50))
    await dispatching()
    await until(lambda: endpoints.state() == "open", "the breaker opens")
    await until(lambda: holdfast.queue_stats("shop").in_flight == 0, "what was claimed is given back")
    tried = len(receiver.received)

    receiver.answering = lambda _: Reply()
    await until(settled(holdfast), "all messages are settled")

    assert tried < 20
    events = [row["event"] for row in endpoints.rows("endpoint_events", "shop")]
    assert events[:3] == ["closed", "half_opened", "opened"]
    failed = endpoints.rows("endpoint_attempts", "shop", ["retry"], 100)
    assert len(failed) == tried
    # No message was delivered more often than it was tried.
    assert max(int(got.headers["holdfast-attempt"]) for got in receiver.received) <= 1 + max(
        sum(row["id"] == id for row in failed) for id in {row["id"] for row in failed}
    )


async def test_a_probe_that_fails_opens_it_for_another_cooldown(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(500)
    endpoints.make(receiver.url, concurrency=1, breaker={"threshold": 1, "cooldown": 0.5})
    holdfast.send_batch("shop", range(10))
    await dispatching()

    def probes() -> list[float]:
        events = endpoints.rows("endpoint_events", "shop")
        return [row["at"].timestamp() for row in events if row["event"] == "half_opened"]

    await until(lambda: len(probes()) >= 3, "there are several probes")

    first = min(probes())
    tried = sum(got.at > first for got in receiver.received)
    # One more may have been on its way since before the breaker opened.
    assert tried <= len(probes()) + 1


async def test_two_dispatchers_make_one_probe(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(500)
    endpoints.make(receiver.url, concurrency=1, breaker={"threshold": 1, "cooldown": 2})
    holdfast.send("shop", 0)
    await dispatching()
    await until(lambda: endpoints.state() == "open", "the breaker opens")
    await dispatching()
    holdfast.send_batch("shop", range(20))
    receiver.answering = lambda _: Reply(500, after=0.5)
    before = len(receiver.received)

    def half_opened() -> int:
        return sum(row["event"] == "half_opened" for row in endpoints.rows("endpoint_events", "shop"))

    await until(lambda: half_opened() >= 2, "there are two probes")
    await until(lambda: len(receiver.received) >= before + 2, "they arrive")

    assert len(receiver.received) <= before + half_opened()
    assert receiver.most_at_once == 1


async def test_no_more_are_delivered_at_once_than_the_endpoint_says(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(after=0.05)
    endpoints.make(receiver.url, concurrency=3)
    holdfast.send_batch("shop", range(60))
    await dispatching()

    await until(settled(holdfast), "all messages are settled")

    assert (len(receiver.received), receiver.most_at_once) == (60, 3)


async def test_no_more_are_delivered_at_once_than_the_dispatcher_says(
    receive: Receive, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    both = receive(lambda _: Reply(after=0.05))
    for name in ("one", "two"):
        endpoints.make(both.url, name, concurrency=10)
        holdfast.send_batch(name, range(20))
    await dispatching(concurrency=4)

    for name in ("one", "two"):
        await until(settled(holdfast, name), "all messages are settled")

    assert (len(both.received), both.most_at_once) == (40, 4)


async def test_messages_of_a_key_arrive_in_order_though_some_fail(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    seen: set[bytes] = set()

    def answering(got: Any) -> Reply:
        first = got.body not in seen
        seen.add(got.body)
        return Reply(500 if first and json.loads(got.body)["n"] % 5 == 0 else 204)

    receiver.answering = answering
    endpoints.make(receiver.url, ordering="key", breaker={"threshold": 1000})
    for n in range(60):
        holdfast.send("shop", {"key": n % 3, "n": n}, ordering_key=str(n % 3))
    await dispatching()

    await until(settled(holdfast), "all messages are settled")

    for key in range(3):
        accepted = list(
            dict.fromkeys(body["n"] for body in map(json.loads, receiver.bodies()) if body["key"] == key)
        )
        assert accepted == [n for n in range(60) if n % 3 == key]


async def test_a_change_is_in_force_at_once(
    receive: Receive, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    old, new = receive(), receive()
    endpoints.make(old.url)
    await dispatching()
    holdfast.send("shop", 1)
    await until(settled(holdfast), "the message is settled")

    endpoints.call("configure_endpoint", "shop", {"url": new.url, "headers": {"X-New": "yes"}})
    await until(lambda: holdfast.send("shop", 2) and new.received, "a message goes to the new place")

    assert new.received[0].headers["x-new"] == "yes"


async def test_a_rotated_secret_signs_and_the_old_one_too(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    endpoints.make(receiver.url)
    await dispatching()
    other = "whsec_" + "b" * 40

    endpoints.call("rotate_secret", "shop", endpoints.sealed("shop", other))
    await until(
        lambda: holdfast.send("shop", 1)
        and receiver.received
        and len(receiver.received[-1].headers["webhook-signature"].split()) == 2,
        "both secrets sign",
    )

    got = receiver.received[-1]
    for secret in (SECRET, other):
        Webhook(secret).verify(got.body, got.headers)


async def test_a_disabled_and_a_dropped_endpoint_are_not_delivered_to(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    service = await dispatching()
    for name in ("off", "gone"):
        endpoints.make(f"{receiver.url}/{name}", name)
        holdfast.send(name, 1)
        await until(settled(holdfast, name), "the message is settled")
    endpoints.call("disable_endpoint", "off")
    endpoints.call("drop_endpoint", "gone")
    dispatcher = service.dispatcher
    assert dispatcher is not None
    await until(lambda: not dispatcher.couriers, "nobody is delivered to")

    for name in ("off", "gone"):
        holdfast.send(name, 2)

    assert receiver.bodies() == [b"1", b"1"]
    assert [holdfast.queue_stats(name).ready for name in ("off", "gone")] == [1, 1]


async def test_only_the_endpoints_that_were_named_are_delivered_to(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    for name in ("one", "two"):
        endpoints.make(f"{receiver.url}/{name}", name)
    await dispatching(endpoints=("two",))
    for name in ("one", "two"):
        holdfast.send(name, name)

    await until(settled(holdfast, "two"), "its message is settled")
    endpoints.call("configure_endpoint", "one", {"timeout": 3})
    holdfast.send("two", "again")
    await until(settled(holdfast, "two"), "its second message is settled")

    assert {got.target for got in receiver.received} == {"/two"}
    assert holdfast.queue_stats("one").ready == 1


async def test_an_endpoint_at_a_forbidden_address_is_not_contacted(
    receiver: Receiver,
    endpoints: Endpoints,
    holdfast: Holdfast,
    dispatching: Dispatching,
    contacts: Contacts,
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoints.make(receiver.url)
    endpoints.conn.execute("update holdfast.endpoint set config = config - 'allow'")
    holdfast.send("shop", 1)
    await dispatching(allow=("10.0.0.0/8",))

    await until(lambda: "nothing is delivered" in caplog.text, "it is told")

    assert (contacts, receiver.connections, holdfast.queue_stats("shop").ready) == ([], 0, 1)
    assert "127.0.0.1 is no address of the public internet, and not allowed" in caplog.text


async def test_a_name_that_comes_to_mean_a_forbidden_address_is_refused_with_each_attempt(
    receiver: Receiver,
    endpoints: Endpoints,
    holdfast: Holdfast,
    dispatching: Dispatching,
    contacts: Contacts,
) -> None:
    meant = ["127.0.0.1"]

    async def look_up(host: str, port: int) -> list[Address]:
        assert host == "hooks.example.com"
        return [ip_address(text) for text in meant]

    retry = {"strategy": "fixed", "base": 0.05, "max_attempts": 2}
    endpoints.make(f"http://{'hooks.example.com'}:{receiver.port}", retry=retry, allow=["127.0.0.1"])
    service = await dispatching()
    assert service.dispatcher is not None
    service.dispatcher.lookup = look_up
    receiver.answering = lambda _: Reply(headers={"connection": "close"})
    holdfast.send("shop", 1)
    await until(settled(holdfast), "the message is settled")

    meant[:] = ["127.0.0.1", "169.254.169.254"]
    receiver.pause()
    receiver.restart()
    id = holdfast.send("shop", 2)
    await until(lambda: holdfast.queue_stats("shop").dead == 1, "the message is dead")

    assert (receiver.bodies(), contacts.addresses(), len(contacts)) == ([b"1"], {"127.0.0.1"}, 1)
    assert {each["error"] for each in endpoints.rows("attempts", "shop", id)} == {
        "refused: hooks.example.com, which means 169.254.169.254, "
        "is no address of the public internet, and not allowed"
    }


async def test_a_secret_that_cannot_be_opened_stops_its_endpoint_alone(
    receiver: Receiver,
    endpoints: Endpoints,
    holdfast: Holdfast,
    dispatching: Dispatching,
    caplog: pytest.LogCaptureFixture,
) -> None:
    endpoints.make(f"{receiver.url}/good", "good")
    endpoints.make(f"{receiver.url}/bad", "bad", secret=None)
    endpoints.call("rotate_secret", "bad", endpoints.sealed("another", SECRET))
    await dispatching()
    for name in ("bad", "good"):
        holdfast.send(name, 1)

    await until(settled(holdfast, "good"), "the message of the good one is settled")

    assert [got.target for got in receiver.received] == ["/good"]
    assert "bad: nothing is delivered: a sealed secret cannot be opened" in caplog.text
    assert SECRET not in caplog.text


async def test_what_has_not_begun_is_given_back_at_the_end_and_costs_no_attempt(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(after=600)
    endpoints.make(receiver.url, concurrency=2, timeout=300)
    holdfast.send_batch("shop", range(5))
    service = await dispatching(settings={"grace": 0.2})
    await until(lambda: len(receiver.received) == 2, "two are on their way")

    service.dismiss()

    await until(lambda: holdfast.queue_stats("shop").in_flight == 0, "all are given back")
    assert {entry.deliveries for entry in holdfast.browse("shop")} == {0}
    assert holdfast.queue_stats("shop").ready == 5


async def test_what_is_on_its_way_at_the_end_is_finished(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(after=0.5)
    endpoints.make(receiver.url, concurrency=2)
    holdfast.send_batch("shop", range(5))
    service = await dispatching()
    await until(lambda: receiver.at_once == 2, "two are on their way")

    service.dismiss()

    await until(lambda: holdfast.queue_stats("shop").ready == 3, "the others are ready")
    await until(lambda: holdfast.queue_stats("shop").depth == 3, "these two are settled")
    assert len(receiver.received) == 2


async def test_a_lease_is_kept_as_long_as_a_delivery_takes(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda _: Reply(after=3)
    endpoints.make(receiver.url)
    await dispatching(lease=1.5)
    await dispatching(lease=1.5)
    id = holdfast.send("shop", 1)

    await until(settled(holdfast), "the message is settled")

    assert len(receiver.received) == 1
    assert [each["outcome"] for each in endpoints.rows("attempts", "shop", id)] == ["done"]


async def test_the_metrics_tell_of_deliveries(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, dispatching: Dispatching
) -> None:
    receiver.answering = lambda got: Reply(400 if got.body == b"1" else 204)
    endpoints.make(receiver.url)
    service = await dispatching()
    holdfast.send_batch("shop", range(3))
    await until(lambda: len(receiver.received) == 3, "all messages arrive")
    await until(lambda: holdfast.queue_stats("shop").depth == 0, "all are settled")

    service.meters.look(service)
    text = service.meters.written("text/plain")[0].decode()

    assert 'holdfast_webhook_deliveries_total{endpoint="shop",outcome="done"} 2.0' in text
    assert 'holdfast_webhook_deliveries_total{endpoint="shop",outcome="dead"} 1.0' in text
    assert 'holdfast_webhook_endpoints{state="closed"} 1.0' in text
    assert "holdfast_webhook_deliveries_in_flight 0.0" in text
