"""/metrics. Claims pinned here:

1. Requests are counted by the declared route, the method and the class of the status: no path makes a new
   series.
2. Messages that pass are counted by queue and event; beyond a number of queues, as "other".
3. Queues have the figures of queue_stats: of so many queues, and not counted anew at every look.
4. It says whether the database answers, also while it does not; what is in use, and what waits.
5. It takes the scope read for all queues.
6. Several processes answer as one, also after one of them was killed.
7. Every metric is documented.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import psycopg
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from holdfast.client import Holdfast
from holdfast.server import figures, meters
from holdfast.server.settings import Dispatch
from tests.cli.conftest import PATIENCE
from tests.docs.pages import quoted, rows, sections, text_of
from tests.fix_http import Caller, Serve, ServeProcess
from tests.fix_proxy import Proxy
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
Series = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture
def orders(engine: Holdfast) -> Holdfast:
    """A client of a database with the queue `orders`."""
    engine.create_queue("orders")
    return engine


def scraped(caller: Caller) -> Series:
    """The values of all series, by name and by the values of their labels, in the order of those."""
    response = caller.call("GET", "/metrics")
    assert response.status_code == 200, response.text
    found: Series = defaultdict(dict)
    for family in text_string_to_metric_families(response.text):
        for sample in family.samples:
            found[sample.name][tuple(value for _, value in sorted(sample.labels.items()))] = sample.value
    return found


def test_requests_are_counted_by_route_method_and_class_of_status(http: Caller, orders: Holdfast) -> None:
    for number in range(3):
        http.send("orders", number)
    http.call("POST", "/v1/queues/nowhere/messages", {"messages": [{"payload": 1}]})
    http.call("GET", "/v1/nothing/at/all")
    http.call("GET", "/v1/nothing/at/all/either")

    found = scraped(http)

    send = "/v1/queues/{queue}/messages"
    assert found["holdfast_http_requests_total"] == {
        ("POST", send, "2xx"): 3,
        ("POST", send, "4xx"): 1,
        ("GET", "none", "4xx"): 2,
    }
    assert found["holdfast_http_request_duration_seconds_count"] == {("POST", send): 4, ("GET", "none"): 2}
    assert found["holdfast_http_request_duration_seconds_bucket"]["+Inf", "POST", send] == 4


def test_messages_are_counted_by_queue_and_event(http: Caller, orders: Holdfast) -> None:
    http.send("orders", 1, 2, 3, 4)
    claimed = http.claim("orders", max=4)
    for verb, place in (("ack", 0), ("nack", 1), ("release", 2), ("extend", 3)):
        body = {"token": claimed[place]["token"], "ids": [claimed[place]["id"]]}
        http.ok("POST", f"/v1/queues/orders/{verb}", body)

    found = scraped(http)["holdfast_messages_total"]

    assert found == {
        ("sent", "orders"): 4,
        ("claimed", "orders"): 4,
        **{(event, "orders"): 1 for event in ("acked", "nacked", "released", "extended")},
    }


def test_queues_beyond_a_number_are_counted_together(
    serve: Serve, orders: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meters, "MOST_QUEUES", 2)
    http = serve()
    for queue in ("b", "c", "d"):
        orders.create_queue(queue)
    for queue in ("b", "orders", "c", "d", "b", "d"):
        http.send(queue, 1)

    assert scraped(http)["holdfast_messages_total"] == {
        ("sent", "b"): 2,
        ("sent", "orders"): 1,
        ("sent", "other"): 3,
    }


def test_queues_have_their_figures(http: Caller, orders: Holdfast) -> None:
    orders.configure_queue("orders", {"max_deliveries": 1})
    orders.send_batch("orders", [1, 2, 3, 4])
    orders.send("orders", 5, delay=3600)
    dead, held = orders.claim("orders", max=2)
    orders.nack("orders", dead.token, [dead.id])
    orders.pause_queue("orders")

    found = scraped(http)

    assert {state: found["holdfast_queue_messages"]["orders", state] for state in figures.STATES} == {
        "ready": 2,
        "scheduled": 1,
        "blocked": 0,
        "in_flight": 1,
        "dead": 1,
    }
    assert found["holdfast_queue_messages"]["orders.dlq", "ready"] == 1
    assert found["holdfast_queue_oldest_age_seconds"][("orders",)] > 0
    assert found["holdfast_queue_paused"] == {("orders",): 1, ("orders.dlq",): 0}
    assert found["holdfast_queue_blocked_lines"][("orders",)] == 0
    assert found["holdfast_queue_events_total"]["dead", "orders"] == 1
    assert found["holdfast_queue_events_total"]["sent", "orders"] == 5
    assert found["holdfast_queues"] == {(): 2}
    assert held.queue == "orders"


def test_figures_are_not_counted_anew_at_every_look(
    http: Caller, orders: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = scraped(http)["holdfast_queue_messages"]["orders", "ready"]
    orders.send("orders", 1)
    remembered = scraped(http)["holdfast_queue_messages"]["orders", "ready"]
    monkeypatch.setattr(figures, "FRESH_SECONDS", 0.0)

    assert (before, remembered) == (0, 0)
    assert scraped(http)["holdfast_queue_messages"]["orders", "ready"] == 1


@pytest.mark.parametrize(("most", "shown"), [(0, set()), (2, {"a", "b"})])
def test_only_so_many_queues_have_figures(
    serve: Serve, orders: Holdfast, most: int, shown: set[str]
) -> None:
    for queue in ("c", "b", "a"):
        orders.create_queue(queue)

    found = scraped(serve(metrics_queues=most))

    assert {labels[0] for labels in found["holdfast_queue_paused"]} == shown
    assert found["holdfast_queues"] == {(): 4}


def test_it_tells_what_is_in_use_and_what_waits(http: Caller, orders: Holdfast) -> None:
    with http.client.stream("GET", "/v1/queues/orders/work") as stream:
        lines = stream.iter_lines()  # whose end would be the stream's
        assert next(lines).startswith("retry: ")
        eventually(lambda: scraped(http)["holdfast_claims_waiting"][()] == 1, what="the stream waits")
        during = scraped(http)
    eventually(lambda: scraped(http)["holdfast_streams_open"][()] == 0, what="the stream is gone")

    assert during["holdfast_streams_open"] == {(): 1}
    assert during["holdfast_pool_connections"][()] >= 1
    assert during["holdfast_pool_connections_in_use"][()] >= 0
    assert during["holdfast_pool_waiting"] == {(): 0}
    assert during["holdfast_info"] == {("0.1.0",): 1}


def test_it_tells_how_many_requests_share_a_call(http: Caller, orders: Holdfast) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: http.send("orders", number), range(100)))
    http.claim("orders", max=100)

    found = scraped(http)

    assert found["holdfast_coalesced_requests_sum"][("send",)] == 100
    assert found["holdfast_coalesced_requests_count"][("send",)] <= 100
    assert found["holdfast_coalesced_requests_sum"][("claim",)] == 1


def test_it_answers_while_the_database_does_not(serve: Serve, orders: Holdfast, proxy: Proxy) -> None:
    key = orders.create_key("prometheus", scopes=["read"])
    with serve(database_url=proxy.url, listen=False).with_key(key.key) as far:
        up = scraped(far)
        proxy.stop()
        eventually(lambda: scraped(far)["holdfast_database_up"] == {(): 0}, what="it is down")
        down = scraped(far)
        proxy.start()
        eventually(lambda: scraped(far)["holdfast_database_up"] == {(): 1}, what="it is up again")

    assert up["holdfast_database_up"] == {(): 1}
    assert down["holdfast_http_requests_total"]
    assert "holdfast_queue_messages" not in down


def test_it_takes_the_scope_read_of_all_queues(http: Caller, orders: Holdfast) -> None:
    assert http.call("GET", "/metrics").status_code == 200
    keys = {
        "reader": orders.create_key("reader", scopes=["read"]),
        "sender": orders.create_key("sender", scopes=["send", "consume"]),
        "partial": orders.create_key("partial", scopes=["read"], queues=["orders"]),
    }
    eventually(lambda: http.call("GET", "/metrics").status_code == 401, what="keys are needed")

    statuses = {}
    for name, key in keys.items():
        with http.with_key(key.key) as caller:
            statuses[name] = caller.call("GET", "/metrics").status_code

    assert statuses == {"reader": 200, "sender": 403, "partial": 403}


def test_open_metrics_are_written_where_they_are_accepted(http: Caller) -> None:
    response = http.call("GET", "/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})

    assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = open_metrics(response.text)  # type: ignore[no-untyped-call]
    assert "holdfast_database_up" in {family.name for family in families}


def served_by(server: Any) -> list[psutil.Process]:
    return [
        child
        for child in psutil.Process(server.process.pid).children()
        if any(each.laddr.port == int(server.address.rpartition(":")[2]) for each in child.net_connections())
    ]


def test_several_processes_answer_as_one(serve_process: ServeProcess, orders: Holdfast) -> None:
    server = serve_process("--workers", "2")
    eventually(lambda: len(served_by(server)) == 2, what="both serve", timeout=PATIENCE)

    def send(number: int) -> None:
        with server.caller() as caller:
            caller.send("orders", number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(send, range(60)))
    sights = []
    for _ in range(10):
        with server.caller() as caller:
            sights.append(scraped(caller))

    sent = ("POST", "/v1/queues/{queue}/messages", "2xx")
    assert [sight["holdfast_http_requests_total"][sent] for sight in sights] == [60] * 10
    assert {sight["holdfast_messages_total"]["sent", "orders"] for sight in sights} == {60}
    assert {sight["holdfast_database_up"][()] for sight in sights} == {1}

    served_by(server)[0].kill()
    with server.caller() as caller:
        eventually(lambda: scraped(caller)["holdfast_messages_total"]["sent", "orders"] == 60, what="all 60")


def test_every_metric_is_documented(serve: Serve, orders: Holdfast) -> None:
    http = serve(dispatch=Dispatch())
    http.send("orders", 1)
    response = http.call("GET", "/metrics")
    families = {family.name for family in text_string_to_metric_families(response.text)}

    page = sections(text_of("deployment.md"), 2)["Metrics"].split("| alert on |")[0]
    listed = {quoted(row[0])[0] for row in rows(page)}
    named = {name.partition("{")[0].removesuffix("_total") for name in listed}
    assert named == families
