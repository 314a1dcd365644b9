"""Limits of requests to a queue: held in the database, they count for all servers together."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from tests.fix_http import Serve
from tests.http.streams import Stream

SLOW = 0.01  # requests a second: the first, and no other while a test lasts
ORDERS = "/v1/queues/orders"
NEXT = {"token": "1"}


@pytest.mark.parametrize(
    ("kind", "path", "body", "status"),
    [
        ("send", "messages", {"messages": [{"payload": 1}]}, 201),
        ("claim", "claim", {}, 200),
        ("claim", "next", NEXT, 200),
        ("settle", "ack", NEXT, 200),
        ("settle", "release", NEXT, 200),
        ("settle", "nack", NEXT, 200),
        ("settle", "extend", NEXT, 200),
    ],
)
def test_the_rate_of_a_queue_holds_for_all_servers_together(
    engine: Holdfast, serve: Serve, kind: str, path: str, body: Any, status: int
) -> None:
    engine.create_queue("orders", {"rate_limits": {kind: SLOW}})
    one, two = serve(), serve()

    one.ok("POST", f"{ORDERS}/{path}", body, status=status)
    refused = two.call("POST", f"{ORDERS}/{path}", body)

    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "QH922")
    assert 90 <= int(refused.headers["retry-after"]) <= 100


def test_streams_count_as_claims_and_other_requests_go_on(engine: Holdfast, serve: Serve) -> None:
    engine.create_queue("orders", {"rate_limits": {"claim": SLOW}})
    http = serve()

    with Stream(http, "orders") as first, Stream(http, "orders") as second:
        assert (first.status, second.status) == (200, 429)

    http.send("orders", 1)
    http.ok("GET", f"{ORDERS}/stats")
