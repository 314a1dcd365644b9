"""Bodies and queries: media types, gzip, sizes, JSON that is none, and errors that name the field."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast
from tests.fix_http import Caller, Serve

MESSAGES = "/v1/queues/orders/messages"
CLAIM = "/v1/queues/orders/claim"
JSON = {"Content-Type": "application/json"}
FIELDS = (
    "It takes payload, body, content_type, headers, priority, delay, deliver_at, ttl, expires_at, "
    "correlation_id, tag, max_deliveries, ordering_key, key, idempotency_key."
)
ONE = b'{"messages": [{"payload": {"n": 1}}]}'


@pytest.fixture
def orders(http: Caller, engine: Holdfast) -> Caller:
    """A server with a queue."""
    engine.create_queue("orders")
    return http


@pytest.mark.parametrize(
    "media",
    ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"],
)
def test_a_body_is_json_by_its_content_type(orders: Caller, media: str) -> None:
    orders.ok("POST", MESSAGES, status=201, content=ONE, headers={"Content-Type": media})


@pytest.mark.parametrize(
    "media",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "json", ""],
)
def test_a_body_of_another_content_type_is_refused(refusing: Caller, media: str) -> None:
    refusing.refused("POST", MESSAGES, status=415, code="QH913", content=ONE, headers={"Content-Type": media})


def test_a_body_without_a_content_type_is_refused(refusing: Caller) -> None:
    error = refusing.refused("POST", MESSAGES, status=415, code="QH913", content=ONE)

    assert error["detail"] == "No Content-Type was given."


def test_no_body_at_all_is_one_without_fields(orders: Caller) -> None:
    assert orders.ok("POST", CLAIM) == {"messages": []}


def test_a_gzipped_body_is_unpacked(orders: Caller, engine: Holdfast) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}

    orders.ok("POST", MESSAGES, status=201, content=gzip.compress(ONE), headers=headers)

    assert engine.claim("orders")[0].payload == {"n": 1}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        pytest.param(ONE, 400, "QH910", id="not gzip"),
        pytest.param(gzip.compress(ONE)[:-9], 400, "QH910", id="cut off"),
        pytest.param(gzip.compress(ONE) + b"more", 400, "QH910", id="more behind it"),
        pytest.param(zlib.compress(ONE), 400, "QH910", id="deflate"),
        pytest.param(b"", 400, "QH910", id="empty"),
        pytest.param(gzip.compress(b"not json"), 400, "QH910", id="not JSON"),
    ],
)
def test_bad_gzip_is_refused(refusing: Caller, body: bytes, status: int, code: str) -> None:
    headers = {**JSON, "Content-Encoding": "gzip"}

    refusing.refused("POST", MESSAGES, status=status, code=code, content=body, headers=headers)


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_another_encoding_is_refused(refusing: Caller, encoding: str) -> None:
    headers = {**JSON, "Content-Encoding": encoding}

    refusing.refused("POST", MESSAGES, status=415, code="QH913", content=ONE, headers=headers)


def message_of(size: int) -> bytes:
    """A body of exactly so many bytes."""
    text = b'{"messages": [{"payload": "%b"}]}'
    return text % (b"x" * (size - len(text) + 2))


@pytest.mark.parametrize("packed", [False, True])
def test_the_limit_of_a_body_counts_before_and_after_unpacking(
    serve: Serve, engine: Holdfast, packed: bool
) -> None:
    engine.create_queue("orders")
    http = serve(max_body=2048)
    headers = {**JSON, "Content-Encoding": "gzip"} if packed else JSON

    def pack(body: bytes) -> bytes:
        return gzip.compress(body) if packed else body

    http.ok("POST", MESSAGES, status=201, content=pack(message_of(2048)), headers=headers)
    http.refused("POST", MESSAGES, status=413, code="QH912", content=pack(message_of(2049)), headers=headers)
    http.refused("POST", MESSAGES, status=413, code="QH912", content=b"\0" * 2049, headers=headers)


def test_a_bomb_of_gzip_is_refused_without_being_unpacked(serve: Serve, engine: Holdfast) -> None:
    engine.create_queue("orders")
    http = serve(max_body=1024 * 1024)
    bomb = gzip.compress(b"\0" * 512 * 1024 * 1024, compresslevel=1)[: 1024 * 1024]

    headers = {**JSON, "Content-Encoding": "gzip"}
    http.refused("POST", MESSAGES, status=413, code="QH912", content=bomb, headers=headers)


def test_a_chunked_body_has_the_same_limit(serve: Serve, engine: Holdfast) -> None:
    engine.create_queue("orders")
    http = serve(max_body=2048)

    def pieces(size: int) -> Iterator[bytes]:
        body = message_of(size)
        yield from (body[place : place + 100] for place in range(0, len(body), 100))

    http.ok("POST", MESSAGES, status=201, content=pieces(2048), headers=JSON)
    http.refused("POST", MESSAGES, status=413, code="QH912", content=pieces(2049), headers=JSON)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="cut off"),
        pytest.param(ONE + ONE, id="two"),
        pytest.param(b"\xef\xbb\xbf{}", id="byte order mark"),
        pytest.param(b"{'messages': []}", id="single quotes"),
        pytest.param(b'{"messages": [{"payload": NaN}]}', id="NaN"),
        pytest.param(b'{"messages": [{"payload": "\xff"}]}', id="not UTF-8 in a payload"),
        pytest.param(b'{"messages": [{"payload": 1, "tag": "\xc3"}]}', id="not UTF-8 in a tag"),
        pytest.param(b'{"messages": [{"payload": "\xed\xa0\x80"}]}', id="a surrogate in UTF-8"),
        pytest.param('{"messages": [{"payload": 1}]}'.encode("utf-16"), id="UTF-16"),
        pytest.param(b'{"messages": [{"payload": 1, "tag": "\\ud800"}]}', id="half of a surrogate pair"),
        pytest.param(b'{"messages": [{"payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}", id="deep"),
        pytest.param(b'{"messages": [{"payload": ' + b'{"a": [' * 100_000, id="deep and cut off"),
    ],
)
def test_a_body_that_is_not_json_is_refused(refusing: Caller, body: bytes) -> None:
    refusing.refused("POST", MESSAGES, status=400, code="QH910", content=body, headers=JSON)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(r'{"messages": [{"payload": "a\u0000b"}]}', "QH203", id="NUL in a payload"),
        pytest.param(r'{"messages": [{"payload": {"a\u0000b": 1}}]}', "QH203", id="NUL in a name"),
        pytest.param(
            r'{"messages": [{"payload": 1, "headers": {"a": "\u0000"}}]}', "QH203", id="NUL in a header"
        ),
        pytest.param(r'{"messages": [{"payload": 1, "tag": "a\u0000b"}]}', "QH911", id="NUL in a tag"),
        pytest.param('{"messages": [{"payload": 1e400000}]}', "QH203", id="a huge number"),
        pytest.param(
            '{"messages": [{"payload": [1, -1e400000]}, {"payload": 2}]}', "QH203", id="beside others"
        ),
        pytest.param('{"messages": [{"payload": 1, "priority": 1e400000}]}', "QH911", id="as a priority"),
        pytest.param('{"messages": [{"payload": 1, "delay": 1e300}]}', "QH203", id="as a delay"),
        pytest.param('{"messages": [{"payload": 1, "delay": "5 parsecs"}]}', "QH203", id="no delay"),
        pytest.param('{"messages": [{"payload": 1, "headers": {"n": 1e400000}}]}', "QH203", id="in a header"),
        pytest.param('{"messages": [{"payload": 1, "body": "eA=="}]}', "QH203", id="payload and body"),
        pytest.param('{"messages": [{"body": "not base64!"}]}', "QH203", id="not base64"),
        pytest.param('{"messages": [{"payload": 1, "priority": 11}]}', "QH204", id="priority"),
        pytest.param('{"messages": [{"payload": 1, "max_deliveries": -1}]}', "QH210", id="max_deliveries"),
        pytest.param('{"messages": [{"payload": 1, "tag": "' + "x" * 201 + '"}]}', "QH207", id="long tag"),
        pytest.param('{"messages": [{"payload": 1, "ttl": 0}]}', "QH206", id="ttl"),
        pytest.param('{"messages": [{"payload": 1, "delay": -1}]}', "QH205", id="delay"),
    ],
)
def test_values_that_cannot_be_are_refused_and_change_nothing(refusing: Caller, body: str, code: str) -> None:
    refusing.refused("POST", MESSAGES, status=422, code=code, content=body.encode(), headers=JSON)


@pytest.mark.parametrize(
    ("body", "message", "detail"),
    [
        ({}, 'missing field "messages"', "It takes messages."),
        (
            {"payload": 1},
            'missing field "messages"',
            'There is "payload", which is unknown. It takes messages.',
        ),
        ({"messages": 1}, "bad value for messages", "Expected a list, got a whole number."),
        ({"messages": [1]}, "bad value for messages[0]", "Expected an object, got a whole number."),
        ({"messages": [{"payload": 1}, {"prio": 1}]}, 'unknown field "messages[1].prio"', FIELDS),
        (
            {"messages": [{"payload": 1, "priority": "high"}]},
            "bad value for messages[0].priority",
            "Expected a whole number or null, got text.",
        ),
        (
            {"messages": [{"payload": 1, "priority": 1.5}]},
            "bad value for messages[0].priority",
            "Expected a whole number or null, got a fraction.",
        ),
        (
            {"messages": [{"payload": 1, "correlation_id": "x"}]},
            "bad value for messages[0].correlation_id",
            "Expected a UUID.",
        ),
        (
            {"messages": [{"payload": 1, "deliver_at": "2040-01-01T00:00:00"}]},
            "bad value for messages[0].deliver_at",
            "Expected a time with a zone, such as 2040-01-01T00:00:00Z.",
        ),
        ({"messages": [{"payload": 1}], "all": True}, 'unknown field "all"', "It takes messages."),
        ([], "bad value for the body", "Expected an object, got a list."),
        (None, "bad value for the body", "Expected an object, got null."),
        ({"messages": [{"payload": 1}] * 1001}, "bad value for messages", "Expected at most 1,000 items."),
    ],
)
def test_the_error_names_the_field(refusing: Caller, body: Any, message: str, detail: str) -> None:
    error = refusing.refused(
        "POST", MESSAGES, status=422, code="QH911", content=json.dumps(body), headers=JSON
    )

    assert (error["message"], error["detail"]) == (message, detail)


@pytest.mark.parametrize(
    ("path", "body", "message", "detail"),
    [
        ("/claim", {"max": 1.5}, "bad value for max", "Expected a whole number, got a fraction."),
        (
            "/claim",
            {"lease": []},
            "bad value for lease",
            'Expected a length of time (30, or "30 s") or null, got a list.',
        ),
        ("/claim", {"wait": "31 s"}, "bad value for wait", "wait takes 0 to 30 seconds."),
        ("/claim", {"wait": -1}, "bad value for wait", "wait takes 0 to 30 seconds."),
        ("/claim", {"wait": "soon"}, "bad value for wait", "'soon' is no length of time."),
        ("/ack", {"token": "x"}, "bad value for token", "Expected a token, as claim returned it."),
        ("/ack", {"token": True}, "bad value for token", "Expected an id, got true or false."),
        ("/ack", {"ids": ["x"]}, "bad value for ids[0]", "Expected an id: a whole number."),
        ("/ack", {"strict": 1}, "bad value for strict", "Expected true or false, got a whole number."),
        ("/nack", {"error": "\0"}, "bad value for error", "PostgreSQL stores no NUL character."),
        ("/ack", {"ids": []}, 'missing field "token"', "It takes token, ids, strict."),
        ("/pause", {"for": 1}, 'unknown field "for"', "It takes none."),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(
    refusing: Caller, path: str, body: Any, message: str, detail: str
) -> None:
    error = refusing.refused("POST", f"/v1/queues/orders{path}", body, status=422, code="QH911")

    assert (error["message"], error["detail"]) == (message, detail)


@pytest.mark.parametrize(
    ("path", "message", "detail"),
    [
        ("/claim?max=2", 'unknown parameter "max"', "max belongs into the body."),
        ("/claim?maximum=2", 'unknown parameter "maximum"', "This route takes no query."),
        ("/pause?for=1", 'unknown parameter "for"', "It takes none."),
    ],
)
def test_a_parameter_that_is_not_taken_is_refused(
    refusing: Caller, path: str, message: str, detail: str
) -> None:
    error = refusing.refused("POST", f"/v1/queues/orders{path}", status=422, code="QH911")

    assert (error["message"], error["detail"]) == (message, detail)


def test_a_body_that_is_not_taken_is_refused(refusing: Caller) -> None:
    for method, path in (("DELETE", "/v1/queues/orders/messages/1"), ("GET", "/v1/queues/orders/stats")):
        error = refusing.refused(method, path, {"ids": ["1"]}, status=422, code="QH911")
        assert error["message"] == 'unknown field "ids"'
    refusing.refused("DELETE", "/v1/queues/orders", content=b"x", headers=JSON, status=400, code="QH910")


def test_an_empty_object_is_no_body(orders: Caller) -> None:
    orders.ok("POST", "/v1/queues/orders/pause", {})


def test_a_claim_waits_for_a_length_of_time(orders: Caller) -> None:
    orders.send("orders", 1)

    assert len(orders.claim("orders", wait="20 s")) == 1


@pytest.mark.parametrize("max", [0, -1, 1001, 2**31 - 1])
def test_max_out_of_range_has_one_code_and_the_limit_of_http(refusing: Caller, max: int) -> None:
    for method, path, body, options in (
        ("POST", "claim", {"max": max}, {}),
        ("POST", "next", {"token": "1", "max": max}, {}),
        ("GET", "work", None, {"params": {"max": max}}),
    ):
        path = f"/v1/queues/orders/{path}"
        error = refusing.refused(method, path, body, status=422, code="QH301", **options)
        assert error["hint"] == "Over HTTP a claim takes 1 to 1,000 messages."


def test_a_negative_delay_is_refused_as_such(orders: Caller) -> None:
    orders.send("orders", 1)
    (message,) = orders.claim("orders")

    for delay in (-1, "-1 s"):
        body = {"token": message["token"], "delay": delay}
        error = orders.refused("POST", "/v1/queues/orders/nack", body, status=422, code="QH305")
        assert error["hint"] == "A retry can be delayed by 0 seconds to 10 years."


def test_no_messages_are_sent_as_such(orders: Caller, http: Caller) -> None:
    assert orders.send("orders") == []
    http.refused("POST", "/v1/queues/nowhere/messages", {"messages": []}, status=404, code="QH101")


def test_a_thousand_messages_are_one_request(orders: Caller, engine: Holdfast) -> None:
    ids = orders.send("orders", *range(1000))

    assert len(set(ids)) == 1000
    assert [delivery.payload for delivery in engine.claim("orders", 1000)] == list(range(1000))


def test_of_a_field_that_comes_twice_the_last_counts(orders: Caller, engine: Holdfast) -> None:
    body = b'{"messages": [{"payload": 1, "payload": {"a": 1, "a": 2}}]}'

    orders.ok("POST", MESSAGES, status=201, content=body, headers=JSON)

    assert engine.claim("orders")[0].payload == {"a": 2}


def test_digits_and_unicode_come_out_as_they_went_in(orders: Caller) -> None:
    payload = '{"n": 123456789012345678901234567890.10, "text": "käse \\ud83d\\ude00 \\u2028"}'
    headers = '{"big": 98765432109876543210987654321}'
    body = f'{{"messages": [{{"payload": {payload}, "headers": {headers}}}]}}'
    orders.ok("POST", MESSAGES, status=201, content=body.encode(), headers=JSON)

    answer = orders.call("POST", CLAIM, {})

    assert '"n": 123456789012345678901234567890.10' in answer.text
    assert '"big": 98765432109876543210987654321' in answer.text
    assert answer.json()["messages"][0]["payload"]["text"] == "käse 😀 \u2028"


def test_a_deep_payload_that_json_readers_take_is_kept(orders: Caller) -> None:
    payload: Any = 1
    for _ in range(200):
        payload = [payload]

    orders.send("orders", payload)

    assert orders.claim("orders")[0]["payload"] == payload


@pytest.mark.parametrize(
    ("query", "field", "detail"),
    [
        ("max=0x1", "max", "Expected a whole number."),
        ("max=", "max", "Expected a whole number."),
        ("max=1&max=2", "max", "It is given 2 times."),
        ("lease=soon", "lease", "'soon' is no length of time."),
        ("consumer=a%00b", "consumer", None),
        ("lease=null", "lease", "'null' is no length of time."),
    ],
)
def test_the_error_names_the_parameter(refusing: Caller, query: str, field: str, detail: str | None) -> None:
    error = refusing.refused("GET", f"/v1/queues/orders/work?{query}", status=422, code="QH911")

    assert error["message"] == f"bad value for {field}"
    assert detail in (None, error["detail"])


def test_an_unknown_parameter_is_refused_with_those_that_there_are(refusing: Caller) -> None:
    error = refusing.refused("GET", "/v1/queues/orders/work?maximum=1", status=422, code="QH911")

    assert error["message"] == 'unknown parameter "maximum"'
    assert error["detail"] == "It takes max, lease, consumer."


@pytest.mark.parametrize("query", ["consumer=%ff", "consumer=%ed%a0%80", "%ff=1"])
def test_a_query_that_is_not_utf_8_is_refused(refusing: Caller, query: str) -> None:
    refusing.refused("GET", f"/v1/queues/orders/claims?{query}", status=400, code="QH910")


def test_a_query_takes_whatever_text_its_encoding_stands_for(orders: Caller, engine: Holdfast) -> None:
    engine.send("orders", 1)
    engine.claim("orders", consumer="Käse & Brot+1")

    found = orders.ok("GET", "/v1/queues/orders/claims", params={"consumer": "Käse & Brot+1"})

    assert len(found["claims"]) == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token", "99999999999999999999"),
        ("token", "9999999999999999999"),
        *[("token", value) for value in (-1, 1.0, "x", "", None)],
        *[("ids", value) for value in (["1", "x"], 1)],
        ("strict", "yes"),
    ],
)
def test_ids_are_numbers_of_63_bits(refusing: Caller, field: str, value: Any) -> None:
    body = {"token": "1", field: value}

    error = refusing.refused("POST", "/v1/queues/orders/ack", body, status=422, code="QH911")

    assert (error["message"] or "").startswith(f"bad value for {field}")


def test_a_token_is_taken_as_text_and_as_a_number(orders: Caller) -> None:
    orders.send("orders", 1, 2)
    first, second = orders.claim("orders")[0], orders.claim("orders")[0]

    assert orders.ok("POST", "/v1/queues/orders/ack", {"token": first["token"]})["settled"] == [first["id"]]
    as_number = {"token": int(second["token"]), "ids": [int(second["id"])]}
    assert orders.ok("POST", "/v1/queues/orders/ack", as_number)["settled"] == [second["id"]]


@pytest.mark.parametrize(
    "bad",
    [
        r'{"payload": "\u0000"}',
        r'{"payload": 1, "tag": "a", "headers": {"a": "\u0000"}}',
        '{"payload": {"a": [1e131073]}}',
    ],
)
@pytest.mark.parametrize("place", [0, 1, 6])
def test_json_that_cannot_be_stored_is_refused_with_its_place(refusing: Caller, bad: str, place: int) -> None:
    messages = ['{"payload": 1}'] * 7
    messages[place] = bad
    content = f'{{"messages": [{", ".join(messages)}]}}'.encode()

    error = refusing.refused("POST", MESSAGES, status=422, code="QH203", content=content, headers=JSON)

    assert (error["detail"] or "").startswith(f"messages[{place}]: ")


@pytest.mark.parametrize("body", ["hello!", "a", "eA", "eA===", "käse"])
def test_what_is_not_base64_is_named(refusing: Caller, body: str) -> None:
    messages = {"messages": [{"payload": 1}, {"body": body}]}

    error = refusing.refused("POST", MESSAGES, messages, status=422, code="QH203")

    assert error["message"] == "bad value for messages[1].body: this is not base64"


def test_base64_may_have_lines(orders: Caller, engine: Holdfast) -> None:
    orders.ok("POST", MESSAGES, {"messages": [{"body": "aGVs\r\n bG8=\n"}]}, status=201)

    assert engine.claim("orders")[0].body == b"hello"


@pytest.mark.parametrize("name", ["a%2Fb", "a%20b", "%C3%A4", "x" * 201])
def test_a_name_that_no_queue_can_have_is_refused_on_every_route(refusing: Caller, name: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/claim"), ("GET", "/work")):
        refusing.refused(method, f"/v1/queues/{name}{path}", status=422, code="QH103")
