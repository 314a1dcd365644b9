"""Somebody who speaks the queue-ti dialect: requests and answers, every error in its one shape."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import httpx

PATIENCE = 40.0  # seconds for an answer

Json = Any


class QueueTi:
    """Sends requests to a server."""

    def __init__(self, address: str, *, key: str | None = None, **options: Any) -> None:
        self.address = address
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(
            base_url=address, headers=headers, timeout=PATIENCE, trust_env=False, **options
        )

    def __enter__(self) -> QueueTi:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def call(self, method: str, path: str, body: Json = None, **options: Any) -> httpx.Response:
        """An answer, of whatever status."""
        if body is not None:
            options["json"] = body
        response = self.client.request(method, f"/api{path}", **options)
        if not response.is_success and method != "HEAD":
            check_error(response)
        return response

    def ok(self, method: str, path: str, body: Json = None, *, status: int = 200, **options: Any) -> Json:
        """The document of an answer that has this status; None: it has no body."""
        response = self.call(method, path, body, **options)
        assert response.status_code == status, (response.status_code, response.text)
        return response.json() if response.content else None

    def refused(self, method: str, path: str, body: Json = None, *, status: int, **options: Any) -> str:
        """The text of an error that has this status."""
        response = self.call(method, path, body, **options)
        assert response.status_code == status, (response.status_code, response.text)
        error: str = response.json()["error"]
        return error

    def send(self, topic: str, content: bytes | str, **options: Json) -> str:
        """Send a message; returns its id."""
        payload = as_payload(content)
        sent: str = self.ok("POST", "/messages", {"topic": topic, "payload": payload, **options}, status=201)[
            "id"
        ]
        return sent

    def dequeue(self, topic: str, count: int = 1, **options: Json) -> list[Json]:
        """Take messages."""
        body = {"topic": topic, "count": count, **options}
        messages: list[Json] = self.ok("POST", "/messages/dequeue", body)["messages"]
        return messages

    def contents(self, topic: str, count: int = 1_000) -> list[bytes]:
        """Take messages; what is in them."""
        return [content_of(message) for message in self.dequeue(topic, count)]

    def ack(self, id: str) -> None:
        """A message is done."""
        self.ok("POST", f"/messages/{id}/ack", status=204)

    def nack(self, id: str, error: str | None = None) -> None:
        """A message has failed."""
        self.ok("POST", f"/messages/{id}/nack", {"error": error}, status=204)

    def requeue(self, id: str) -> None:
        """Send a dead letter back."""
        self.ok("POST", f"/messages/{id}/requeue", status=204)

    def fail(self, topic: str, times: int, error: str = "no") -> None:
        """Take the next message and nack it, so many times."""
        for _ in range(times):
            (message,) = self.dequeue(topic)
            self.nack(message["id"], error)

    def items(self, topic: str, **query: Json) -> list[Json]:
        """The messages of a topic, as they are listed."""
        found: list[Json] = self.ok("GET", "/messages", params={"topic": topic, **query})["items"]
        return found

    def item(self, topic: str) -> Json:
        """The only message of a topic."""
        (item,) = self.items(topic)
        return item

    def configure(self, topic: str, **config: Json) -> Json:
        """Give a topic a configuration of its own."""
        return self.ok("PUT", f"/topic-configs/{topic}", config)

    def set(self, **settings: Json) -> Json:
        """Change what holds for all topics."""
        return self.ok("PUT", "/admin/settings", settings)


def as_payload(content: bytes | str) -> str:
    """What is sent, in base64."""
    return b64encode(content.encode() if isinstance(content, str) else content).decode()


def content_of(message: Json) -> bytes:
    """What is in a message."""
    return b64decode(message["payload"], validate=True)


def check_error(response: httpx.Response) -> None:
    """The one shape of an error of this dialect."""
    assert response.headers["content-type"] == "application/json", response.text
    assert set(response.json()) == {"error"}, response.text
    text = response.json()["error"]
    assert isinstance(text, str), text
    assert text, response.text
    assert "holdfast." not in text, text
    assert "/v1/" not in text, text
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)
