"""Somebody who speaks the topics dialect: requests, answers, and event streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx

PATIENCE = 40.0  # seconds for an answer
EVENT_PATIENCE = 20.0  # for an event to come
STREAM = {"accept": "text/event-stream"}

Json = Any


class Topics:
    """Sends requests to a server."""

    def __init__(self, address: str, *, key: str | None = None) -> None:
        self.address = address
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=address, headers=headers, timeout=PATIENCE, trust_env=False)

    def __enter__(self) -> Topics:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def call(self, method: str, path: str, body: Json = None, **options: Any) -> httpx.Response:
        """An answer, of whatever status."""
        if body is not None:
            options["json"] = body
        response = self.client.send(self.client.build_request(method, path, **options), stream=True)
        if method != "HEAD" and response.headers.get("content-type", "").startswith("text/event-stream"):
            response.close()
            raise AssertionError(f"{method} {path} has opened a stream")
        response.read()
        if not response.is_success and method != "HEAD":
            check_error(response)
        return response

    def ok(self, method: str, path: str, body: Json = None, *, status: int = 200, **options: Any) -> Json:
        """The document of an answer that has this status; what is measured is left out."""
        response = self.call(method, path, body, **options)
        assert response.status_code == status, (response.status_code, response.text)
        document = response.json()
        assert document.pop("performance")["server_total_ms"] > 0
        return document

    def refused(
        self, method: str, path: str, body: Json = None, *, status: int, code: str, **options: Any
    ) -> Json:
        """The error of an answer that has this status and code."""
        response = self.call(method, path, body, **options)
        found = (response.status_code, response.json()["error"]["code"])
        assert found == (status, code), (found, response.text)
        return response.json()["error"]

    def put(self, topic: str, *, status: int = 201, **config: Json) -> Json:
        """Make or change a topic; returns its configuration."""
        return self.ok("PUT", f"/v0/topics/{topic}", config, status=status)["config"]

    def queue(self, topic: str, **config: Json) -> str:
        """Make a queue; returns its name."""
        self.put(topic, type="queue", **config)
        return topic

    def append(self, topic: str, *data: Json, status: int = 200, **options: Json) -> list[int]:
        """Append records with these data; returns their numbers."""
        records = [{"data": one} for one in data]
        seqs: list[int] = self.ok(
            "POST", f"/v0/topics/{topic}", {"records": records, **options}, status=status
        )["seqs"]
        return seqs

    def claim(self, topic: str, node: str = "n", **options: Json) -> list[Json]:
        """Claim jobs."""
        answer = self.ok("POST", f"/v0/topics/{topic}/claim", {"node": node, **options})
        assert (answer["topic"], answer["count"]) == (topic, len(answer["claimed"]))
        claimed: list[Json] = answer["claimed"]
        return claimed

    def settle(self, verb: str, topic: str, seqs: list[int], node: str = "n", **options: Json) -> Json:
        """Ack, nack or extend."""
        return self.ok("POST", f"/v0/topics/{topic}/{verb}", {"node": node, "seqs": seqs, **options})

    def get(self, topic: str) -> Json:
        """The state of a topic."""
        return self.ok("GET", f"/v0/topics/{topic}")

    def counted(self, topic: str) -> Json:
        """The counters of a queue."""
        return self.get(topic)["queue"]

    def diff(self, topic: str, **options: Json) -> Json:
        """What is behind a place."""
        return self.ok("POST", f"/v0/topics/{topic}/diff", options)

    def data(self, topic: str) -> list[Json]:
        """The data of all records."""
        return [record["data"] for record in self.diff(topic, limit=1000)["records"]]

    def work(self, topic: str, query: str = "node=n", **headers: str) -> Events:
        """Open a work stream."""
        return Events(self, f"/v0/topics/{topic}/work?{query}", headers)

    def watch(self, topics: Json, *, last: str | None = None, **options: Json) -> Events:
        """Name a watch, and open it."""
        watch = self.ok("POST", "/v0/watch", {"topics": topics, **options})
        return Events(self, watch["stream_url"], {} if last is None else {"last-event-id": last})


@dataclass(frozen=True, slots=True)
class Event:
    """An event, or a comment (kind "comment"), or the pause that is asked for (kind "retry")."""

    kind: str
    data: Json
    id: str | None = None


class Events:
    """An event stream that was opened."""

    def __init__(self, topics: Topics, path: str, headers: dict[str, str]) -> None:
        self._open = ExitStack()
        opening = topics.client.stream("GET", path, headers={**STREAM, **headers}, timeout=EVENT_PATIENCE)
        self.response = self._open.enter_context(opening)
        assert self.response.status_code == 200, self.response.read()
        self._blocks = blocks(self.response)

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._open.close()

    def next(self) -> Event | None:
        """What comes next; None at the end."""
        block = next(self._blocks, None)
        return None if block is None else parsed(block)

    def of(self, kind: str) -> Event:
        """The next event of a kind; comments and pauses are passed over."""
        while (event := self.next()) is not None:
            if event.kind == kind:
                return event
            assert event.kind in ("comment", "retry"), event
        raise AssertionError(f"the stream has ended without {kind}")

    def jobs(self, count: int) -> list[Json]:
        """The next jobs."""
        return [self.of("job").data for _ in range(count)]


def blocks(response: httpx.Response) -> Iterator[list[str]]:
    """The lines between two empty ones."""
    block: list[str] = []
    for line in response.iter_lines():
        if line:
            block.append(line)
        elif block:
            yield block
            block = []


def parsed(block: list[str]) -> Event:
    """A block of lines as an event."""
    if block[0].startswith(":"):
        return Event("comment", block[0].removeprefix(": "))
    fields = dict(line.split(": ", 1) for line in block)
    if "event" not in fields:
        ((kind, data),) = fields.items()
        return Event(kind, data)
    return Event(fields["event"], json.loads(fields["data"]), fields.get("id"))


def check_error(response: httpx.Response) -> None:
    """The one shape of an error of this dialect."""
    assert response.headers["content-type"] == "application/json", response.text
    assert set(response.json()) == {"error"}, response.text
    error = response.json()["error"]
    assert set(error) == {"code", "message", "detail"}, error
    assert error["message"]
    assert isinstance(error["detail"], dict)
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)
