"""Routes of operations: is the server well, upkeep, rate limiters; and that open mode opens every route."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import Holdfast, __version__
from holdfast.server.app import endpoints
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from tests.fix_http import Caller


def test_the_process_and_its_database_answer(http: Caller) -> None:
    assert http.ok("GET", "/healthz") == {"status": "ok", "version": __version__}
    assert http.ok("GET", "/readyz") == {"status": "ready", "version": __version__}


async def test_however_many_ask_whether_it_is_ready_one_connection_will_do(database_url: str) -> None:
    settings = Settings(database_url=database_url, upkeep=0, listen=False, agent=False)
    async with Service(settings).running() as service:
        asking = asyncio.gather(*(service.reach() for _ in range(100)))
        most = 0
        while not asking.done():
            most = max(most, service.engine.connections.figures()["lent"])
            await asyncio.sleep(0)

    assert most == 1


def test_the_time_is_the_database_s(http: Caller) -> None:
    found = datetime.fromisoformat(http.ok("GET", "/v1/now")["now"])

    assert abs(found - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_sweep_takes_back_what_leases_let_go(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send_batch("orders", [1, 2])

    assert http.ok("POST", "/v1/queues/orders/sweep") == {"freed": 0}


def test_a_round_of_upkeep_says_what_it_did(http: Caller) -> None:
    assert http.ok("POST", "/v1/maintain", {"budget": "500 ms"})["done"] is True
    assert http.ok("POST", "/v1/maintain")["done"] is True


def test_repair_ends_every_lease(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    engine.claim("orders", lease=3600)

    assert http.ok("POST", "/v1/repair", {"unreadable_only": True}) == {"lanes": 0}
    assert http.ok("POST", "/v1/repair", {"queue": "orders"})["lanes"] >= 1
    assert len(engine.claim("orders")) == 1
    http.refused("POST", "/v1/repair", {"queue": "nowhere"}, status=404, code="QH101")


def test_a_bucket_grants_until_it_is_empty(http: Caller) -> None:
    body = {"limiter": "mails/eu", "rate": 0.001, "burst": 3}

    first = http.ok("POST", "/v1/rates/take", {**body, "want": 2})
    part = http.ok("POST", "/v1/rates/take", {**body, "want": 2, "partial": True})
    none = http.ok("POST", "/v1/rates/take", body)

    assert (first["granted"], first["remaining"], part["granted"], none["granted"]) == (2, 1, 1, 0)
    assert none["retry_after"] > 0


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("maintain", {"budget": "1 h"}, "QH422"),
        ("maintain", {"budget": 0}, "QH422"),
        ("maintain", {"budget": "soon"}, "QH911"),
        ("repair", {"queue": "a\0"}, "QH911"),
        ("rates/take", {"limiter": "a", "rate": 0}, "QH701"),
        ("rates/take", {"limiter": "a", "rate": 1e300}, "QH701"),
        ("rates/take", {"limiter": "a", "rate": 1, "burst": 0}, "QH701"),
        ("rates/take", {"limiter": "a", "rate": 1, "burst": 2**31 - 1}, "QH701"),
        ("rates/take", {"limiter": "a", "rate": 1, "burst": 2**31}, "QH911"),
        ("rates/take", {"limiter": "a", "rate": 1, "want": -1}, "QH701"),
        ("rates/take", {"limiter": "", "rate": 1}, "QH702"),
        ("rates/take", {"limiter": "x" * 201, "rate": 1}, "QH702"),
        ("rates/take", {"rate": 1}, "QH911"),
        ("rates/take", {"limiter": "a", "rate": "1"}, "QH911"),
    ],
)
def test_bad_values_are_refused(refusing: Caller, path: str, body: Any, code: str) -> None:
    refusing.refused("POST", f"/v1/{path}", body, status=422, code=code)


@pytest.mark.parametrize("endpoint", list(endpoints()), ids=lambda endpoint: endpoint.name)
def test_in_open_mode_every_route_is_open(refusing: Caller, endpoint: Any) -> None:
    path = endpoint.path.format_map(defaultdict(lambda: "x", queue="nowhere"))
    body = {"nonsense": 1} if endpoint.body else None

    answer = refusing.call(endpoint.method, path, body, params={"nonsense": 1} if endpoint.query else {})

    assert answer.status_code not in (401, 403), answer.text
