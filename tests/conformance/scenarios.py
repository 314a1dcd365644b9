"""How each error of the engine comes about: by code, over a client and a queue of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast import AsyncHoldfast, seal
from tests.seals.plainly import pair

Scenario = Callable[[AsyncHoldfast, str], Awaitable[Any]]

SOON = datetime(2040, 1, 1, tzinfo=UTC)
LONG = "x" * 201
KEYS, OTHER_KEYS = pair(), pair()


async def ack_twice_strictly(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    (held,) = await client.claim(queue)
    await client.ack(queue, held.token)
    await client.ack(queue, held.token, [held.id], strict=True)


async def nack_too_late(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    (held,) = await client.claim(queue)
    await client.nack(queue, held.token, delay=timedelta(days=5000))


async def fill(client: AsyncHoldfast, queue: str) -> None:
    await client.configure_queue(queue, {"max_depth": 2})
    await client.send_batch(queue, [1, 2, 3])


async def create_again(client: AsyncHoldfast, queue: str) -> None:
    await client.create_queue(queue, {"max_deliveries": 9})


async def redrive_without_dead_letters(client: AsyncHoldfast, queue: str) -> None:
    await client.configure_queue(queue, {"dead_letter": False})
    await client.redrive(queue)


async def claim_from_a_log(client: AsyncHoldfast, queue: str) -> None:
    await client.create_queue(f"{queue}.log", {"kind": "log"})
    await client.claim(f"{queue}.log")


async def append_with_a_delay(client: AsyncHoldfast, queue: str) -> None:
    await client.create_queue(f"{queue}.log", {"kind": "log"})
    await client.send(f"{queue}.log", 1, delay=1)


async def same_key_another_payload(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1, idempotency_key="a")
    await client.send(queue, 2, idempotency_key="a")


async def strict_with_messages(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    await client.configure_queue(queue, {"ordering": "strict"})


async def narrow_a_schema(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, {"type": ["integer", "string"]})
    await client.set_schema(queue, {"type": "string"})


async def send_what_another_key_opens(client: AsyncHoldfast, queue: str) -> None:
    await client.set_seal_key(queue, KEYS.public)
    await client.send(queue, body=seal(queue, 1, public_key=OTHER_KEYS.public))


async def drop_one_that_is_not_empty(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue, 1)
    await client.drop_queue(queue, if_empty=True)


async def send_what_does_not_fit(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, {"type": "string"})
    await client.send(queue, 1)


async def ask_for_a_queue_twice(client: AsyncHoldfast, queue: str) -> None:
    name = queue.lower()
    await client.create_service_queue("local", name)
    await client.create_service_queue("local", name)


async def retry_what_has_not_failed(client: AsyncHoldfast, queue: str) -> None:
    name = queue.lower()
    await client.create_service_queue("local", name)
    await client.retry_service_queue("local", name)


async def deliver_elsewhere(client: AsyncHoldfast, queue: str) -> None:
    await client.create_endpoint(queue, {"url": "https://a.example/"})
    await client.create_endpoint(queue, {"url": "https://b.example/"})


async def drop_what_an_endpoint_consumes(client: AsyncHoldfast, queue: str) -> None:
    await client.create_endpoint(queue, {"url": "https://a.example/"})
    await client.drop_queue(queue)


async def describe_another_event(client: AsyncHoldfast, queue: str) -> None:
    await client.create_event_type(queue, description="one")
    await client.create_event_type(queue, description="another")


async def make_a_hook_twice(client: AsyncHoldfast, queue: str) -> None:
    await client.create_hook(f"{queue}.hook")
    await client.create_hook(f"{queue}.hook")


async def drop_a_queue_that_a_hook_fills(client: AsyncHoldfast, queue: str) -> None:
    await client.create_hook(f"{queue}.hook")
    await client.drop_queue(f"{queue}.hook")


SCENARIOS: dict[str, Scenario] = {
    "QH101": lambda client, queue: client.send("nowhere", 1),
    "QH102": create_again,
    "QH103": lambda client, queue: client.create_queue("not a name!"),
    "QH104": lambda client, queue: client.create_queue(f"{queue}.r", {"colour": "red"}),
    "QH105": redrive_without_dead_letters,
    "QH106": lambda client, queue: client.set_schema(queue, {"type": "text"}),
    "QH107": lambda client, queue: client.set_schema(queue, {}, expected_version=7),
    "QH108": narrow_a_schema,
    "QH109": drop_one_that_is_not_empty,
    "QH110": lambda client, queue: client.set_seal_key(queue, "none"),
    "QH201": lambda client, queue: client.send(queue, "x" * 1_100_000),
    "QH202": lambda client, queue: client.send(queue, 1, headers={"x": "y" * 70_000}),
    "QH203": lambda client, queue: client.send(queue, 1, body=b"1"),
    "QH204": lambda client, queue: client.send(queue, 1, priority=11),
    "QH205": lambda client, queue: client.send(queue, 1, delay=-1),
    "QH206": lambda client, queue: client.send(queue, 1, ttl=-1),
    "QH207": lambda client, queue: client.send(queue, 1, tag=LONG),
    "QH208": lambda client, queue: client.send_batch(queue, [1] * 100_001),
    "QH209": fill,
    "QH210": lambda client, queue: client.send(queue, 1, max_deliveries=1001),
    "QH220": lambda client, queue: client.send(queue, 1, key=""),
    "QH221": lambda client, queue: client.send(queue, 1, ordering_key="a"),
    "QH222": same_key_another_payload,
    "QH240": send_what_does_not_fit,
    "QH241": send_what_another_key_opens,
    "QH301": lambda client, queue: client.claim(queue, 0),
    "QH302": lambda client, queue: client.claim(queue, lease=0.01),
    "QH304": ack_twice_strictly,
    "QH305": nack_too_late,
    "QH310": strict_with_messages,
    "QH311": lambda client, queue: client.unblock(queue, "a", how="somehow"),
    "QH312": lambda client, queue: client.unblock(queue, "a"),
    "QH401": lambda client, queue: client.browse(queue, "asleep"),
    "QH402": lambda client, queue: client.browse(queue, limit=0),
    "QH403": lambda client, queue: client.redrive(queue, filter={"colour": "red"}),
    "QH410": lambda client, queue: client.purge(queue, ["asleep"]),
    "QH411": lambda client, queue: client.replay(queue, outcomes=["lost"]),
    "QH421": lambda client, queue: client.samples(queue, SOON, SOON - timedelta(days=1)),
    "QH422": lambda client, queue: client.maintain(60),
    "QH601": lambda client, queue: client.configure_queue(queue, {"kind": "log"}),
    "QH602": claim_from_a_log,
    "QH603": lambda client, queue: client.log_stats(queue),
    "QH604": append_with_a_delay,
    "QH605": lambda client, queue: client.read(queue, -1),
    "QH701": lambda client, queue: client.take_rate("a", 0),
    "QH702": lambda client, queue: client.take_rate("", 1),
    "QH803": lambda client, queue: client.rollups(queue, bucket=7),
    "QH850": lambda client, queue: client.put_service("shop", "no address"),
    "QH851": lambda client, queue: client.service_queues("nowhere"),
    "QH860": lambda client, queue: client.create_service_queue("local", "Orders"),
    "QH861": lambda client, queue: client.delete_service_queue("local", "nowhere"),
    "QH862": ask_for_a_queue_twice,
    "QH865": retry_what_has_not_failed,
    "QH870": lambda client, queue: client.enable_endpoint("nowhere"),
    "QH871": deliver_elsewhere,
    "QH872": lambda client, queue: client.create_endpoint(queue, {"url": "ftp://a.example/"}),
    "QH873": lambda client, queue: client.create_endpoint(queue, {"url": "http://127.0.0.1/"}),
    "QH875": drop_what_an_endpoint_consumes,
    "QH876": lambda client, queue: client.publish("nothing", 1),
    "QH877": describe_another_event,
    "QH878": lambda client, queue: client.create_event_type("a b"),
    "QH880": lambda client, queue: client.configure_hook("nowhere", {}),
    "QH881": make_a_hook_twice,
    "QH882": lambda client, queue: client.create_hook("not a name!"),
    "QH885": drop_a_queue_that_a_hook_fills,
    "QH901": lambda client, queue: client.create_key("shop", scopes=["everything"]),
    "QH902": lambda client, queue: client.rotate_key(99),
}
