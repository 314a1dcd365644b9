"""holdfast key: make, list, rotate and revoke keys to the HTTP server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

import typer

from holdfast.client import ApiKey, NewKey

from ._command import Invocation, command
from ._help import Group
from ._options import LARGEST_COUNT
from ._output import named
from ._values import duration, positive

COLUMNS = ("id", "name", "prefix", "scopes", "queues", "rate", "expires_at", "last_used_at", "state")
EVERY_QUEUE = "*"
ANOTHER = "holdfast key create NAME --scope admin makes one that may do everything."

app = typer.Typer(cls=Group, help="Make, list, rotate and revoke API keys.", no_args_is_help=True)


class Scope(StrEnum):
    """What a key may do."""

    SEND = "send"
    CONSUME = "consume"
    READ = "read"
    ADMIN = "admin"


def key_id(text: str) -> int:
    """The id of a key."""
    return positive(text, "the id of a key: holdfast key list shows them")


Name = Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, or for what.")]
Id = Annotated[int, typer.Argument(parser=key_id, metavar="ID", help="Which key.")]
Scopes = Annotated[list[Scope], typer.Option("--scope", help="What it may do; may be repeated.")]
Patterns = Annotated[
    list[str] | None,
    typer.Option(
        "--queue", metavar="PATTERN", help="With which queues; * stands for anything; may be repeated."
    ),
]
ExpiresIn = Annotated[
    timedelta | None,
    typer.Option("--expires-in", parser=duration, metavar="DURATION", help="It ends after so long."),
]
Rate = Annotated[float | None, typer.Option("--rate", help="At most so many requests a second.")]
Burst = Annotated[
    int | None, typer.Option("--burst", max=LARGEST_COUNT, help="With --rate: so many at once after a pause.")
]
Grace = Annotated[
    timedelta | None,
    typer.Option("--grace", parser=duration, metavar="DURATION", help="The old secret stays valid so long."),
]
All = Annotated[bool, typer.Option("--all", help="Also those that are revoked or have expired.")]


@command(app)
def create(
    invocation: Invocation,
    name: Name,
    scope: Scopes,
    queue: Patterns = None,
    expires_in: ExpiresIn = None,
    rate: Rate = None,
    burst: Burst = None,
) -> None:
    """Make a key to the HTTP server, and show its secret this once."""
    with invocation.client() as client:
        made = client.create_key(
            name,
            scopes=[str(each) for each in scope],
            queues=queue or None,
            expires_in=expires_in,
            rate=rate,
            burst=burst,
        )
        keys = client.keys()
    show(invocation, made, f"Created key {made.id}, {name}.")
    if len(keys) == 1:
        for line in said_of_the_first(keys[0]):
            invocation.output.note(line)


@command(app, "list")
def list_keys(invocation: Invocation, all: All = False) -> None:
    """List keys, without their secrets."""
    with invocation.client() as client:
        keys, now = client.keys(), client.now()
    listed = [with_state(key, now) for key in keys]
    wanted = [key for key in listed if all or key["state"] == "valid"]
    invocation.output.records(wanted, COLUMNS, none_valid(listed))


@command(app)
def rotate(invocation: Invocation, id: Id, grace: Grace = None) -> None:
    """Give a key another secret, and show it this once."""
    with invocation.client() as client:
        show(invocation, client.rotate_key(id, grace=grace), f"Key {id} has another secret.")


@command(app)
def revoke(invocation: Invocation, id: Id) -> None:
    """End a key, at once and for good."""
    with invocation.client() as client:
        revoked = client.revoke_key(id)
    text = f"Revoked key {id}." if revoked else f"Key {id} was revoked before."
    invocation.output.document({"id": id, "revoked": revoked}, text)


def show(invocation: Invocation, made: NewKey, text: str) -> None:
    """Tell the secret, which nobody can tell again."""
    invocation.output.document(made, made.key)
    invocation.output.note(f"{text} Keep the secret above: it is shown this once, and stored nowhere.")


def said_of_the_first(key: ApiKey) -> Iterator[str]:
    """What the first key changes, and what it leaves to be done."""
    yield "It is the first: from now on, every request to the HTTP server needs a key."
    if Scope.ADMIN not in key.scopes or EVERY_QUEUE not in key.queues:
        yield "Careful: it is no admin of all queues, and so can make no other over HTTP. " + ANOTHER
    if key.expires_at is not None:
        yield "Careful: the server stays closed when it has expired. " + ANOTHER


def none_valid(keys: Sequence[Mapping[str, Any]]) -> str:
    """What to say where no key is valid, but some may have been."""
    if not keys:
        return "There are no keys."
    states = Counter(key["state"] for key in keys)
    told = " and ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return f"No key is valid; --all shows {told}. The server stays closed. {ANOTHER}"


def with_state(key: ApiKey, now: datetime) -> dict[str, Any]:
    """A key, and whether it is valid."""
    expired = key.expires_at is not None and key.expires_at <= now
    state = "revoked" if key.revoked_at is not None else "expired" if expired else "valid"
    return {**named(key), "state": state}
