"""Traces of the server. Claims pinned here:

1. Each request has a span, by the conventions for HTTP servers, within the trace that its headers name.
2. What it does with messages has a span, by the conventions for messaging; a call of the database that served
   several requests has links to all of them. Nothing of what was sent is in any span.
3. A message carries the context that it was sent in, unless it has one of its own, or no room.
4. Log lines of a request name its trace.
5. `holdfast serve` exports what the standard variables say, from each of its processes; without the packages
   it says so, and serves.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import psycopg
import pytest
from msgspec import Raw
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from holdfast import Holdfast, UnavailableError
from holdfast.server.configs import Configs
from holdfast.server.engine import Engine
from holdfast.server.exporters import set_up
from holdfast.server.meters import Meters
from holdfast.server.sends import Sends
from holdfast.server.settings import Settings
from holdfast.server.traces import Traces, kind_of
from holdfast.server.visit import Visit, current
from holdfast.wire.requests import NewMessage
from tests.fix_database import Connect
from tests.fix_http import Caller, Serve, ServeProcess
from tests.waiting import eventually

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
INCOMING = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "shop=1"}
MESSAGES = "/v1/queues/orders/messages"


class Recorded:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def named(self, name: str, count: int = 1) -> Sequence[ReadableSpan]:
        """The spans of a name, once there are so many."""

        def found() -> list[ReadableSpan]:
            return [span for span in self.exporter.get_finished_spans() if span.name == name]

        eventually(lambda: len(found()) >= count, what=f"{count} spans {name}")
        assert len(found()) == count
        return found()

    def one(self, name: str) -> ReadableSpan:
        """The only span of a name."""
        return self.named(name)[0]


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """The spans of servers that start from now on: their process has a provider until the test ends."""
    made = Recorded()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", made.provider)
    yield made
    made.provider.shutdown()


@pytest.fixture
def orders(recorded: Recorded, serve: Serve, engine: Holdfast) -> Caller:
    """A server that records, with an empty queue."""
    engine.create_queue("orders")
    return serve()


def context(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"


def parent(span: ReadableSpan) -> tuple[str, str] | None:
    return None if span.parent is None else (f"{span.parent.trace_id:032x}", f"{span.parent.span_id:016x}")


def links(span: ReadableSpan) -> set[str]:
    return {f"{link.context.span_id:016x}" for link in span.links}


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- 1. requests -----------------------------------------------------------------------------------


def test_a_request_has_a_span_by_the_conventions(orders: Caller, recorded: Recorded) -> None:
    response = orders.call("GET", "/v1/queues/orders/stats?x=secret", headers=INCOMING)

    span = recorded.one("GET /v1/queues/{queue}/stats")
    host, port = orders.place
    assert attributes(span) == {
        "http.request.method": "GET",
        "http.route": "/v1/queues/{queue}/stats",
        "http.response.status_code": response.status_code,
        "url.scheme": "http",
        "server.address": host,
        "server.port": port,
        "holdfast.request_id": response.headers["x-request-id"],
    }
    assert (span.kind, span.status.status_code, span.end_time is not None) == (
        SpanKind.SERVER,
        StatusCode.UNSET,
        True,
    )
    assert parent(span) == (TRACE, SPAN)
    assert context(span)[0] == TRACE
    assert span.context is not None
    assert span.context.trace_state.to_header() == "shop=1"


@pytest.mark.parametrize("header", [{}, {"traceparent": "nonsense"}, {"tracestate": "shop=1"}])
def test_a_request_outside_of_a_trace_begins_one(
    orders: Caller, recorded: Recorded, header: dict[str, str]
) -> None:
    orders.ok("GET", "/healthz", headers=header)

    assert parent(recorded.one("GET /healthz")) is None


def test_a_request_without_a_route_is_named_by_its_method_alone(orders: Caller, recorded: Recorded) -> None:
    orders.client.get("/secret/path")
    orders.client.request("PURGE", "/v1/queues")

    found, odd = recorded.one("GET"), recorded.one("HTTP")
    assert attributes(found)["http.response.status_code"] == 404
    assert "http.route" not in attributes(found)
    assert attributes(odd)["http.request.method"] == "_OTHER"


def test_a_failure_of_the_server_is_an_error_and_one_of_the_caller_is_none(
    recorded: Recorded, serve: Serve, orders: Caller, connect: Connect
) -> None:
    slow = serve(statement_timeout=0.2)
    connect(autocommit=False).execute("lock table holdfast.message in access exclusive mode")
    slow.refused("GET", f"{MESSAGES}?state=ready", status=503, code="QH930")
    orders.refused("GET", "/v1/queues/nothing/stats", status=404, code="QH101")

    failed = recorded.one("GET /v1/queues/{queue}/messages")
    refused = recorded.one("GET /v1/queues/{queue}/stats")
    assert (failed.status.status_code, attributes(failed)["error.type"]) == (StatusCode.ERROR, "503")
    assert (refused.status.status_code, "error.type" in attributes(refused)) == (StatusCode.UNSET, False)


# --- 2. messages -----------------------------------------------------------------------------------


def test_what_requests_do_with_messages_has_spans_by_the_conventions(
    orders: Caller, recorded: Recorded
) -> None:
    (id,) = orders.send("orders", {"card": "4711-secret"})
    orders.send("orders", 1, 2)
    found = orders.claim("orders", max=3, wait=1)
    body = {"token": found[0]["token"], "ids": [id]}
    orders.ok("POST", "/v1/queues/orders/ack", body)

    told = {"messaging.system": "holdfast", "messaging.destination.name": "orders"}
    single, several = recorded.named("send orders", 2)
    claimed, acked = recorded.one("claim orders"), recorded.one("ack orders")
    assert attributes(single) == {
        **told,
        "messaging.operation.type": "send",
        "messaging.operation.name": "send",
        "messaging.batch.message_count": 1,
        "messaging.message.id": id,
    }
    assert attributes(several)["messaging.batch.message_count"] == 2
    assert "messaging.message.id" not in attributes(several)
    assert attributes(claimed)["messaging.operation.type"] == "receive"
    assert attributes(claimed)["messaging.batch.message_count"] == 3
    assert attributes(acked)["messaging.operation.type"] == "settle"
    assert attributes(acked)["messaging.message.id"] == id
    assert [span.kind for span in (single, claimed, acked)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CLIENT,
    ]
    assert parent(acked) == context(recorded.one("POST /v1/queues/{queue}/ack"))
    assert "secret" not in "".join(span.to_json() for span in recorded.exporter.get_finished_spans())


async def test_a_call_that_serves_several_requests_has_links_to_each(
    recorded: Recorded, engine: Holdfast, database_url: str
) -> None:
    engine.create_queue("orders")
    database, traces = Engine(Settings(database_url=database_url)), Traces()
    configs = Configs(database)
    sends = Sends(database, configs, Meters(), traces)

    async def request(number: int) -> None:
        visit = Visit(str(number))
        current.set(visit)
        with (
            traces.request({"method": "POST", "scheme": "http", "headers": []}, visit),
            traces.operation("send", "send", "orders"),
        ):
            await sends.send("orders", [NewMessage(payload=Raw(b"1"))])

    await database.open()
    await configs.of("orders")  # all ask for it, and none has to wait
    await asyncio.gather(*map(request, range(6)))
    await database.close()

    call = recorded.one("holdfast.send_batch")
    served = recorded.named("send orders", 6)
    assert links(call) == {context(span)[1] for span in served}
    assert parent(call) in [context(span) for span in served]
    assert attributes(call)["holdfast.coalesced_requests"] == 6
    assert call.kind == SpanKind.CLIENT


def test_a_call_that_fails_says_what_kind_of_error_it_was(orders: Caller, recorded: Recorded) -> None:
    orders.refused("POST", "/v1/queues/nothing/ack", {"token": "1"}, status=404, code="QH101")

    for name in ("ack nothing", "holdfast.ack"):
        span = recorded.one(name)
        assert (span.status.status_code, attributes(span)["error.type"]) == (StatusCode.ERROR, "QH101")
        assert span.status.description is None
        assert span.events == ()


def test_kinds_of_errors_are_codes_or_classes() -> None:
    assert kind_of(UnavailableError("QH930", "away")) == "QH930"
    assert kind_of(psycopg.errors.LockNotAvailable()) == "55P03"
    assert kind_of(ValueError("secret")) == "ValueError"


def test_a_name_that_is_no_queue_s_is_in_no_span(orders: Caller, recorded: Recorded) -> None:
    orders.refused("POST", "/v1/queues/a%20secret/ack", {"token": "1"}, status=422, code="QH103")

    recorded.one("POST /v1/queues/{queue}/ack")
    assert "secret" not in "".join(span.to_json() for span in recorded.exporter.get_finished_spans())


def test_without_a_provider_there_are_no_spans() -> None:
    traces = Traces()

    assert traces.operation("send", "send", "orders") is traces.operation("settle", "ack", "orders")
    assert not isinstance(trace.get_tracer_provider(), TracerProvider)


# --- 3. messages carry their trace ------------------------------------------------------------------


def headers(engine: Holdfast) -> Any:
    (found,) = engine.claim("orders")
    return found.headers


def send(http: Caller, message: Any, **options: Any) -> None:
    http.ok("POST", MESSAGES, {"messages": [message]}, status=201, **options)


def test_a_message_carries_the_span_that_it_was_sent_in(
    orders: Caller, recorded: Recorded, engine: Holdfast
) -> None:
    send(orders, {"payload": 1, "headers": {"shop": "a"}}, headers=INCOMING)

    _, span = context(recorded.one("send orders"))
    assert headers(engine) == {
        "shop": "a",
        "traceparent": f"00-{TRACE}-{span}-01",
        "tracestate": "shop=1",
    }


@pytest.mark.parametrize("own", [{"traceparent": "mine"}, {"tracestate": "mine"}, {"big": "x" * 40_000}])
def test_headers_with_a_trace_or_without_room_stay_as_they_are(
    http: Caller, engine: Holdfast, own: dict[str, str]
) -> None:
    engine.create_queue("orders")

    send(http, {"payload": 1, "headers": own}, headers=INCOMING)

    assert headers(engine) == own


def test_a_server_without_traces_passes_the_caller_s_on(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")

    send(http, {"payload": 1}, headers=INCOMING)

    assert headers(engine) == INCOMING


@pytest.mark.parametrize("header", [{}, {"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, {"traceparent": "x"}])
def test_a_server_without_traces_passes_nothing_on_that_is_no_trace(
    http: Caller, engine: Holdfast, header: dict[str, str]
) -> None:
    engine.create_queue("orders")

    send(http, {"payload": 1}, headers=header)

    assert headers(engine) is None


def test_a_send_once_is_the_same_in_another_trace(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    message = {"payload": 1, "idempotency_key": "a"}

    send(http, message, headers=INCOMING)
    send(http, message, headers={"traceparent": f"00-{TRACE}-{SPAN[::-1]}-01"})
    send(http, message)

    assert engine.queue_stats("orders").depth == 1
    assert headers(engine) == INCOMING


# --- 4. logs ---------------------------------------------------------------------------------------


def test_the_line_of_a_request_names_its_trace(
    orders: Caller, recorded: Recorded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.access")

    orders.ok("GET", "/healthz", headers=INCOMING)

    trace_id, span_id = context(recorded.one("GET /healthz"))
    (line,) = [record.__dict__["request"] for record in caplog.records if "request" in record.__dict__]
    assert (line["trace_id"], line["span_id"]) == (trace_id, span_id)


# --- 5. processes ----------------------------------------------------------------------------------


def exported(text: str) -> list[dict[str, Any]]:
    """The spans that the console exporter has written."""
    spans, decoder = [], json.JSONDecoder()
    while text := text.lstrip():
        span, end = decoder.raw_decode(text)
        spans.append(span)
        text = text[end:]
    return spans


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_exports_what_the_environment_says(serve_process: ServeProcess, workers: str) -> None:
    server = serve_process("--workers", workers, OTEL_TRACES_EXPORTER="console", OTEL_SERVICE_NAME="queues")
    with server.caller() as caller:
        caller.ok("GET", "/healthz", headers=INCOMING)

    code, out, _ = ended(server)

    spans = {span["name"]: span for span in exported(out)}
    span = spans["GET /healthz"]
    assert code == 0
    assert span["context"]["trace_id"] == f"0x{TRACE}"
    assert span["resource"]["attributes"]["service.name"] == "queues"


def test_a_server_whose_exporter_is_not_there_says_so_and_serves(serve_process: ServeProcess) -> None:
    server = serve_process(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    with server.caller() as caller:
        caller.ok("GET", "/healthz")

    code, _, err = ended(server)

    assert code == 0
    assert "no traces are exported to otlp" in err
    assert "pip install opentelemetry-exporter-otlp" in err


def ended(server: Any) -> tuple[int, str, str]:
    """End a server; returns its exit code, and what it wrote."""
    server.process.terminate()
    out, err = server.process.communicate(timeout=30)
    return server.process.returncode, out, err


@pytest.mark.parametrize(
    ("names", "rest"), [(["console"], ""), (["otlp"], ", and the package of the exporter")]
)
def test_who_lacks_packages_is_told_those_that_it_takes(
    names: list[str], rest: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)

    with pytest.raises(LookupError, match=f"^pip install opentelemetry-sdk{rest}$"):
        set_up(names)
