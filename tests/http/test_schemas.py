"""Schemas over HTTP.

1. A message that does not fit is 422, with the place that is wrong; its neighbours in one call go out.
2. A change at one server is in force at the other at once; also one that was made over SQL.
3. A definition that is stored and is none refuses sends, and nothing else.
4. What is asked wrongly is refused as a request.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Holdfast
from holdfast.server.settings import Settings
from tests.fix_database import holdfast_database
from tests.fix_http import Caller, served
from tests.waiting import eventually

ORDER = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"properties": {"price": {"type": "number"}}}}},
}
GOOD, BAD = {"items": [{"price": 1}]}, {"items": [{"price": "1"}]}


@dataclass(frozen=True, slots=True)
class Shop:
    """A database, two servers in front of it, and a queue."""

    url: str
    one: Caller
    other: Caller
    queue: str

    @property
    def schema(self) -> str:
        """The path of the queue's schema."""
        return f"/v1/queues/{self.queue}/schema"

    def put(self, definition: Any, **options: Any) -> int:
        """Set the schema at the first server."""
        version: int = self.one.ok("PUT", self.schema, {"definition": definition, **options})["version"]
        return version

    def takes(self, server: Caller, payload: Any) -> bool:
        """Whether a server takes a message."""
        path = f"/v1/queues/{self.queue}/messages"
        return server.call("POST", path, {"messages": [{"payload": payload}]}).is_success


@pytest.fixture(scope="module")
def servers(server_url: str, template_database: str) -> Iterator[tuple[str, Caller, Caller]]:
    """Two servers for the whole module."""
    with (
        holdfast_database(server_url, template_database) as url,
        served(Settings(database_url=url, port=0, upkeep=0)) as one,
        served(Settings(database_url=url, port=0, upkeep=0)) as other,
    ):
        yield url, one, other


@pytest.fixture
def shop(servers: tuple[str, Caller, Caller]) -> Shop:
    """A queue of the test's own."""
    url, one, other = servers
    queue = f"orders-{os.urandom(4).hex()}"
    one.ok("PUT", f"/v1/queues/{queue}", status=201)
    return Shop(url, one, other, queue)


def test_a_message_that_does_not_fit_is_422_with_the_place(shop: Shop) -> None:
    shop.put(ORDER)
    messages = [{"payload": GOOD}, {"payload": GOOD}, {"payload": BAD}]

    error = shop.one.refused(
        "POST", f"/v1/queues/{shop.queue}/messages", {"messages": messages}, status=422, code="QH240"
    )

    assert error["detail"] == 'messages[2]: payload.items[0].price: "1" is not of type "number".'
    assert shop.one.ok("GET", f"/v1/queues/{shop.queue}/messages")["messages"] == []


def test_a_message_without_a_payload_is_422(shop: Shop) -> None:
    shop.put({})
    path = f"/v1/queues/{shop.queue}/messages"

    error = shop.one.refused("POST", path, {"messages": [{}]}, status=422, code="QH240")

    assert error["detail"] == "payload: is missing."
    shop.one.ok("POST", path, {"messages": [{"payload": None}]}, status=201)


def test_one_that_does_not_fit_fails_none_of_its_neighbours(shop: Shop) -> None:
    shop.put(ORDER)
    bodies = [{"messages": [{"payload": BAD if number % 4 == 0 else GOOD}]} for number in range(40)]

    async def together() -> list[int]:
        async with httpx.AsyncClient(base_url=shop.one.address) as client:
            path = f"/v1/queues/{shop.queue}/messages"
            answers = await asyncio.gather(*(client.post(path, json=body) for body in bodies))
            return [answer.status_code for answer in answers]

    assert asyncio.run(together()) == [422 if number % 4 == 0 else 201 for number in range(40)]
    assert shop.one.ok("GET", f"/v1/queues/{shop.queue}/stats")["ready"] == 30


def test_a_change_at_one_server_is_in_force_at_the_other(shop: Shop) -> None:
    assert shop.takes(shop.other, BAD)  # it has looked, and remembers

    shop.put(ORDER)
    eventually(lambda: not shop.takes(shop.other, BAD), what="the other has heard of the schema")
    assert not shop.takes(shop.one, BAD)

    shop.put({}, compatibility="none")
    eventually(lambda: shop.takes(shop.other, BAD), what="the other has heard of the change")

    with Holdfast(shop.url) as engine:
        engine.set_schema(shop.queue, ORDER, compatibility="none")
    eventually(lambda: not shop.takes(shop.one, BAD), what="the first has heard of SQL")
    eventually(lambda: not shop.takes(shop.other, BAD), what="the other has heard of SQL")

    shop.other.ok("DELETE", shop.schema)
    eventually(lambda: shop.takes(shop.one, BAD), what="the first has heard of the end")


def test_a_definition_that_cannot_be_used_refuses_sends_and_nothing_else(shop: Shop) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        connection.execute("select holdfast.set_schema(%s, '{\"type\": \"text\"}')", [shop.queue])
    messages = {"messages": [{"payload": 1}]}

    shop.one.refused("POST", f"/v1/queues/{shop.queue}/messages", messages, status=422, code="QH106")

    assert shop.one.claim(shop.queue) == []
    assert shop.one.ok("GET", shop.schema)["definition"] == {"type": "text"}
    assert shop.put(ORDER, compatibility="none") == 2


def test_a_definition_is_passed_on_digit_by_digit(shop: Shop) -> None:
    content = b'{"definition": {"multipleOf": 0.10, "maximum": 123456789012345678901234567890}}'

    shop.one.ok("PUT", shop.schema, content=content, headers={"Content-Type": "application/json"})

    text = shop.one.call("GET", shop.schema).text
    assert "123456789012345678901234567890" in text
    assert "0.10" in text


def test_of_two_changes_at_once_one_counts_after_the_other(shop: Shop) -> None:
    definitions = [{"type": "integer", "title": str(number)} for number in range(8)]

    async def together() -> list[int]:
        async with httpx.AsyncClient() as client:
            answers = await asyncio.gather(
                *(
                    client.put(
                        f"{(shop.one, shop.other)[number % 2].address}{shop.schema}",
                        json={"definition": definition},
                    )
                    for number, definition in enumerate(definitions)
                )
            )
            return [answer.json().get("version", 0) for answer in answers]

    made = [version for version in asyncio.run(together()) if version]

    assert sorted(made) == list(range(1, len(made) + 1))
    assert made


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "", {}),
        ("PUT", "", {"definition": {}, "version": 1}),
        ("PUT", "", {"definition": {}, "expected_version": "1"}),
        ("PUT", "", {"definition": {}, "expected_version": -1}),
        ("PUT", "", {"definition": {}, "kind": 1}),
        ("POST", "/check", {"payloads": 1}),
        ("POST", "/check", {"payloads": [1] * 1001}),
    ],
)
def test_what_is_asked_wrongly_is_refused(shop: Shop, method: str, path: str, body: Any) -> None:
    shop.one.refused(method, shop.schema + path, body, status=422, code="QH911")


@pytest.mark.parametrize("levels", [300, 5_000, 100_000])
def test_no_depth_ends_the_server(shop: Shop, levels: int) -> None:
    shop.put({"items": {"$ref": "#"}})
    nested = b"[" * levels + b"]" * levels
    headers = {"Content-Type": "application/json"}

    sent = shop.one.call(
        "POST",
        f"/v1/queues/{shop.queue}/messages",
        content=b'{"messages": [{"payload": ' + nested + b"}]}",
        headers=headers,
    )
    put = shop.one.call("PUT", shop.schema, content=b'{"definition": ' + nested + b"}", headers=headers)

    assert sent.status_code in (400, 422)
    assert put.status_code in (400, 422)
    assert shop.one.ok("GET", "/healthz")
