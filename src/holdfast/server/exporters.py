"""Where traces go: to what OpenTelemetry's own variables name, if its packages are there.

Each process does this for itself, workers too: a provider has a thread, and is not inherited. One that the
process has already, by opentelemetry-instrument for example, stays as it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points

from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider, set_tracer_provider

EXPORTER = "OTEL_TRACES_EXPORTER"
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
BY_PROTOCOL = {"http/protobuf": ("otlp_proto_http",), "grpc": ("otlp_proto_grpc",)}
OFFERED = "opentelemetry_traces_exporter"  # the group of entry points in which packages offer exporters
OF_SDK = {"console"}  # exporters that need no package of their own
SERVICE = "holdfast"
NAME, ATTRIBUTES = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"

logger = logging.getLogger("holdfast.server")


def export() -> None:
    """Set up a provider as the environment says; if that cannot be, say so, and serve without traces."""
    names = wanted()
    if not names or not isinstance(get_tracer_provider(), ProxyTracerProvider):
        return
    try:
        set_up(names)
    except Exception as error:  # an exporter may refuse its variables in ways of its own
        logger.warning("no traces are exported to %s: %s", ", ".join(names), error)


def wanted() -> list[str]:
    """The exporters that the environment names; OTLP if it names but an address for that."""
    default = "otlp" if any(os.environ.get(name) for name in ENDPOINTS) else "none"
    names = (os.environ.get(EXPORTER) or default).split(",")
    return [name.strip() for name in names if name.strip() not in ("", "none")]


def set_up(names: Iterable[str]) -> None:
    """Make the provider; sampling, limits and batches are as the SDK reads them from the environment."""
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        rest = "" if set(names) <= OF_SDK else ", and the package of the exporter"
        raise LookupError(f"pip install opentelemetry-sdk{rest}") from error
    exporters = [offered(name).load()() for name in names]
    provider = TracerProvider(resource=Resource.create(identity()))
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    set_tracer_provider(provider)


def identity() -> dict[str, str]:
    """How the service is called, if the environment does not say."""
    is_named = os.environ.get(NAME) or "service.name=" in os.environ.get(ATTRIBUTES, "")
    return {} if is_named else {"service.name": SERVICE}


def offered(name: str) -> EntryPoint:
    """The exporter of this name, of those that packages offer."""
    for candidate in candidates(name):
        for found in entry_points(group=OFFERED, name=candidate):
            return found
    package = "opentelemetry-exporter-otlp" if name == "otlp" else "the package that has it"
    raise LookupError(f"there is no exporter {name!r}: pip install {package}")


def candidates(name: str) -> Iterator[str]:
    """Under which names packages may offer it: OTLP has one for each protocol."""
    if name != "otlp":
        yield name
        return
    protocol = next((os.environ[each] for each in PROTOCOLS if os.environ.get(each)), None)
    yield from BY_PROTOCOL.get(protocol or "", ("otlp_proto_http", "otlp_proto_grpc", "otlp"))
