"""holdfast service: PostgreSQL services on which queues are made, and their queues."""

from __future__ import annotations

import sys
from typing import Annotated

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from holdfast.client import InvalidServiceError, ServiceQueue, ServiceUnreachableError
from holdfast.client._services import LOCAL, check_name, shown
from holdfast.database import key_folder
from holdfast.vault import Vault

from ._command import Invocation, command
from ._help import Group
from ._options import Yes

CONNECT_SECONDS = 5
COLUMNS = ("name", "address", "queues", "updated_at", "id")
QUEUE_COLUMNS = ("name", "status", "database_name", "updated_at", "error_message")
FROM_STDIN = "-"

app = typer.Typer(
    cls=Group,
    help="PostgreSQL services, and queues on them. Messages: by /managed-services of a server, or SQL there.",
    short_help="PostgreSQL services, and the queues on them.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="SERVICE", help="Its name.")]
Url = Annotated[
    str | None,
    typer.Argument(metavar="URL", help="How to connect; - reads it from stdin; without it you are asked."),
]
Unchecked = Annotated[bool, typer.Option("--unchecked", help="Do not try to connect first.")]
Forget = Annotated[
    bool, typer.Option("--forget", help="It is gone for good: forget what is known of its queues, too.")
]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="The name of a queue on it.")]
Database = Annotated[
    str | None, typer.Option("--database", metavar="NAME", help="Which database of it; else its own.")
]
Timeout = Annotated[
    int, typer.Option("--visibility-timeout", min=1, max=43_200, help="Seconds that a claim holds a message.")
]
Attempts = Annotated[
    int, typer.Option("--max-attempts", min=1, max=100, help="After so many deliveries it is dead.")
]
NoDeadLetters = Annotated[bool, typer.Option("--no-dlq", help="Delete what is dead, instead of keeping it.")]


@command(app)
def add(invocation: Invocation, service: Name, url: Url = None, unchecked: Unchecked = False) -> None:
    """Make a service, or say anew where it is and with which password."""
    check_name(service)
    given = asked_for(invocation) if url is None else sys.stdin.readline() if url == FROM_STDIN else url
    given = given.strip()
    if not given:
        raise InvalidServiceError(
            "QH850",
            "no URL came",
            "There was none to be read. Nothing was stored.",
            "It is like postgresql://user:password@host:5432/database: on stdin, or where you are asked.",
        )
    address = shown(given)
    if not unchecked:
        check(given, address)
    with invocation.client() as client:
        vault = client.vault = Vault.found(key_folder(invocation.database_url))
        makes_key = vault.makes_key
        id = client.put_service(service, given)
        if makes_key:
            others = [known.name for known in client.services() if known.name not in (LOCAL, service)]
            warn_of_others(invocation, vault, others)
    invocation.output.document(
        {"id": str(id), "name": service, "address": address}, f"{service} is {address}."
    )


@command(app, "list")
def list_services(invocation: Invocation) -> None:
    """List services, without their passwords."""
    with invocation.client() as client:
        invocation.output.records(client.services(), COLUMNS, "There are no services.")


@command(app)
def remove(invocation: Invocation, service: Name, forget: Forget = False, yes: Yes = False) -> None:
    """Take a service off the list; one with queues is refused."""
    with invocation.client() as client:
        if forget and service in [known.name for known in client.services()]:
            invocation.confirm(f"Forget the queues of {service}, and leave them where they are?", yes=yes)
        dropped = client.drop_service(service, forget=forget)
    text = f"Removed {service}." if dropped else f"There is no service {service}."
    invocation.output.document({"service": service, "removed": dropped}, text)


@command(app)
def queues(invocation: Invocation, service: Name) -> None:
    """List the queues on a service: how far they are, and what went wrong."""
    with invocation.client() as client:
        found = client.service_queues(service)
    invocation.output.records(found, QUEUE_COLUMNS, f"There are no queues on {service}.")


@command(app)
def create(
    invocation: Invocation,
    service: Name,
    queue: Queue,
    database: Database = None,
    visibility_timeout: Timeout = 30,
    max_attempts: Attempts = 5,
    no_dlq: NoDeadLetters = False,
) -> None:
    """Ask for a queue on a service; an agent of a server makes it."""
    with invocation.client() as client:
        asked = client.create_service_queue(
            service,
            queue,
            database_name=database,
            visibility_timeout_seconds=visibility_timeout,
            max_attempts=max_attempts,
            dlq_enabled=not no_dlq,
        )
    tell(invocation, asked)


@command(app)
def delete(invocation: Invocation, service: Name, queue: Queue, yes: Yes = False) -> None:
    """Ask for a queue to be removed, with all its messages; an agent of a server does it."""
    invocation.confirm(f"Remove {queue} on {service}, with all its messages?", yes=yes)
    with invocation.client() as client:
        tell(invocation, client.delete_service_queue(service, queue))


@command(app)
def retry(invocation: Invocation, service: Name, queue: Queue) -> None:
    """Try again to make, or to remove, a queue for which that has failed."""
    with invocation.client() as client:
        tell(invocation, client.retry_service_queue(service, queue))


def tell(invocation: Invocation, queue: ServiceQueue) -> None:
    """How far a queue is."""
    invocation.output.document(queue, f"{queue.name} on {queue.service} is {queue.status}.")


def warn_of_others(invocation: Invocation, vault: Vault, others: list[str]) -> None:
    """What was sealed before there was this key was sealed with another, which is not here."""
    if others:
        invocation.output.note(
            f"Made a new key, {vault.path}. Services stored before are sealed with another one: "
            f"{', '.join(others)}. Put that key into the file too, on a line of its own, or add them again."
        )


def asked_for(invocation: Invocation) -> str:
    """A URL that nobody sees, and no history keeps; machines are not asked."""
    if not sys.stdin.isatty() or invocation.output.as_json:
        return sys.stdin.readline()
    url: str = typer.prompt("URL, as in postgresql://user:password@host:5432/database", hide_input=True)
    return url


def check(url: str, address: str) -> None:
    """Refuse what nobody can connect to, without a word of its password."""
    given = conninfo_to_dict(url)
    try:
        psycopg.connect(make_conninfo(url, connect_timeout=CONNECT_SECONDS), autocommit=True).close()
    except psycopg.Error as error:
        password = str(given.get("password") or "")
        said = " ".join(str(error).split())
        raise ServiceUnreachableError(
            "QH853",
            f"nobody can connect to {address}",
            f"{sentence(said.replace(password, '***') if password else said)} Nothing was stored.",
            "Look at host, port, user and password; --unchecked stores it all the same.",
        ) from None


def sentence(text: str) -> str:
    """A text that ends as sentences do."""
    return text if text.endswith((".", "?", "!")) else f"{text}."
