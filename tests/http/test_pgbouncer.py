"""The server through PgBouncer in transaction mode, where sessions mean nothing: polls stand for LISTEN."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import Holdfast
from tests.fix_http import Caller, Serve
from tests.http.streams import Stream
from tests.waiting import eventually

ORDERS = "/v1/queues/orders"


@pytest.fixture
def pooled(serve: Serve, pgbouncer_url: str) -> Caller:
    """A server with more connections than PgBouncer has to the database."""
    return serve(database_url=pgbouncer_url, listen=False)


def test_messages_go_through_all_verbs_once(pooled: Caller, engine: Holdfast) -> None:
    pooled.ok("PUT", ORDERS, {"lease": "1 min"}, status=201)

    def work(number: int) -> tuple[str, ...]:
        with pooled.with_key(None) as caller:
            caller.send("orders", number)
            (message,) = caller.claim("orders", wait=30)
            caller.ok("POST", f"{ORDERS}/extend", {"token": message["token"], "ids": [message["id"]]})
            done = caller.ok("POST", f"{ORDERS}/ack", {"token": message["token"], "ids": [message["id"]]})
            return tuple(done["settled"])

    with ThreadPoolExecutor(16) as pool:
        settled = list(pool.map(work, range(64)))

    assert len(set(settled)) == 64
    assert engine.queue_stats("orders").depth == 0


def test_a_claim_and_a_stream_that_wait_get_what_comes(pooled: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    with (
        Stream(pooled, "orders", "max=1") as stream,
        ThreadPoolExecutor(1) as pool,
        pooled.with_key(None) as caller,
    ):
        claiming = pool.submit(caller.claim, "orders", wait=30)
        waiting = "holdfast_claims_waiting 2.0"
        eventually(lambda: waiting in pooled.call("GET", "/metrics").text, what="both wait")

        engine.send_batch("orders", [1, 2])

        got = [claiming.result()[0]["payload"], stream.message()["payload"]]
    assert sorted(got) == [1, 2]
    eventually(lambda: engine.queue_stats("orders").in_flight == 1, what="the stream has given back its own")


def test_a_key_that_has_ended_is_refused_before_long(
    pooled: Caller, engine: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.auth.FRESH_SECONDS", 0.0)
    key = engine.create_key("worker", scopes=["read"])
    with pooled.with_key(key.key) as caller:
        caller.ok("GET", "/v1/queues")

        engine.revoke_key(key.id)

        eventually(lambda: caller.call("GET", "/v1/queues").status_code == 401, what="it is refused")
