"""Somebody who speaks the FoundryDB dialect: requests and answers, every error in its one shape."""

from __future__ import annotations

from typing import Any

import httpx

from holdfast.client import ERRORS
from tests.waiting import eventually

PATIENCE = 40.0  # seconds for an answer
AGENT = 120.0  # seconds for an agent, which others keep busy too
FAILED = 422  # a task that has failed

Json = Any


class FoundryDb:
    """Sends requests to a server, about the queues of one service."""

    def __init__(
        self, address: str, *, service: str = "local", key: str | None = None, **options: Any
    ) -> None:
        self.address = address
        self.service = service
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(
            base_url=address, headers=headers, timeout=PATIENCE, trust_env=False, **options
        )

    def __enter__(self) -> FoundryDb:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def of(self, service: str) -> FoundryDb:
        """The same server, about another service; to be closed."""
        return FoundryDb(self.address, service=service)

    def call(self, method: str, path: str = "", body: Json = None, **options: Any) -> httpx.Response:
        """An answer, of whatever status, about what is below the queues of the service."""
        if body is not None:
            options["json"] = body
        response = self.client.request(method, f"/managed-services/{self.service}/queues{path}", **options)
        if not response.is_success and method != "HEAD":
            check_error(response)
        return response

    def ok(
        self, method: str, path: str = "", body: Json = None, *, status: int = 200, **options: Any
    ) -> Json:
        """The document of an answer that has this status."""
        response = self.call(method, path, body, **options)
        assert response.status_code == status, (response.status_code, response.text)
        return response.json()

    def refused(
        self, method: str, path: str = "", body: Json = None, *, status: int, code: str, **options: Any
    ) -> str:
        """The text of an error that has this status and code."""
        response = self.call(method, path, body, **options)
        found = (response.status_code, response.json().get("code"))
        assert found == (status, code), (found, response.text)
        error: str = response.json()["error"]
        return error

    def create(self, name: str, **settings: Json) -> Json:
        """Have a queue made."""
        return self.ok("POST", "", {"name": name, **settings}, status=201)

    def get(self, name: str) -> Json:
        """A queue."""
        return self.ok("GET", f"/{name}")

    def becomes(self, name: str, status: str) -> Json:
        """A queue, as soon as it has this status."""
        return eventually(
            lambda: found if (found := self.get(name))["status"] == status else None,
            what=f"{name} is {status}",
            timeout=AGENT,
        )

    def opened(self, name: str, **settings: Json) -> Json:
        """Make a queue, and wait until it is there."""
        self.create(name, **settings)
        return self.becomes(name, "Active")

    def names(self) -> list[str]:
        """The queues that are listed."""
        return [queue["name"] for queue in self.ok("GET")["queues"]]

    def deleted(self, name: str) -> Json:
        """Have a queue removed, and wait until it is gone; the first answer."""
        answer = self.ok("DELETE", f"/{name}", status=202)
        eventually(lambda: name not in self.names(), what=f"{name} is gone", timeout=AGENT)
        return answer

    def ask(self, name: str, *messages: Json) -> str:
        """Have messages enqueued; the task."""
        task: str = self.ok("POST", f"/{name}/messages", {"messages": list(messages)}, status=202)["task_id"]
        return task

    def result(self, path: str, task: str) -> Json:
        """What comes of a task."""
        done = self.end(path, task)
        assert done.status_code == 200, done.text
        assert (done.json()["task_id"], done.json()["status"]) == (task, "completed")
        return done.json()["result"]

    def end(self, path: str, task: str) -> httpx.Response:
        """The last answer about a task."""

        def over() -> httpx.Response | None:
            answer = self.call("GET", path, params={"task_id": task})
            if answer.status_code != 202:
                return answer
            assert answer.json().items() >= {"task_id": task}.items()
            assert answer.json()["status"] in ("pending", "running")
            return None

        answer = eventually(over, what=f"the task {task} is over", timeout=AGENT)
        assert answer is not None
        return answer

    def enqueue(self, name: str, *payloads: Json, delay: int | None = None) -> list[int]:
        """Enqueue messages; their ids."""
        later = {} if delay is None else {"delay_seconds": delay}
        task = self.ask(name, *({"payload": payload, **later} for payload in payloads))
        ids: list[int] = self.result(f"/{name}/messages", task)["message_ids"]
        return ids

    def stats(self, name: str) -> Json:
        """How many messages a queue has."""
        task = self.ok("POST", f"/{name}/stats", status=202)["task_id"]
        return self.result(f"/{name}/stats", task)


def check_error(response: httpx.Response) -> None:
    """The one shape of an error of this dialect; a task that has failed is told with its id."""
    assert response.headers["content-type"] == "application/json", response.text
    document = response.json()
    text = document["error"]
    assert isinstance(text, str), text
    assert text, response.text
    assert "holdfast." not in text, text
    assert "/v1/" not in text, text
    if response.status_code == FAILED:
        assert set(document) == {"error", "task_id", "status"}, response.text
        assert document["status"] == "failed"
    else:
        assert set(document) == {"error", "code"}, response.text
        assert document["code"] in ERRORS
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)
