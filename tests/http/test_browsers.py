"""What browsers are told, and HTTPS.

1. Every answer has the headers that keep browsers careful, refusals too.
2. CORS is off; the origins that are named may call, with a key, and no others.
3. With a certificate the server speaks HTTPS.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from tests.fix_http import Caller, Serve
from tests.waiting import eventually

PAGE = "http" + "://console.test"
OTHER = "http" + "://other.test"
PREFLIGHT = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization, content-type",
}


@pytest.mark.parametrize("path", ["/healthz", "/v1/queues", "/v1/nothing", "/v1/queues/none/stats", "/docs"])
def test_every_answer_keeps_browsers_careful(http: Caller, path: str) -> None:
    headers = http.client.get(path).headers

    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert "server" not in headers


def test_without_cors_no_page_is_let_in(http: Caller, engine: Holdfast) -> None:
    engine.create_key("reader", scopes=["read"])

    preflight = http.client.options("/v1/queues", headers={"Origin": PAGE, **PREFLIGHT})

    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_a_browser_is_asked_for_a_key_as_a_password(http: Caller, engine: Holdfast) -> None:
    key = engine.create_key("reader", scopes=["read"]).key
    eventually(lambda: http.client.get("/docs").status_code == 401, what="the server is closed")

    asked = http.client.get("/docs").headers.get_list("www-authenticate")
    given = {path: http.client.get(path, auth=("me", key)).status_code for path in ("/docs", "/docs/")}

    assert asked == ['Basic realm="holdfast"', 'Bearer realm="holdfast"']
    assert given == {"/docs": 200, "/docs/": 200}


def test_a_page_that_is_named_is_let_in_with_a_key(serve: Serve, engine: Holdfast) -> None:
    http = serve(cors=(PAGE,))
    key = engine.create_key("reader", scopes=["read"]).key
    eventually(lambda: http.client.get("/v1/queues").status_code == 401, what="the server is closed")

    preflight = http.client.options("/v1/queues", headers={"Origin": PAGE, **PREFLIGHT})
    without = http.client.get("/v1/queues", headers={"Origin": PAGE})
    answer = http.client.get("/v1/queues", headers={"Origin": PAGE, "Authorization": f"Bearer {key}"})

    allowed = preflight.headers["access-control-allow-headers"]
    assert preflight.headers["access-control-allow-origin"] == PAGE
    assert {"authorization", "content-type"} <= {word.strip() for word in allowed.lower().split(",")}
    assert "access-control-allow-credentials" not in preflight.headers
    assert (without.status_code, answer.status_code) == (401, 200)
    assert answer.headers["access-control-allow-origin"] == PAGE
    exposed = answer.headers["access-control-expose-headers"]
    assert {word.strip() for word in exposed.split(",")} == {"Allow", "ETag", "Retry-After", "X-Request-ID"}


def test_another_page_is_not(serve: Serve, engine: Holdfast) -> None:
    http = serve(cors=(PAGE,))
    key = engine.create_key("reader", scopes=["read"]).key

    preflight = http.client.options("/v1/queues", headers={"Origin": OTHER, **PREFLIGHT})
    answer = http.client.get("/v1/queues", headers={"Origin": OTHER, "Authorization": f"Bearer {key}"})

    assert preflight.status_code == 400
    assert "access-control-allow-origin" not in preflight.headers
    assert "access-control-allow-origin" not in answer.headers


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """What the access log says of each request."""
    return [vars(record)["request"] for record in caplog.records if record.name == "holdfast.access"]


def test_the_access_log_names_the_key_and_the_address(
    serve: Serve, engine: Holdfast, caplog: pytest.LogCaptureFixture
) -> None:
    key = engine.create_key("reader", scopes=["read"])
    with caplog.at_level(logging.INFO, "holdfast.access"), serve().with_key(key.key) as caller:
        caller.ok("GET", "/v1/pipelines/runs?pipeline=red")
        caller.refused("POST", "/v1/maintain", {}, status=403, code="QH921")
        with caller.with_key(None) as nobody:
            nobody.refused("GET", "/v1/queues", status=401, code="QH920")
        eventually(lambda: len(logged(caplog)) == 3, what="all three are logged")

    lines = logged(caplog)
    assert [(line["route"], line["status"], line["client"], line["key"]) for line in lines] == [
        ("/v1/pipelines/runs", 200, "127.0.0.1", key.id),
        ("/v1/maintain", 403, "127.0.0.1", key.id),
        ("/v1/queues", 401, "127.0.0.1", None),
    ]
    assert "red" not in str(lines)


def test_with_a_certificate_the_server_speaks_https(
    serve: Serve, engine: Holdfast, certificate: tuple[Path, Path]
) -> None:
    http = serve(tls_certificate=str(certificate[0]), tls_key=str(certificate[1]))
    trusting = ssl.create_default_context(cafile=str(certificate[0]))

    assert http.address.startswith("https" + "://127.0.0.1:")
    with httpx.Client(base_url=http.address, verify=trusting, timeout=30) as client:
        assert client.get("/v1/queues").status_code == 200
        assert client.get("/v1/queues", headers={"Origin": http.address}).status_code == 200
        assert client.get("/v1/queues", headers={"Origin": OTHER}).status_code == 403
    with httpx.Client(timeout=30) as plain, pytest.raises(httpx.HTTPError):
        plain.get(http.address.replace("https", "http") + "/healthz")
