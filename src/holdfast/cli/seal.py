"""holdfast seal: public keys, with which messages are encrypted before they are stored; and opening."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.client import Opened, is_sealed, open_sealed

from ._command import Invocation, command
from ._ending import ExitCode
from ._help import Group
from ._options import Queue, Yes
from ._output import named
from ._values import stdin

STDIN = "-"
PASSWORD = "HOLDFAST_PRIVATE_KEY_PASSWORD"  # in the environment: what is typed, others see

app = typer.Typer(cls=Group, help="Messages that only their consumers can read.", no_args_is_help=True)

PublicKey = Annotated[str, typer.Argument(metavar="FILE", help="The public key as PEM; - is stdin.")]
KeyId = Annotated[str, typer.Argument(metavar="ID", help="The id of a key, as keys lists it.")]
PrivateKeys = Annotated[
    list[Path], typer.Option("--key", metavar="FILE", help="A private key as PEM; more than once if need be.")
]
Sealed = Annotated[
    str,
    typer.Argument(metavar="[FILE]", help="What claim or peek print with --json, or one body; - is stdin."),
]


@command(app, "set")
def set_key(invocation: Invocation, queue: Queue, public_key: PublicKey) -> None:
    """Have the messages of a queue sealed with a public key; those before it still count."""
    pem = content(public_key)
    with invocation.client() as client:
        id = client.set_seal_key(queue, pem)
    invocation.output.document(
        {"queue": queue, "id": id}, f"Messages of {queue} are sealed with {id} from now on."
    )


@command(app)
def keys(invocation: Invocation, queue: Queue) -> None:
    """List the public keys of a queue: the one in force first, those that were dropped last."""
    with invocation.client() as client:
        found = client.seal_keys(queue)
    invocation.output.records(
        found, ("id", "kind", "set_at", "dropped_at"), f"Queue {queue} has no public key."
    )


@command(app)
def drop(invocation: Invocation, queue: Queue, key_id: KeyId, yes: Yes = False) -> None:
    """Take a public key from a queue. Without any, messages are stored as they come."""
    invocation.confirm(f"Drop the key {key_id} of {queue}?", yes=yes)
    with invocation.client() as client:
        dropped = client.drop_seal_key(queue, key_id)
    text = f"Dropped the key {key_id} of {queue}." if dropped else f"Queue {queue} has no key {key_id}."
    invocation.output.document({"queue": queue, "id": key_id, "dropped": dropped}, text)


@command(app, "open")
def open_message(invocation: Invocation, key: PrivateKeys, file: Sealed = STDIN) -> None:
    """Open sealed messages. It asks no database. Exits with 4 if there is nothing sealed."""
    private = [content(str(path)) for path in key]
    password = os.environ.get(PASSWORD)
    found = [told(each, open_sealed(each, private, password=password)) for each in messages(content(file))]
    if not found:
        invocation.output.note("There is nothing sealed.")
        raise typer.Exit(ExitCode.NOTHING)
    invocation.output.records(found, ("id", "queue", "content_type", "payload"), "")


def content(file: str) -> bytes:
    """What is in a file, or comes from stdin."""
    try:
        return stdin().read() if file == STDIN else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"can't read {file}: {error.strerror}") from error


def messages(data: bytes) -> Iterator[Any]:
    """The sealed messages in JSON lines; or the one that it is."""
    if is_sealed(data):
        yield data
        return
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            message = json.loads(line)
        except (RecursionError, ValueError) as error:
            raise typer.BadParameter(f"line {number} is neither JSON nor an envelope") from error
        if isinstance(message, dict) and is_sealed(message):
            yield message


def told(message: Any, opened: Opened) -> dict[str, Any]:
    """What was in a message, with what it has in clear."""
    clear = message if isinstance(message, dict) else {}
    return {"id": None, **clear, **named(opened)}
