"""Arguments and options that commands share, or that would crowd their signatures."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, TypeAlias
from uuid import UUID

import typer

from ._values import duration, instant, message_id, token, uuid

LARGEST_COUNT = 2**31 - 1  # PostgreSQL's int; how much less a verb takes, it says itself

Queue: TypeAlias = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.")]
Token: TypeAlias = Annotated[
    int, typer.Argument(parser=token, metavar="TOKEN", help="The token that claim printed.")
]
Ids: TypeAlias = Annotated[
    list[int] | None,
    typer.Argument(parser=message_id, metavar="ID...", help="Only these messages; else all."),
]
After: TypeAlias = Annotated[
    int | None,
    typer.Option("--after", parser=message_id, metavar="ID", help="Go on behind this message."),
]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", max=LARGEST_COUNT, help="At most so many.")]
Strict: TypeAlias = Annotated[
    bool, typer.Option("--strict", help="Fail if the token does not hold all of them any more.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

# What to send
Payload: TypeAlias = Annotated[
    str | None, typer.Argument(metavar="PAYLOAD", help="JSON; - reads it from stdin; without it, none.")
]
AsText: TypeAlias = Annotated[bool, typer.Option("--text", help="The payload is plain text, not JSON.")]
Body: TypeAlias = Annotated[
    Path | None, typer.Option("--body", metavar="PATH", help="Send a file's bytes instead; - is stdin.")
]
Lines: TypeAlias = Annotated[
    Path | None, typer.Option("--file", metavar="PATH", help="Send each line of a file; - is stdin.")
]
Chunk: TypeAlias = Annotated[int, typer.Option("--chunk", min=1, help="With --file: lines per COPY.")]
Atomic: TypeAlias = Annotated[
    bool, typer.Option("--atomic/--no-atomic", help="With --file: all lines or none, or chunk by chunk.")
]

# How to send it
ContentType: TypeAlias = Annotated[
    str | None, typer.Option("--content-type", metavar="TYPE", help="Of the payload or body.")
]
Header: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=VALUE", help="A header, its value as text; may be repeated."),
]
Priority: TypeAlias = Annotated[int | None, typer.Option("--priority", help="0 to 10; higher goes first.")]
Delay: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--delay", parser=duration, metavar="DURATION", help="Deliver it so much later."),
]
DeliverAt: TypeAlias = Annotated[
    datetime | None,
    typer.Option("--deliver-at", parser=instant, metavar="TIME", help="Deliver it from then on."),
]
Ttl: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--ttl", parser=duration, metavar="DURATION", help="It expires after so long."),
]
ExpiresAt: TypeAlias = Annotated[
    datetime | None, typer.Option("--expires-at", parser=instant, metavar="TIME", help="It expires then.")
]
CorrelationId: TypeAlias = Annotated[
    UUID | None,
    typer.Option("--correlation-id", parser=uuid, metavar="UUID", help="What it belongs to."),
]
Tag: TypeAlias = Annotated[str | None, typer.Option("--tag", help="A word to find it by.")]
MaxDeliveries: TypeAlias = Annotated[
    int | None, typer.Option("--max-deliveries", help="After so many it is dead; 0: never.")
]

OrderingKey: TypeAlias = Annotated[
    str | None, typer.Option("--ordering-key", metavar="KEY", help="The line in which it has its place.")
]
ReplaceKey: TypeAlias = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="It replaces what waits with this key.")
]
IdempotencyKey: TypeAlias = Annotated[
    str | None, typer.Option("--idempotency-key", metavar="KEY", help="It is sent once while it lives.")
]

# How to claim
Max: TypeAlias = Annotated[
    int, typer.Option("--max", "-n", max=LARGEST_COUNT, help="At most so many messages.")
]
LeaseFor: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--lease", parser=duration, metavar="DURATION", help="Nobody else gets them for so long."),
]
Consumer: TypeAlias = Annotated[str | None, typer.Option("--consumer", help="Who you are.")]
Wait: TypeAlias = Annotated[
    timedelta | None,
    typer.Option("--wait", parser=duration, metavar="DURATION", help="Wait so long for a message."),
]
State: TypeAlias = Annotated[
    str, typer.Option("--state", help="ready, scheduled, blocked, in_flight, dead or archive.")
]
Failure: TypeAlias = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="What went wrong.")]
