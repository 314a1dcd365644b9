"""holdfast send, claim, peek: messages in, messages out, and a look at them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer
from psycopg.types.json import Jsonb

from ._command import Invocation, command
from ._ending import ExitCode
from ._file import COPY_ROWS, send_file
from ._options import (
    After,
    AsText,
    Atomic,
    Body,
    Chunk,
    Consumer,
    ContentType,
    CorrelationId,
    Delay,
    DeliverAt,
    ExpiresAt,
    Header,
    IdempotencyKey,
    LeaseFor,
    Limit,
    Lines,
    Max,
    MaxDeliveries,
    OrderingKey,
    Payload,
    Priority,
    Queue,
    ReplaceKey,
    State,
    Tag,
    Ttl,
    Wait,
)
from ._values import headers, json_payload, shortened

STDIN = "-"


def register(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(send)
    command(app)(claim)
    command(app)(peek)


def send(
    invocation: Invocation,
    queue: Queue,
    payload: Payload = None,
    text: AsText = False,
    body: Body = None,
    file: Lines = None,
    chunk: Chunk = COPY_ROWS,
    atomic: Atomic = True,
    content_type: ContentType = None,
    header: Header = None,
    priority: Priority = None,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    ttl: Ttl = None,
    expires_at: ExpiresAt = None,
    correlation_id: CorrelationId = None,
    tag: Tag = None,
    max_deliveries: MaxDeliveries = None,
    ordering_key: OrderingKey = None,
    key: ReplaceKey = None,
    idempotency_key: IdempotencyKey = None,
) -> None:
    """Send a message, or with --file one for each line of a file."""
    if sum(source is not None for source in (payload, body, file)) > 1:
        raise typer.BadParameter("give only one of: a payload, --body, --file")
    options: dict[str, Any] = {
        "content_type": content_type,
        "headers": headers(header or []),
        "priority": priority,
        "delay": delay,
        "deliver_at": deliver_at,
        "ttl": ttl,
        "expires_at": expires_at,
        "correlation_id": correlation_id,
        "tag": tag,
        "max_deliveries": max_deliveries,
        "ordering_key": ordering_key,
        "key": key,
        "idempotency_key": idempotency_key,
    }
    if file is None:
        send_one(invocation, queue, read_payload(payload, text=text), read_body(body), options)
    else:
        send_file(invocation, queue, file, options, text=text, chunk=chunk, atomic=atomic)


def send_one(
    invocation: Invocation, queue: str, payload: Jsonb | None, body: bytes | None, options: dict[str, Any]
) -> None:
    """Send one message and say which id it got."""
    with invocation.client() as client:
        id = client.send(queue, payload, body=body, **options)
    invocation.output.document({"queue": queue, "id": id}, f"Sent message {id} to {queue}.")


def read_payload(payload: str | None, *, text: bool) -> Jsonb | None:
    """The payload as given, or from stdin; the word null is the JSON value."""
    if payload is None:
        return None
    content = sys.stdin.read() if payload == STDIN else payload
    if text:
        return Jsonb(content)
    try:
        return json_payload(content)
    except (RecursionError, ValueError) as error:
        raise typer.BadParameter(
            f"{shortened(content)} is not JSON ({error}); for plain text use --text"
        ) from error


def read_body(path: Path | None) -> bytes | None:
    """A file's bytes."""
    if path is None:
        return None
    if str(path) == STDIN:
        return sys.stdin.buffer.read()
    try:
        return path.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"can't read {path}: {error.strerror}") from error


def claim(
    invocation: Invocation,
    queue: Queue,
    max: Max = 1,
    lease: LeaseFor = None,
    consumer: Consumer = None,
    wait: Wait = None,
) -> None:
    """Take messages. Exits with 4 if there are none."""
    with invocation.client() as client:
        deliveries = client.claim(queue, max, lease=lease, consumer=consumer, wait=wait)
        paused = not (deliveries or invocation.output.as_json) and client.queue_stats(queue).paused
    columns = ("token", "id", "priority", "deliveries", "deadline", "payload")
    nothing = f"Nothing to claim in {queue}."
    if paused:
        nothing = f"Queue {queue} is paused. To hand out messages again: holdfast queue resume {queue}"
    invocation.output.records(deliveries, columns, nothing)
    if not deliveries:
        raise typer.Exit(ExitCode.NOTHING)
    invocation.output.note(f"When done: holdfast ack {queue} {deliveries[0].token}")


def peek(
    invocation: Invocation, queue: Queue, state: State = "ready", limit: Limit = 20, after: After = None
) -> None:
    """Look at messages without claiming them."""
    with invocation.client() as client:
        entries = client.browse(queue, state, limit=limit, after=after)
    columns = ("id", "state", "priority", "deliveries", "enqueued_at", "due_at", "tag", "payload")
    invocation.output.records(entries, columns, f"No message in {queue} is {state}.")
