"""Traces: messages carry the context that they were sent in, as W3C traceparent and tracestate.

Nothing of OpenTelemetry is imported here: a program that has a current span has imported it already, and for
any other a look at the imported modules is all that it costs.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

PARENT, STATE = "traceparent", "tracestate"
LONGEST_STATE = 512  # characters that W3C asks everybody to pass on
# Of headers that are larger, as JSON, none are added: they must not become too large by it (QH202).
ROOMY = 32_768
SENDS = ("send", "send_batch", "send_many")


def trace_headers(headers: Mapping[str, Any] | None) -> dict[str, str]:
    """The headers of a message that say which trace it was sent in; none if they are not fit to be read.

    OpenTelemetry's extract() makes a context of them.
    """
    headers = headers or {}
    parent, state = headers.get(PARENT), headers.get(STATE)
    if not isinstance(parent, str):
        return {}
    return {PARENT: parent, STATE: state} if isinstance(state, str) else {PARENT: parent}


def current_trace() -> dict[str, str] | None:
    """The context that this code runs in; None outside of any."""
    opentelemetry = sys.modules.get("opentelemetry.trace")
    if opentelemetry is None:
        return None
    return written(opentelemetry.get_current_span().get_span_context())


def written(context: SpanContext) -> dict[str, str] | None:
    """A span as headers name it; None if there is none."""
    if not context.is_valid:
        return None
    trace = {PARENT: f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"}
    if context.trace_state and len(state := context.trace_state.to_header()) <= LONGEST_STATE:
        trace[STATE] = state
    return trace


def traced(verb: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of a verb; where it sends, with the current trace."""
    if verb not in SENDS or (trace := current_trace()) is None:
        return arguments
    if verb == "send_many":
        return {**arguments, "messages": [with_trace(message, trace) for message in arguments["messages"]]}
    return with_trace(arguments, trace)


def with_trace(message: Mapping[str, Any], trace: Mapping[str, str]) -> Mapping[str, Any]:
    """A message, or what several have in common, with a trace among its headers."""
    headers = message.get("headers")
    marked = marked_headers(headers, trace)
    return message if marked is headers else {**message, "headers": marked}


def marked_headers(headers: Any, trace: Mapping[str, str]) -> Any:
    """Headers with a trace, if they have none of their own, and there is room; bad ones stay as they are."""
    if headers is None:
        return trace
    if not isinstance(headers, Mapping) or PARENT in headers or STATE in headers or not is_roomy(headers):
        return headers
    return {**headers, **trace}


def is_roomy(headers: Mapping[str, Any]) -> bool:
    """Whether headers are far from too large."""
    try:
        return len(json.dumps(headers)) <= ROOMY
    except (TypeError, ValueError, RecursionError):  # refused as they would be without a trace
        return False
