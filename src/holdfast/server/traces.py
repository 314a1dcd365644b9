"""Traces: a span for each request, for what it does with messages, and for the calls of the database.

They go to whatever OpenTelemetry provider the process has when the server starts. Where it has none, nothing
is made of a request: one look, and no object. Payloads, keys, and paths and queries as they came are in none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from time import time_ns
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

import psycopg
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NoOpTracer,
    NoOpTracerProvider,
    ProxyTracerProvider,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    get_tracer_provider,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import Scope

from holdfast.client import Delivery, HoldfastError
from holdfast.client._traces import PARENT, STATE, written

from .meters import METHODS
from .visit import QUEUE, Visit, current

K = TypeVar("K", bound=Hashable)

# Is told of a call: its key, when it began, the spans that it served, and the error that it ended with.
Told: TypeAlias = Callable[[K, int, Sequence[Span], BaseException | None], None]
Headers = Sequence[tuple[bytes, bytes]]

KINDS = {"send": SpanKind.PRODUCER, "receive": SpanKind.CLIENT, "settle": SpanKind.CLIENT}
SYSTEM = {"messaging.system": "holdfast"}
NOTHING: AbstractContextManager[None] = nullcontext()
w3c = TraceContextTextMapPropagator()


class Operation:
    """What a request does with messages, as a span; of no effect where there is none."""

    __slots__ = ("_outer", "_span", "_visit")

    def __init__(self, span: Span | None = None, visit: Visit | None = None) -> None:
        self._span = span
        self._visit = visit
        self._outer: Span | None = None

    def __enter__(self) -> Operation:
        if self._visit is not None:
            self._outer, self._visit.span = self._visit.span, self._span
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._span is None or self._visit is None:
            return
        self._visit.span = self._outer
        if isinstance(error, Exception):  # to be cancelled is none
            fail(self._span, error)
        self._span.end()

    def concerns(self, messages: Sequence[int] | Sequence[Delivery]) -> None:
        """It was about these."""
        if self._span is None:
            return
        self._span.set_attribute("messaging.batch.message_count", len(messages))
        if len(messages) == 1:
            self._span.set_attribute("messaging.message.id", str(getattr(messages[0], "id", messages[0])))


UNTRACED = Operation()


class Traces:
    """The spans of one server process."""

    def __init__(self) -> None:
        self._tracer = chosen_tracer()

    def request(self, scope: Scope, visit: Visit) -> AbstractContextManager[None]:
        """The span of a request, as long as the block lasts."""
        return NOTHING if self._tracer is None else self._request(self._tracer, scope, visit)

    @contextmanager
    def _request(self, tracer: Tracer, scope: Scope, visit: Visit) -> Iterator[None]:
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        visit.span = span = tracer.start_span(
            named(method), parent(scope["headers"]), SpanKind.SERVER, asked(method, scope, visit)
        )
        with use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            finally:
                if span.is_recording():
                    conclude(span, method, visit)

    def operation(self, kind: str, name: str, queue: str) -> Operation:
        """The span of what the present request does with messages: kind is send, receive or settle."""
        visit = current.get()
        if self._tracer is None or visit is None or visit.span is None or not QUEUE.fullmatch(queue):
            return UNTRACED
        attributes = {
            **SYSTEM,
            "messaging.destination.name": queue,
            "messaging.operation.type": kind,
            "messaging.operation.name": name,
        }
        within = set_span_in_context(visit.span)
        return Operation(
            self._tracer.start_span(f"{name} {queue}", within, KINDS[kind], attributes), visit
        )

    def call(
        self, verb: str, queue: str, began: int, spans: Sequence[Span], error: BaseException | None
    ) -> None:
        """One call of the database, in the trace of the first that it served, with links to all of them."""
        first = next((span for span in spans if span.is_recording()), None)
        if self._tracer is None or first is None or not QUEUE.fullmatch(queue):
            return
        span = self._tracer.start_span(
            f"holdfast.{verb}",
            set_span_in_context(first),
            SpanKind.CLIENT,
            {
                "db.system.name": "postgresql",
                "db.stored_procedure.name": f"holdfast.{verb}",
                "messaging.destination.name": queue,
                "holdfast.coalesced_requests": len(spans),
            },
            links=[Link(each.get_span_context()) for each in spans],
            start_time=began,
        )
        if error is not None:
            fail(span, error)
        span.end()


@contextmanager
def followed(told: Told[K], key: K, spans: Sequence[Span]) -> Iterator[None]:
    """Tell of the call that is made in the block."""
    began = time_ns()
    try:
        yield
    except BaseException as error:
        told(key, began, spans, error)
        raise
    told(key, began, spans, None)


def chosen_tracer() -> Tracer | None:
    """The tracer of the process; None where it has none."""
    provider = get_tracer_provider()
    if isinstance(provider, ProxyTracerProvider | NoOpTracerProvider):
        return None
    tracer = provider.get_tracer("holdfast.server", version("holdfast"))
    return None if isinstance(tracer, NoOpTracer) else tracer


def named(method: str) -> str:
    """How a span is called as long as no route is known."""
    return "HTTP" if method == "_OTHER" else method


def asked(method: str, scope: Scope, visit: Visit) -> dict[str, Any]:
    """What is known of a request when it comes."""
    attributes = {
        "http.request.method": method,
        "url.scheme": scope["scheme"],
        "holdfast.request_id": visit.id,
    }
    if scope.get("server"):
        attributes["server.address"], attributes["server.port"] = scope["server"]
    return attributes


def conclude(span: Span, method: str, visit: Visit) -> None:
    """What is known of a request when it has been answered."""
    if visit.route is not None:
        span.update_name(f"{named(method)} {visit.route}")
        span.set_attribute("http.route", visit.route)
    if visit.status:
        span.set_attribute("http.response.status_code", visit.status)
    if visit.status >= 500:
        span.set_attribute("error.type", str(visit.status))
        span.set_status(Status(StatusCode.ERROR))


def fail(span: Span, error: BaseException) -> None:
    """Say what kind of error something ended with, and not what it says: that may quote a message."""
    span.set_attribute("error.type", kind_of(error))
    span.set_status(Status(StatusCode.ERROR))


def kind_of(error: BaseException) -> str:
    """A code, or the name of a class."""
    code = error.code if isinstance(error, HoldfastError) else None
    if isinstance(error, psycopg.Error):
        code = error.sqlstate
    return code or type(error).__qualname__


def parent(headers: Headers) -> Context:
    """The context that a request was made in, by its headers; one without a span if they name none."""
    carrier: dict[str, str] = {}
    for name, value in headers:
        if name == b"traceparent":
            carrier[PARENT] = value.decode("latin-1")
        elif name == b"tracestate":  # which may come in parts
            part = value.decode("latin-1")
            carrier[STATE] = f"{carrier[STATE]},{part}" if STATE in carrier else part
    return w3c.extract(carrier, Context()) if PARENT in carrier else Context()


def carried(headers: Headers) -> Mapping[str, str] | None:
    """What messages carry that the present request sends: its own span, else the one that it was made in."""
    visit = current.get()
    if visit is not None and visit.span is not None:
        return written(visit.span.get_span_context())
    for name, _ in headers:
        if name == b"traceparent":
            return written(get_current_span(parent(headers)).get_span_context())
    return None


def current_span() -> Span | None:
    """The innermost span of the present request."""
    visit = current.get()
    return None if visit is None else visit.span
