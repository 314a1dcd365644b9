"""What a delivery says: the message's bytes as they are, and headers that can be relied on."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import UTC, datetime
from uuid import UUID

import pytest
from standardwebhooks.webhooks import Webhook

from holdfast.client import Delivery
from holdfast.webhook.request import Request, request_for
from holdfast.webhook.target import Target
from tests.webhook.sample import SECRET, delivery, target

URL = "https://" + "hooks.example.com/in"
NOW = 1_795_000_000.9
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CORRELATION = UUID("550e8400-e29b-41d4-a716-446655440000")


def made(to: Target, message: Delivery) -> tuple[dict[str, str], bytes]:
    request = request_for(to, message, NOW)
    headers = dict(request.headers)
    assert len(headers) == len(request.headers)
    return headers, request.body


def test_a_payload_is_sent_as_the_json_that_it_is() -> None:
    headers, body = made(target(URL), delivery('{"big": 12345678901234567890.10, "a": "ä"}'))

    assert body == '{"big": 12345678901234567890.10, "a": "ä"}'.encode()
    assert headers["content-type"] == "application/json"


def test_a_body_is_sent_byte_for_byte_with_its_content_type() -> None:
    message = delivery(None, body=b"\x00\xff raw", content_type="image/png")

    headers, body = made(target(URL), message)

    assert (body, headers["content-type"]) == (b"\x00\xff raw", "image/png")


@pytest.mark.parametrize("given", [None, "", "text/plain\r\nx-evil: 1", "täxt/plain"])
def test_a_content_type_that_is_none_is_said_to_be_bytes(given: str | None) -> None:
    headers, _ = made(target(URL), delivery(None, body=b"x", content_type=given))

    assert headers["content-type"] == "application/octet-stream"


def test_a_message_without_anything_has_an_empty_body() -> None:
    assert made(target(URL), delivery(None))[1] == b""


def test_it_is_signed_over_the_body_that_is_sent() -> None:
    headers, body = made(target(URL, SECRET), delivery())

    assert headers["webhook-id"] == "msg_7"
    assert headers["webhook-timestamp"] == "1795000000"
    at = datetime.fromtimestamp(1_795_000_000, UTC)
    assert headers["webhook-signature"] == Webhook(SECRET).sign("msg_7", at, body.decode())


def test_the_id_is_that_of_the_first_send_also_after_a_redrive() -> None:
    headers, _ = made(target(URL), delivery(origin={"root_id": "3", "queue": "shop"}))

    assert headers["webhook-id"] == "msg_3"


def test_trace_correlation_type_and_attempt_are_headers() -> None:
    own = {"traceparent": TRACE, "tracestate": "a=b", "event-type": "order.paid", "secret": "stays here"}

    headers, _ = made(target(URL), delivery(headers=own, correlation_id=CORRELATION, deliveries=3))

    assert headers["traceparent"] == TRACE
    assert headers["tracestate"] == "a=b"
    assert headers["x-correlation-id"] == str(CORRELATION)
    assert headers["holdfast-event-type"] == "order.paid"
    assert headers["holdfast-attempt"] == "3"
    assert "secret" not in headers


def test_what_a_sender_wrote_breaks_no_header() -> None:
    own = {"traceparent": "x\r\nhost: evil", "event-type": "a\nb"}

    headers, _ = made(target(URL), delivery(headers=own))

    assert not {"traceparent", "holdfast-event-type"} & set(headers)
    assert not any(set("\r\n") & set(value) for value in headers.values())


def test_headers_of_the_endpoint_are_added_but_those_that_are_ours() -> None:
    given = {"X-Tenant": "7", "User-Agent": "shop", "Host": "evil", "Webhook-Id": "1", "Content-Length": "0"}

    headers, _ = made(target(URL, headers=given), delivery())

    assert (headers["x-tenant"], headers["user-agent"], headers["webhook-id"]) == ("7", "shop", "msg_7")
    assert not {"host", "content-length"} & set(headers)


def test_a_bearer_token_is_opened() -> None:
    headers, _ = made(target(URL, auth={"type": "bearer", "token": "nekot"}), delivery())

    assert headers["authorization"] == "Bearer token"


def test_user_and_password_are_basic_authorization() -> None:
    auth = {"type": "basic", "username": "ann", "password": "nepo"}

    headers, _ = made(target(URL, auth=auth), delivery())

    assert b64decode(headers["authorization"].removeprefix("Basic ")) == b"ann:open"


def test_a_header_that_no_request_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="the header x-a is no text in ASCII"):
        target(URL, headers={"X-A": "a\nb"})


def test_secrets_are_not_shown() -> None:
    assert repr(target(URL, SECRET, auth={"type": "bearer", "token": "nekot"})) == "Target('shop', version=1)"


def test_binary_cloudevents_are_headers() -> None:
    to = target(URL, SECRET, cloudevents="binary", cloudevents_source="/shop/ä b")
    own = {"traceparent": TRACE, "event-type": 'paid "100%"'}

    headers, body = made(to, delivery(headers=own))

    assert body == b'{"n": 1}'
    assert {name: value for name, value in headers.items() if name.startswith("ce-")} == {
        "ce-specversion": "1.0",
        "ce-id": "msg_7",
        "ce-source": "/shop/%C3%A4%20b",
        "ce-type": "paid%20%22100%25%22",
        "ce-time": "2026-11-19T12:00:00.250Z",
        "ce-traceparent": TRACE,
    }


def test_structured_cloudevents_are_one_document() -> None:
    to = target(URL, SECRET, cloudevents="structured", cloudevents_type="shop.order")

    headers, body = made(to, delivery('{"n": 1.10}', correlation_id=CORRELATION))

    assert headers["content-type"] == "application/cloudevents+json"
    assert b'"data":{"n": 1.10}' in body
    assert json.loads(body) == {
        "specversion": "1.0",
        "id": "msg_7",
        "source": "/holdfast",
        "type": "shop.order",
        "time": "2026-11-19T12:00:00.250Z",
        "correlationid": str(CORRELATION),
        "datacontenttype": "application/json",
        "data": {"n": 1.1},
    }


def test_structured_cloudevents_carry_bytes_in_base64() -> None:
    to = target(URL, cloudevents="structured")

    event = json.loads(made(to, delivery(None, body=b"\xff", content_type="image/png"))[1])

    assert (event["datacontenttype"], event["data_base64"], event["type"]) == (
        "image/png",
        "/w==",
        "holdfast.message",
    )


def test_a_request_has_the_method_of_its_endpoint() -> None:
    assert isinstance(request := request_for(target(URL, method="PUT"), delivery(), NOW), Request)
    assert request.method == "PUT"
