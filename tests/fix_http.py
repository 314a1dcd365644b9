"""The HTTP server over the test's database: in a thread, or as a process that can be signalled and killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx
import pytest

from holdfast.client import ERRORS, Holdfast
from holdfast.server.serve import address, bind, serving
from holdfast.server.settings import Settings
from tests.cli.conftest import PROGRAM, environment
from tests.contract import check_answer

PATIENCE = 40.0  # seconds for an answer: longer than the longest wait
STOP_PATIENCE = 30.0  # seconds for a process to end
SHAPE = {"code", "name", "message", "detail", "hint"}
NO_BODY = ("HEAD",)

Json = Any


class Caller:
    """Sends requests to a server; every answer must be one that the OpenAPI document tells of."""

    def __init__(self, address: str, *, key: str | None = None) -> None:
        self.address = address
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=address, headers=headers, timeout=PATIENCE, trust_env=False)

    @property
    def place(self) -> tuple[str, int]:
        """Host and port, for a socket."""
        url = httpx.URL(self.address)
        return url.host, url.port or 0

    def with_key(self, key: str | None) -> Caller:
        """The same server, asked with another key; the caller closes it."""
        return Caller(self.address, key=key)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def call(self, method: str, path: str, body: Json = None, **options: Any) -> httpx.Response:
        """An answer, of whatever status."""
        if body is not None:
            options["json"] = body
        response = self.client.request(method, path, **options)
        if not response.is_success and method not in NO_BODY:
            check_error(response)
        check_answer(response)
        return response

    def ok(self, method: str, path: str, body: Json = None, *, status: int = 200, **options: Any) -> Json:
        """The document of an answer that has this status."""
        response = self.call(method, path, body, **options)
        assert response.status_code == status, (response.status_code, response.text)
        return response.json()

    def refused(
        self, method: str, path: str, body: Json = None, *, status: int, code: str, **options: Any
    ) -> Mapping[str, str | None]:
        """The error of an answer that has this status and code."""
        response = self.call(method, path, body, **options)
        found = (response.status_code, response.json()["error"]["code"])
        assert found == (status, code), (found, response.text)
        error: Mapping[str, str | None] = response.json()["error"]
        return error

    def send(self, queue: str, *payloads: Json) -> list[str]:
        """Send messages; returns their ids."""
        messages = [{"payload": payload} for payload in payloads]
        ids: list[str] = self.ok("POST", f"/v1/queues/{queue}/messages", {"messages": messages}, status=201)[
            "ids"
        ]
        return ids

    def claim(self, queue: str, **options: Json) -> list[Json]:
        """Claim messages."""
        found: list[Json] = self.ok("POST", f"/v1/queues/{queue}/claim", options)["messages"]
        return found


def check_error(response: httpx.Response) -> None:
    """The one shape of an error: a known code with its name and status, and a message."""
    assert response.headers["content-type"] == "application/json", response.text
    assert set(response.json()) == {"error"}, response.text
    error = response.json()["error"]
    assert set(error) == SHAPE, error
    assert error["message"], error
    assert "holdfast." not in (error["hint"] or ""), error  # functions are for those who speak SQL
    kind = ERRORS[error["code"]]
    assert (error["name"], response.status_code) == (kind.name, kind.http_status), error
    assert ("retry-after" in response.headers) == (response.status_code in (429, 503))
    assert ("www-authenticate" in response.headers) == (response.status_code == 401)


class Serve(Protocol):
    """Starts one more server over the test's database; fields of Settings by name."""

    def __call__(self, **settings: Any) -> Caller: ...


@contextmanager
def served(settings: Settings) -> Iterator[Caller]:
    """A server in a thread, and somebody to call it."""
    with (
        bind(settings.host, settings.port) as listener,
        Caller(address(listener, settings)) as caller,
        serving(settings, listener),
    ):
        yield caller


@pytest.fixture
def serve(database_url: str) -> Iterator[Serve]:
    """Starts servers in threads, which end with the test."""
    with ExitStack() as stack:

        def start(**given: Any) -> Caller:
            settings = Settings(**{"database_url": database_url, "port": 0, **given})
            return stack.enter_context(served(settings))

        yield start


@pytest.fixture
def http(serve: Serve) -> Caller:
    """A server in a thread, with the defaults: no key exists, so it is open."""
    return serve()


@pytest.fixture
def engine(database_url: str) -> Iterator[Holdfast]:
    """The same queues without HTTP: a consumer or producer through another door."""
    with Holdfast(database_url) as client:
        yield client


class ServerProcess:
    """`holdfast serve` as people run it, on a free port of loopback."""

    def __init__(self, database_url: str, *options: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            [str(PROGRAM), "serve", "--port", "0", "--json", *options],
            # A line for each request would fill the pipe, which nobody reads meanwhile.
            env=environment(database_url, **{"HOLDFAST_LOG_LEVEL": "warning", **variables}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.communicate(timeout=STOP_PATIENCE)}"
        self.address: str = json.loads(line)["address"]

    def caller(self, *, key: str | None = None) -> Caller:
        """Somebody to send requests; to be closed."""
        return Caller(self.address, key=key)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """End it; returns its exit code and what it wrote to stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=STOP_PATIENCE)
        return self.process.returncode, err

    def kill(self) -> None:
        """kill -9."""
        self.end(signal.SIGKILL)

    def close(self) -> None:
        """End it, however it is, and all processes that it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # it leads a session of its own
        self.process.communicate(timeout=STOP_PATIENCE)


class ServeProcess(Protocol):
    """Starts `holdfast serve` with options, and variables of its environment."""

    def __call__(self, *options: str, **variables: str) -> ServerProcess: ...


@pytest.fixture
def serve_process(database_url: str) -> Iterator[ServeProcess]:
    """Starts servers as processes, which are gone after the test."""
    with ExitStack() as stack:

        def start(*options: str, **variables: str) -> ServerProcess:
            process = ServerProcess(database_url, *options, **variables)
            stack.callback(process.close)
            return process

        yield start


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1, and its key."""
    return certified(tmp_path_factory.mktemp("tls"))


def certified(folder: Path) -> tuple[Path, Path]:
    """A new certificate of 127.0.0.1 in this folder, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *names, *files], check=True, capture_output=True)
    return certificate, key


def is_listening(place: tuple[str, int]) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection(place, timeout=5).close()
    except OSError:
        return False
    return True
