"""holdfast blocked, unblock, cancel: ordering keys that wait, and messages by their key."""

from __future__ import annotations

from typing import Annotated

import typer

from ._command import Invocation, command
from ._options import Limit, Queue, Yes

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.")]
OneKey = Annotated[
    str | None, typer.Argument(metavar="KEY", help="The ordering key; a strict queue has none.")
]
Skip = Annotated[bool, typer.Option("--skip", help="Move the message to the dead letters.")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    command(app)(blocked)
    command(app)(unblock)
    command(app)(cancel)


def blocked(invocation: Invocation, queue: Queue, limit: Limit = 20) -> None:
    """List ordering keys whose messages wait behind another one."""
    with invocation.client() as client:
        found = client.blocked_keys(queue, limit)
    columns = ("key", "head", "since", "waiting", "reason")
    invocation.output.records(found, columns, f"No key of {queue} is blocked.")


def unblock(invocation: Invocation, queue: Queue, key: OneKey = None, skip: Skip = False) -> None:
    """Deliver the dead message again that blocks a key; or skip it."""
    with invocation.client() as client:
        id = client.unblock(queue, key, how="skip" if skip else "retry")
    text = f"Message {id} is {'among the dead letters' if skip else 'delivered again'}."
    invocation.output.document({"queue": queue, "key": key, "id": id}, text)


def cancel(invocation: Invocation, queue: Queue, key: Key, yes: Yes = False) -> None:
    """Delete the messages that have a key."""
    invocation.confirm(f"Delete the messages of {queue} with the key {key}?", yes=yes)
    with invocation.client() as client:
        gone = client.discard_key(queue, key)
    invocation.output.document({"ids": gone}, f"Discarded {len(gone)}.")
