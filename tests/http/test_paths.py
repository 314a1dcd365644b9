"""Paths and methods: what is not there, what is not taken, HEAD and OPTIONS."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.fix_http import Caller


@pytest.mark.parametrize(
    "path", ["/", "/v1", "/v1/queue", "/v1/queues/", "/v1/queues/orders/", "/v1/queues/orders/nothing"]
)
def test_a_path_that_is_not_there_is_404(refusing: Caller, path: str) -> None:
    error = refusing.refused("GET", path, status=404, code="QH914")

    assert error["detail"] == f"Got {path!r}."


def test_a_method_that_a_path_does_not_take_is_told_all_that_it_takes(refusing: Caller) -> None:
    answer = refusing.call("POST", "/v1/queues/orders")

    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "QH915")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH, PUT"


@pytest.mark.parametrize("method", ["TRACE", "PROPFIND", "LINK"])
def test_an_unusual_method_is_405(refusing: Caller, method: str) -> None:
    refusing.refused(method, "/v1/queues", status=405, code="QH915")


def test_options_tells_the_methods_of_a_path(refusing: Caller) -> None:
    answer = refusing.call("OPTIONS", "/v1/queues/orders/messages")

    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["allow"] == "GET, HEAD, OPTIONS, POST"


def test_options_of_a_path_that_is_not_there_is_404(refusing: Caller) -> None:
    refusing.refused("OPTIONS", "/v1/queues/orders/nothing", status=404, code="QH914")


def test_head_is_a_get_without_its_body(http: Caller) -> None:
    http.ok("PUT", "/v1/queues/orders", status=201)
    got = http.call("GET", "/v1/queues/orders")

    headed = http.call("HEAD", "/v1/queues/orders")

    assert (headed.status_code, headed.content) == (200, b"")
    assert headed.headers.pop("x-request-id") != got.headers.pop("x-request-id")
    assert dict(headed.headers) == dict(got.headers)


def test_head_of_what_is_not_there_is_404(refusing: Caller) -> None:
    assert refusing.call("HEAD", "/v1/queues/nowhere").status_code == 404


def test_head_of_a_work_stream_claims_nothing(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)

    headed = http.call("HEAD", "/v1/queues/orders/work")

    assert (headed.status_code, headed.content) == (200, b"")
    assert headed.headers["content-type"].startswith("text/event-stream")
    assert engine.message("orders", engine.browse("orders")[0].id).deliveries == 0  # type: ignore[union-attr]
    assert engine.queue_stats("orders").in_flight == 0


def test_an_encoded_slash_is_part_of_a_name_and_not_a_way_to_another_route(
    http: Caller, engine: Holdfast
) -> None:
    engine.create_queue("orders")

    http.refused("POST", "/v1/queues/orders%2Fpause", status=405, code="QH915")
    http.refused("POST", "/v1/queues/or%2fders/pause", status=422, code="QH103")
    http.refused("PUT", "/v1/queues/or%2Fders", status=422, code="QH103")

    assert engine.queues()[0].paused is False


def test_other_encoded_characters_are_what_they_stand_for(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders:eu")

    assert http.ok("GET", "/v1/queues/orders%3Aeu")["queue"] == "orders:eu"


@pytest.mark.parametrize(
    "name", ["%00", "a%00b", "%ff", "%ed%a0%80", "a%20b", "%0a", "x" * 201, "%F0%9F%92%A9"]
)
@pytest.mark.parametrize(
    ("method", "rest"), [("PUT", ""), ("GET", "/stats"), ("POST", "/claim"), ("GET", "/work")]
)
def test_a_name_that_no_queue_can_have_is_refused(
    refusing: Caller, method: str, rest: str, name: str
) -> None:
    answer = refusing.call(method, f"/v1/queues/{name}{rest}")

    assert (answer.status_code, answer.json()["error"]["code"]) in [(422, "QH103"), (404, "QH101")]


def test_every_answer_tells_browsers_to_be_careful(refusing: Caller) -> None:
    for path in ("/healthz", "/nothing"):
        headers = refusing.call("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
