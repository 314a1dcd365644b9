"""holdfast endpoint: where the messages of queues are delivered to, and how that goes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.client import Holdfast
from holdfast.database import key_folder
from holdfast.vault import Vault

from ._command import Invocation, command
from ._help import Group
from ._options import Limit, Yes
from ._output import named
from ._values import assignments, duration, json_value, message_id, stdin_text

STDIN = "-"
COLUMNS = ("endpoint", "queue", "url", "enabled", "disabled_reason", "changed_at")
HEALTH = (
    "endpoint",
    "enabled",
    "breaker",
    "pending",
    "oldest_pending",
    "dead",
    "attempts",
    "success_rate",
    "latency_p50",
    "latency_p99",
    "last_failure_at",
)
ATTEMPTS = ("at", "id", "delivery", "outcome", "status", "latency", "error")

app = typer.Typer(cls=Group, help="Where messages are delivered to: webhook endpoints.", no_args_is_help=True)


class Outcome(StrEnum):
    """What becomes of an attempt."""

    DONE = "done"
    RETRY = "retry"
    DEAD = "dead"
    GONE = "gone"


Name = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Its name.")]
MaybeName = Annotated[str | None, typer.Argument(metavar="[ENDPOINT]", help="Only this one.")]
Url = Annotated[str, typer.Argument(metavar="URL", help="Where to deliver to.")]
Fields = Annotated[
    list[str] | None,
    typer.Argument(metavar="FIELD=VALUE...", help="Fields of the configuration; null: the default."),
]
Config = Annotated[
    str, typer.Option("--config", metavar="FILE", help="More fields, as JSON, from a file; - is stdin.")
]
Queue = Annotated[str | None, typer.Option("--queue", help="Whose messages; else of a queue of its name.")]
Secret = Annotated[
    str | None,
    typer.Option(
        "--secret", metavar="FILE", help="Take the secret from a file; - is stdin; else one is made."
    ),
]
Overlap = Annotated[
    timedelta | None,
    typer.Option("--overlap", parser=duration, metavar="DURATION", help="The old ones sign so long; 24 h."),
]
Reason = Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Why.")]
WithQueue = Annotated[bool, typer.Option("--with-queue", help="Its queue and the messages in it, too.")]
Window = Annotated[
    timedelta | None,
    typer.Option("--window", parser=duration, metavar="DURATION", help="So far back; else 15 minutes."),
]
Outcomes = Annotated[list[Outcome] | None, typer.Option("--outcome", help="Only these; may be repeated.")]
Message = Annotated[
    int | None,
    typer.Option("--message", parser=message_id, metavar="ID", help="Only those of this message."),
]


@contextmanager
def sealing(invocation: Invocation) -> Iterator[Holdfast]:
    """A client that finds the key beside the embedded server, too."""
    with invocation.client() as client:
        client.vault = Vault.found(key_folder(invocation.database_url))
        yield client


@command(app)
def create(
    invocation: Invocation,
    endpoint: Name,
    url: Url,
    assigned: Fields = None,
    config: Config = "",
    queue: Queue = None,
) -> None:
    """Deliver the messages of a queue to a URL; the queue is made if it is not there."""
    wanted = {"url": url} | fields(assigned, config)
    with sealing(invocation) as client:
        created = client.create_endpoint(endpoint, wanted, queue=queue)
    text = f"Created endpoint {endpoint}." if created else f"Endpoint {endpoint} was there already."
    invocation.output.document({"endpoint": endpoint, "created": created}, text)


@command(app, "set")
def set_fields(invocation: Invocation, endpoint: Name, assigned: Fields = None, config: Config = "") -> None:
    """Change fields of an endpoint; prints what is in force, without secrets."""
    wanted = fields(assigned, config)
    with sealing(invocation) as client:
        effective = client.configure_endpoint(endpoint, wanted)
    invocation.output.fields(effective)


@command(app, "list")
def list_endpoints(invocation: Invocation) -> None:
    """List all endpoints."""
    with invocation.client() as client:
        found = client.endpoints()
    invocation.output.records(found, COLUMNS, "There are no endpoints.")


@command(app)
def show(invocation: Invocation, endpoint: Name) -> None:
    """Show one endpoint: its configuration, without secrets, and how it does."""
    with invocation.client() as client:
        (health,) = client.endpoint_health(endpoint)
        info = client.endpoint_info(endpoint)
    invocation.output.fields({**(named(info) if info else {}), **named(health)})


@command(app)
def health(invocation: Invocation, endpoint: MaybeName = None, window: Window = None) -> None:
    """How endpoints do: breaker, what waits, success rate and latencies of the last minutes."""
    with invocation.client() as client:
        found = client.endpoint_health(endpoint, window=window)
    invocation.output.records(found, HEALTH, "There are no endpoints.")


@command(app)
def attempts(
    invocation: Invocation,
    endpoint: Name,
    outcome: Outcomes = None,
    message: Message = None,
    limit: Limit = 20,
) -> None:
    """List the last attempts to deliver to an endpoint, or those of one message."""
    wanted = [str(each) for each in outcome] if outcome else None
    with invocation.client() as client:
        if message is None:
            found = client.endpoint_attempts(endpoint, outcomes=wanted, limit=limit)
        else:
            (told,) = client.endpoint_health(endpoint)
            seen = client.attempts(told.queue, message, limit=limit)
            found = [each for each in seen if wanted is None or each.outcome in wanted]
    invocation.output.records(found, ATTEMPTS, "There was no such attempt, or it is forgotten.")


@command(app)
def events(invocation: Invocation, endpoint: Name, limit: Limit = 20) -> None:
    """List how the breaker moved, and when the endpoint was enabled or disabled."""
    with invocation.client() as client:
        found = client.endpoint_events(endpoint, limit)
    invocation.output.records(found, ("at", "event", "reason"), "Nothing has happened to it.")


@command(app)
def enable(invocation: Invocation, endpoint: Name) -> None:
    """Deliver to an endpoint again."""
    with invocation.client() as client:
        changed = client.enable_endpoint(endpoint)
    text = f"Enabled endpoint {endpoint}." if changed else f"Endpoint {endpoint} was enabled."
    invocation.output.document({"endpoint": endpoint, "changed": changed}, text)


@command(app)
def disable(invocation: Invocation, endpoint: Name, reason: Reason = None) -> None:
    """Deliver nothing more to an endpoint; its messages wait."""
    with invocation.client() as client:
        changed = client.disable_endpoint(endpoint, reason)
    text = f"Disabled endpoint {endpoint}." if changed else f"Endpoint {endpoint} was disabled."
    invocation.output.document({"endpoint": endpoint, "changed": changed}, text)


@command(app)
def reset(invocation: Invocation, endpoint: Name) -> None:
    """Close the breaker of an endpoint, and forget its failures."""
    with invocation.client() as client:
        changed = client.reset_breaker(endpoint)
    text = f"Closed the breaker of {endpoint}." if changed else f"The breaker of {endpoint} was closed."
    invocation.output.document({"endpoint": endpoint, "changed": changed}, text)


@command(app)
def rotate(invocation: Invocation, endpoint: Name, secret: Secret = None, overlap: Overlap = None) -> None:
    """Sign with another secret, and show it this once."""
    given = None if secret is None else content(secret).strip()
    with sealing(invocation) as client:
        rotated = client.rotate_secret(endpoint, given, overlap=overlap)
    document = {"endpoint": endpoint, "secret": rotated.secret, "until": rotated.until}
    invocation.output.document(document, rotated.secret)
    old = f" The one before signs too until {rotated.until}." if rotated.until else ""
    invocation.output.note(f"{endpoint} has another secret.{old} Keep the one above: it is shown this once.")


@command(app)
def drop(invocation: Invocation, endpoint: Name, with_queue: WithQueue = False, yes: Yes = False) -> None:
    """Remove an endpoint; its queue stays, with its messages, unless --with-queue."""
    what = f"{endpoint}, its queue and all messages in it" if with_queue else endpoint
    invocation.confirm(f"Delete endpoint {what}?", yes=yes)
    with invocation.client() as client:
        dropped = client.drop_endpoint(endpoint, with_queue=with_queue)
    text = f"Dropped endpoint {endpoint}." if dropped else f"There was no endpoint {endpoint}."
    invocation.output.document({"endpoint": endpoint, "dropped": dropped}, text)


def fields(assigned: list[str] | None, config: str) -> dict[str, Any]:
    """What is to be changed, of both sources; a name with a dot is a field of an object."""
    found: dict[str, Any] = {}
    for name, value in assignments(assigned or []).items():
        whole, dot, part = name.partition(".")
        if dot:
            found.setdefault(whole, {})[part] = value
        else:
            found[name] = value
    more = json_value(content(config)) if config else {}
    if not isinstance(more, dict):
        raise typer.BadParameter("a configuration is a JSON object")
    if twice := found.keys() & more.keys():
        raise typer.BadParameter(f"{', '.join(sorted(twice))}: in --config and as FIELD=VALUE; give it once")
    return found | more


def content(path: str) -> str:
    """The text of a file, or of stdin: there secrets are seen by nobody who lists processes."""
    if path == STDIN:
        return stdin_text()
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"can't read {path}: {error.strerror}") from error
