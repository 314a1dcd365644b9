"""Routes of queues: make, configure, pause, drop, purge."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.fix_http import Caller
from tests.waiting import WAITING, eventually

ORDERS = "/v1/queues/orders"


def test_a_queue_is_made_once(http: Caller, engine: Holdfast) -> None:
    assert http.ok("PUT", ORDERS, {"max_deliveries": 3}, status=201) == {"created": True}

    assert http.ok("PUT", ORDERS, {"max_deliveries": 3}) == {"created": False}
    assert http.ok("PUT", ORDERS) == {"created": False}
    assert engine.queues()[0].config == {"max_deliveries": 3}


def test_a_queue_with_another_configuration_is_not_made_again(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders", {"max_deliveries": 3})

    error = http.refused("PUT", ORDERS, {"max_deliveries": 4, "ttl": 60}, status=409, code="QH102")

    assert error["detail"] == "max_deliveries is 3, not 4. ttl is the default, not 60."
    assert engine.queues()[0].config == {"max_deliveries": 3}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"max_deliverys": 3}, "max_deliverys"),
        ({"lease": "soon"}, "lease"),
        ({"max_deliveries": -1}, "max_deliveries"),
    ],
)
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", "/v1/queues/other"), ("PATCH", ORDERS), ("PATCH", "/v1/defaults")]
)
def test_a_bad_configuration_is_refused_by_its_field(
    refusing: Caller, method: str, path: str, config: dict[str, Any], field: str
) -> None:
    error = refusing.refused(method, path, config, status=422, code="QH104")

    assert field in f"{error['message']} {error['detail']} {error['hint']}"


def test_a_configuration_is_an_object(refusing: Caller) -> None:
    refusing.refused("PATCH", ORDERS, [1], status=422, code="QH104")


def test_queues_are_listed_with_what_is_in_force(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("a", {"lease": "1 min"})
    engine.create_queue("b")
    engine.pause_queue("b")

    first, second = http.ok("GET", "/v1/queues")["queues"]

    assert (first["queue"], first["paused"], first["config"]) == ("a", False, {"lease": "1 min"})
    assert (second["queue"], second["paused"], second["config"]) == ("b", True, {})
    assert (first["effective"]["lease"], second["effective"]["lease"]) == ("1 min", "30 s")
    assert http.ok("GET", "/v1/queues/a") == first


def test_a_change_of_the_configuration_answers_with_what_is_in_force(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders", {"lease": "1 min"})

    effective = http.ok("PATCH", ORDERS, {"max_deliveries": 9, "lease": None})

    assert (effective["max_deliveries"], effective["lease"]) == (9, "30 s")
    assert engine.queues()[0].config == {"max_deliveries": 9}


def test_the_defaults_of_all_queues_can_be_changed(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")

    effective = http.ok("PATCH", "/v1/defaults", {"lease": "2 min"})

    assert effective["lease"] == "2 min"
    assert http.ok("GET", ORDERS)["effective"]["lease"] == "2 min"


def test_an_etag_stands_for_the_configuration(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    first = http.call("GET", ORDERS).headers["etag"]
    engine.send("orders", 1)
    same = http.call("HEAD", ORDERS).headers["etag"]
    changed = http.call("PATCH", ORDERS, {"max_deliveries": 9}).headers["etag"]

    assert first == same
    assert changed not in ("", first)
    assert http.call("GET", ORDERS).headers["etag"] == changed
    assert http.call("PATCH", ORDERS, {"max_deliveries": None}).headers["etag"] == first


def test_if_match_changes_only_the_configuration_that_it_names(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    tag = http.call("GET", ORDERS).headers["etag"]

    http.ok("PATCH", ORDERS, {"max_deliveries": 7}, headers={"If-Match": tag})
    error = http.refused(
        "PATCH", ORDERS, {"max_deliveries": 8}, status=412, code="QH923", headers={"If-Match": tag}
    )

    assert tag in (error["detail"] or "")
    assert http.ok("GET", ORDERS)["config"] == {"max_deliveries": 7}


@pytest.mark.parametrize("names", ["*", '"x", {tag}', "{tag},"])
def test_if_match_takes_several_tags_and_a_star(http: Caller, engine: Holdfast, names: str) -> None:
    engine.create_queue("orders")
    tag = http.call("GET", ORDERS).headers["etag"]

    http.ok("PATCH", ORDERS, {"max_deliveries": 7}, headers={"If-Match": names.format(tag=tag)})


@pytest.mark.parametrize("names", ['""', '"' + "x" * 10_000 + '"', '"x", "y"'])
def test_if_match_with_another_tag_changes_nothing(refusing: Caller, names: str) -> None:
    headers = {"If-Match": names}

    refusing.refused("PATCH", ORDERS, {"max_deliveries": 7}, status=412, code="QH923", headers=headers)
    refusing.refused("DELETE", ORDERS, status=412, code="QH923", headers=headers)


@pytest.mark.parametrize("names", ["", "x", 'W/"x"', '"x', ",", '"x", y'])
def test_if_match_takes_tags_with_their_quotes(refusing: Caller, names: str) -> None:
    for method, body in (("PATCH", {"max_deliveries": 7}), ("DELETE", None)):
        error = refusing.refused(
            method, ORDERS, body, status=422, code="QH911", headers={"If-Match": names}
        )
        assert "the ETag with its quotes, strong" in (error["hint"] or "")


@pytest.mark.parametrize("names", ["*", '"x", {tag}', "{tag}"])
def test_if_match_deletes_the_queue_that_it_names(http: Caller, engine: Holdfast, names: str) -> None:
    engine.create_queue("orders")
    tag = http.call("GET", ORDERS).headers["etag"]
    headers = {"If-Match": names.format(tag=tag)}

    assert http.ok("DELETE", ORDERS, headers=headers) == {"dropped": True}

    http.refused("DELETE", ORDERS, status=404, code="QH101", headers=headers)


def test_if_match_waits_for_a_change_that_is_under_way(
    http: Caller, engine: Holdfast, conn: psycopg.Connection[Any], database_url: str
) -> None:
    engine.create_queue("orders")
    tag = http.call("GET", ORDERS).headers["etag"]
    with psycopg.connect(database_url, autocommit=True) as looker, ThreadPoolExecutor(1) as background:
        with conn.transaction():
            conn.execute("select holdfast.configure_queue('orders', '{\"max_deliveries\": 9}')")
            asked = background.submit(http.call, "DELETE", ORDERS, headers={"If-Match": tag})
            eventually(lambda: looker.execute(WAITING).fetchone() != (0,), what="the deletion waits")
        assert asked.result().status_code == 412

    assert http.ok("GET", ORDERS)["config"] == {"max_deliveries": 9}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", ""),
        ("PUT", "/schema"),
        ("DELETE", "/schema"),
        ("POST", "/pause"),
        ("POST", "/purge"),
        ("DELETE", "/messages/1"),
        ("GET", ""),
    ],
)
@pytest.mark.parametrize("header", ["If-Match", "If-Unmodified-Since"])
def test_a_condition_is_never_passed_over(refusing: Caller, method: str, path: str, header: str) -> None:
    error = refusing.refused(method, ORDERS + path, status=422, code="QH911", headers={header: '"x"'})

    assert error["message"] == f"{method} of this path takes no {header}"


def test_if_match_with_a_bad_configuration_is_an_ordinary_error(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    tag = http.call("GET", ORDERS).headers["etag"]

    http.refused("PATCH", ORDERS, {"x": 1}, status=422, code="QH104", headers={"If-Match": tag})

    assert http.call("GET", ORDERS).headers["etag"] == tag


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("", "/messages", "/messages/1", "/held?token=1", "/claims?consumer=a")),
        *(
            ("GET", path)
            for path in ("/leases", "/blocked", "/stats", "/why", "/samples", "/rollups", "/archive")
        ),
        *(("GET", path) for path in ("/records", "/records/stats", "/work")),
        *(("POST", path) for path in ("/pause", "/resume", "/sweep")),
    ],
)
def test_a_queue_that_is_not_there_is_404(refusing: Caller, method: str, path: str) -> None:
    refusing.refused(method, f"/v1/queues/nowhere{path}", status=404, code="QH101")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/messages", {"messages": [{"payload": 1}]}),
        ("/messages", {"messages": [{"payload": 1, "tag": "a"}]}),
        ("/claim", {}),
        ("/claim", {"wait": 30}),
        ("/next", {"token": "1"}),
        *((path, {"token": "1"}) for path in ("/ack", "/release", "/nack", "/extend")),
        ("/holders", {"ids": ["1"]}),
        ("/discard", {"ids": ["1"]}),
        ("/keys/discard", {"key": "a"}),
        ("/unblock", {"key": "a"}),
        ("/purge", {"states": ["ready"]}),
        ("/redrive", {}),
        ("/replay", {}),
        ("/records/delete", {"before": "1"}),
    ],
)
def test_nothing_can_be_done_with_a_queue_that_is_not_there(refusing: Caller, path: str, body: Any) -> None:
    refusing.refused("POST", f"/v1/queues/nowhere{path}", body, status=404, code="QH101")


def test_a_change_of_a_queue_that_is_not_there_is_404(refusing: Caller) -> None:
    refusing.refused("PATCH", "/v1/queues/nowhere", {}, status=404, code="QH101")
    refusing.refused("PATCH", "/v1/queues/nowhere", {}, status=404, code="QH101", headers={"If-Match": '"x"'})


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)

    assert http.ok("POST", ORDERS + "/pause") == {"changed": True}
    assert http.ok("POST", ORDERS + "/pause") == {"changed": False}
    assert http.claim("orders") == []
    assert http.ok("POST", ORDERS + "/resume") == {"changed": True}
    assert len(http.claim("orders")) == 1


def test_purge_ends_messages_by_their_state(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send_batch("orders", [1, 2, 3])

    first = http.ok("POST", ORDERS + "/purge", {"states": ["ready"], "limit": 2})
    rest = http.ok("POST", ORDERS + "/purge", {"states": ["ready", "scheduled"]})

    assert (first, rest) == ({"purged": 2, "more": True}, {"purged": 1, "more": False})


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"states": []}, "QH410"),
        ({"states": ["all"]}, "QH410"),
        ({"states": ["ready"], "limit": 0}, "QH402"),
        ({"states": ["ready"], "limit": 2**31 - 1}, "QH402"),
        ({"states": ["ready"], "limit": 2**40}, "QH911"),
        ({"states": "ready"}, "QH911"),
        ({}, "QH911"),
    ],
)
def test_a_purge_of_nothing_in_particular_is_refused(refusing: Caller, body: Any, code: str) -> None:
    refusing.refused("POST", ORDERS + "/purge", body, status=422, code=code)


def test_a_queue_is_dropped_once(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)

    assert http.ok("DELETE", ORDERS) == {"dropped": True}
    assert http.ok("DELETE", ORDERS) == {"dropped": False}
    http.refused("GET", ORDERS, status=404, code="QH101")
    http.refused("POST", ORDERS + "/claim", {}, status=404, code="QH101")


@pytest.mark.parametrize("headers", [{}, {"If-Match": "*"}])
def test_a_queue_is_dropped_only_empty_if_so_asked(
    http: Caller, engine: Holdfast, headers: dict[str, str]
) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)

    http.refused("DELETE", ORDERS + "?if_empty=true", status=409, code="QH109", headers=headers)
    http.ok("POST", ORDERS + "/purge", {"states": ["ready"]})

    assert http.ok("DELETE", ORDERS + "?if_empty=true", headers=headers) == {"dropped": True}


def test_what_is_no_business_of_logs_is_refused(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("events", {"kind": "log"})

    for path in ("pause", "resume", "claim", "redrive", "replay"):
        http.refused("POST", f"/v1/queues/events/{path}", status=409, code="QH602")
    http.refused("GET", "/v1/queues/events/work", status=409, code="QH602")
    http.refused("PATCH", "/v1/queues/events", {"kind": "queue"}, status=409, code="QH601")


def test_a_queue_with_messages_does_not_become_strict(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)

    http.refused("PATCH", ORDERS, {"ordering": "strict"}, status=409, code="QH310")
