"""Endpoints in the test's database, receivers for them, and dispatchers in the test's own loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Protocol

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import Holdfast
from holdfast.server.service import Service
from holdfast.server.settings import Dispatch, Settings
from holdfast.vault import KEY_VARIABLE, Vault
from holdfast.webhook.guard import Address
from tests.webhook.receiver import Answering, Receiver, receiving
from tests.webhook.sample import SECRET

HERE = ["127.0.0.0/8"]
KEY = "A" * 43 + "="
QUICK = {"strategy": "fixed", "base": 0.05, "cap": 0.05, "jitter": 0}

Receive = Callable[..., Receiver]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    """What secrets are sealed with, here and in every process that is started."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    return KEY


@pytest.fixture
def receive() -> Iterator[Receive]:
    """Starts receivers, which end with the test."""
    with ExitStack() as stack:

        def start(answering: Answering | None = None) -> Receiver:
            return stack.enter_context(receiving(answering))

        yield start


@pytest.fixture
def receiver(receive: Receive) -> Receiver:
    """One that says 204, until it is told otherwise."""
    return receive()


@pytest.fixture
def holdfast(database_url: str) -> Iterator[Holdfast]:
    """Somebody who sends, and looks."""
    with Holdfast(database_url) as client:
        yield client


class Endpoints:
    """Endpoints, by SQL."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn

    def make(self, url: str, name: str = "shop", *, secret: str | None = SECRET, **config: Any) -> str:
        """An endpoint that signs, with a queue of its own; returns the name of both."""
        if secret is not None:
            config["signing_secret"] = self.sealed(name, secret)
        self.call("create_endpoint", name, {"url": url, "retry": QUICK, "allow": HERE, **config})
        return name

    def sealed(self, name: str, secret: str) -> str:
        """A secret as it is stored."""
        return Vault.found().seal(secret, f"webhook:{name}")

    def call(self, verb: str, *arguments: Any) -> Any:
        """The value of a verb."""
        places = ", ".join(["%s"] * len(arguments))
        given = [Jsonb(each) if isinstance(each, dict) else each for each in arguments]
        row = self.conn.execute(f"select holdfast.{verb}({places})", given).fetchone()
        assert row is not None
        return row[0]

    def rows(self, verb: str, *arguments: Any) -> list[dict[str, Any]]:
        """The rows of a report."""
        places = ", ".join(["%s"] * len(arguments))
        with self.conn.cursor(row_factory=psycopg.rows.dict_row) as cursor:
            return cursor.execute(f"select * from holdfast.{verb}({places})", arguments).fetchall()

    def state(self, name: str = "shop") -> str:
        """The state of the breaker."""
        return str(self.rows("endpoint_health", name)[0]["breaker"])


@pytest.fixture
def endpoints(conn: psycopg.Connection[Any]) -> Endpoints:
    """Endpoints of the test's database."""
    return Endpoints(conn)


class Contacts(list[tuple[str, Address, int]]):
    """Every address that was about to be connected to."""

    def note(self, host: str, address: Address, port: int) -> None:
        """One more."""
        self.append((host, address, port))

    def addresses(self) -> set[str]:
        """Which addresses."""
        return {str(address) for _, address, _ in self}


class Dispatching(Protocol):
    """Starts a dispatcher; fields of Settings and of Dispatch by name."""

    async def __call__(self, *, settings: dict[str, Any] | None = None, **dispatch: Any) -> Service: ...


@pytest.fixture
def contacts() -> Contacts:
    """What the dispatchers of the test connect to."""
    return Contacts()


@pytest.fixture
async def dispatching(database_url: str, contacts: Contacts) -> AsyncIterator[Dispatching]:
    """Starts dispatchers in the test's loop, which end with the test."""
    async with AsyncExitStack() as stack:

        async def start(*, settings: dict[str, Any] | None = None, **dispatch: Any) -> Service:
            given = {"database_url": database_url, "upkeep": 0.0, "pool_size": 4, **(settings or {})}
            service = Service(Settings(**given, dispatch=Dispatch(**dispatch)))
            assert service.dispatcher is not None
            service.dispatcher.connecting = contacts.note
            return await stack.enter_async_context(service.running())

        yield start
