"""A key that ends while something goes on. Claims pinned here:

1. A claim that waits is turned away when its key ends, and so is a stream, as soon as the server hears of it.
2. It is handed no message either where the server does not hear: what was claimed for it is given back.
3. While the database does not answer, a key that has expired counts no more; any other for a bounded time.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Holdfast
from tests.fix_database import Connect
from tests.fix_http import Caller, Serve
from tests.fix_proxy import Proxy
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
CLAIM = "/v1/queues/orders/claim"
WITHOUT_DATABASE = "/openapi.json"  # takes any valid key, and nothing of the database
WAITING = "select true from pg_locks where not granted and relation = 'holdfast.queue'::regclass"


class Claiming:
    """A claim that waits, in a thread of its own, longer than any test does for something to happen."""

    def __init__(self, caller: Caller, wait: float = 30) -> None:
        self.answer: httpx.Response | None = None
        self._caller = caller
        self._wait = wait
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self.answer = self._caller.call("POST", CLAIM, {"wait": self._wait})

    def answered(self) -> Any:
        """The document that it is answered with."""
        eventually(lambda: self.answer is not None, what="the claim is answered")
        assert self.answer is not None
        return self.answer.json()

    def code(self) -> str:
        """The code of the error that it is answered with."""
        code: str = self.answered()["error"]["code"]
        return code


@pytest.fixture
def worker(engine: Holdfast) -> str:
    """The secret of a key that may claim from a queue that is there; its id is 1."""
    engine.create_queue("orders")
    return engine.create_key("worker", scopes=["consume"]).key


def waits(http: Caller) -> bool:
    return "holdfast_claims_waiting 1.0" in http.call("GET", "/metrics").text


def status(caller: Caller) -> int:
    return caller.call("GET", WITHOUT_DATABASE).status_code


def is_refused(caller: Caller) -> bool:
    return status(caller) == 401


# --- 1. at once ------------------------------------------------------------------------------------


def test_a_claim_that_waits_is_turned_away_when_its_key_is_revoked(
    worker: str, engine: Holdfast, serve: Serve
) -> None:
    server = serve()
    with server.with_key(worker) as caller, server.with_key(admin(engine)) as watcher:
        claiming = Claiming(caller)
        eventually(partial(waits, watcher), what="it waits")

        engine.revoke_key(1)

        assert claiming.code() == "QH920"


def test_a_claim_that_waits_goes_on_when_another_key_is_revoked(
    worker: str, engine: Holdfast, serve: Serve
) -> None:
    other = engine.create_key("other", scopes=["read"])
    server = serve()
    with (
        server.with_key(worker) as caller,
        server.with_key(other.key) as watcher,
        server.with_key(admin(engine)) as looker,
    ):
        claiming = Claiming(caller)
        eventually(partial(waits, looker), what="it waits")
        assert status(watcher) == 200

        engine.revoke_key(other.id)
        eventually(partial(is_refused, watcher), what="the server has heard of it")
        engine.send("orders", 1)

        found = claiming.answered()["messages"]
    assert [message["payload"] for message in found] == [1]


@pytest.mark.parametrize("ends", [True, False])  # whether it is the claim's own key that changes
def test_a_claim_that_is_gathered_with_others_is_answered_by_its_own_key_alone(
    worker: str, engine: Holdfast, serve: Serve, ends: bool
) -> None:
    engine.configure_queue("orders", {"claim_window": "2 s"})
    engine.send("orders", 1)
    with serve().with_key(worker) as caller, caller.with_key(admin(engine)) as watcher:
        caller.ok("GET", WITHOUT_DATABASE)
        claiming = Claiming(caller, wait=0)
        eventually(partial(waits, watcher), what="it is in the window")

        if ends:
            engine.revoke_key(1)
        else:
            engine.create_key("other", scopes=["read"])

        answer = claiming.answered()
    if ends:
        assert answer["error"]["code"] == "QH920"
        eventually(lambda: engine.queue_stats("orders").ready == 1, what="the message is given back")
    else:
        assert [message["payload"] for message in answer["messages"]] == [1]


@pytest.mark.parametrize("is_known", [True, False])  # whether the server knows the queue, or looks first
def test_a_claim_that_is_on_its_way_meanwhile_is_turned_away_too(
    worker: str, engine: Holdfast, serve: Serve, connect: Connect, conn: Conn, is_known: bool
) -> None:
    other = connect(autocommit=False)
    with serve().with_key(worker) as caller, caller.with_key(worker) as watcher:
        if is_known:
            caller.ok("POST", CLAIM, {})
        other.execute("lock table holdfast.queue in access exclusive mode")
        claiming = Claiming(caller)
        eventually(lambda: conn.execute(WAITING).fetchone(), what="it waits for the lock")

        engine.revoke_key(1)
        eventually(partial(is_refused, watcher), what="the server has heard of it")
        other.rollback()

        assert claiming.code() == "QH920"


@pytest.mark.parametrize("most", [1, 2])  # a full one, and one that waits
def test_a_stream_ends_as_soon_as_its_key_is_revoked(
    worker: str, engine: Holdfast, serve: Serve, most: int
) -> None:
    engine.send("orders", 1)
    with (
        serve(heartbeat=3600.0).with_key(worker) as caller,
        caller.client.stream("GET", f"/v1/queues/orders/work?max={most}", timeout=20) as response,
    ):
        lines = response.iter_lines()
        next(line for line in lines if line == "event: message")

        engine.revoke_key(1)

        assert any('"QH920"' in line for line in lines)
    eventually(lambda: engine.queue_stats("orders").ready == 1, what="the message is given back")


# --- 2. not a message more -------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["revoked", "expired"])
def test_who_claims_with_a_key_that_has_ended_gets_no_message(
    engine: Holdfast, serve: Serve, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr("holdfast.server.auth.FRESH_SECONDS", 0.0)
    engine.create_queue("orders")
    made = engine.create_key("worker", scopes=["consume"], expires_in=2.0 if end == "expired" else None)
    server = serve(listen=False)
    with server.with_key(made.key) as caller, server.with_key(admin(engine)) as watcher:
        claiming = Claiming(caller)
        eventually(partial(waits, watcher), what="it waits")

        if end == "revoked":
            engine.revoke_key(made.id)
        eventually(lambda: status_of(server, made.key) == 401, what="the key has ended")
        engine.send("orders", 1)

        assert claiming.code() == "QH920"
    eventually(lambda: engine.queue_stats("orders").ready == 1, what="the message is given back")
    assert [(each.payload, each.deliveries) for each in engine.claim("orders")] == [(1, 1)]


def status_of(server: Caller, key: str) -> int:
    with server.with_key(key) as caller:
        return status(caller)


# --- 3. without the database -----------------------------------------------------------------------


def test_a_key_expires_while_the_database_does_not_answer(
    engine: Holdfast, serve: Serve, proxy: Proxy
) -> None:
    key = engine.create_key("short", scopes=["read"], expires_in=3.0).key
    with serve(database_url=proxy.url, listen=False).with_key(key) as caller:
        assert status(caller) == 200

        proxy.stop()

        eventually(lambda: status(caller) != 200, what="it has expired")
        assert status(caller) == 401


@pytest.mark.verify
def test_what_is_known_of_keys_holds_for_a_bounded_time_without_the_database(
    engine: Holdfast, serve: Serve, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.auth.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.server.auth.OUTAGE_SECONDS", 6.0)
    key = engine.create_key("reader", scopes=["read"]).key
    with serve(database_url=proxy.url, listen=False).with_key(key) as caller:
        assert status(caller) == 200
        proxy.stop()
        assert status(caller) == 200  # it goes on to hold

        eventually(lambda: status(caller) == 503, what="that is over")

        proxy.start()
        eventually(lambda: status(caller) == 200, what="the database has been asked")


def test_that_there_is_no_key_holds_for_a_bounded_time_without_the_database(
    engine: Holdfast, serve: Serve, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.auth.OPEN_SECONDS", 0.0)
    monkeypatch.setattr("holdfast.server.auth.OUTAGE_SECONDS", 6.0)
    caller = serve(database_url=proxy.url, listen=False)
    assert status(caller) == 200
    proxy.stop()
    assert status(caller) == 200

    eventually(lambda: status(caller) == 503, what="that is over")


def admin(engine: Holdfast) -> str:
    """The secret of a key that may do everything."""
    return engine.create_key("admin", scopes=["admin"]).key
