"""holdfast queue: make, change, look at and drop queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from holdfast.client import Holdfast

from ._command import Invocation, command
from ._config import arranged, show_config
from ._help import Group
from ._options import Queue, Yes
from ._output import named
from ._values import assignments, json_value

app = typer.Typer(cls=Group, help="Make, change, look at and drop queues.", no_args_is_help=True)

Assignments = Annotated[
    list[str],
    typer.Argument(metavar="FIELD=VALUE...", help="Fields of the configuration; null: the default."),
]


@command(app)
def create(
    invocation: Invocation,
    queue: Queue,
    assigned: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the configuration.")
    ] = None,
    config: Annotated[str, typer.Option("--config", metavar="JSON", help="The same, as JSON.")] = "{}",
) -> None:
    """Make a queue. It is no error if it is there with the same configuration."""
    wanted, more = json_object(config), assignments(assigned or [])
    if twice := wanted.keys() & more.keys():
        raise typer.BadParameter(f"{', '.join(sorted(twice))}: in --config and as FIELD=VALUE; give it once")
    wanted |= more
    with invocation.client() as client:
        created = client.create_queue(queue, wanted)
    text = f"Created queue {queue}." if created else f"Queue {queue} was there already."
    invocation.output.document({"queue": queue, "created": created}, text)


@command(app, "list")
def list_queues(invocation: Invocation) -> None:
    """List all queues and logs."""
    with invocation.client() as client:
        found = [{**named(info), "kind": info.effective["kind"]} for info in client.queues()]
    columns = ("queue", "kind", "paused", "created_at", "config")
    invocation.output.records(found, columns, "There are no queues.")


@command(app)
def show(invocation: Invocation, queue: Queue) -> None:
    """Show one queue: its configuration and its figures."""
    with invocation.client() as client:
        stats = client.queue_stats(queue)
        info = find(client, queue)
    invocation.output.fields({**info, **named(stats)})


@command(app, "set")
def set_fields(invocation: Invocation, queue: Queue, assigned: Assignments) -> None:
    """Change fields of a queue's configuration; prints what is in force."""
    wanted = assignments(assigned)
    with invocation.client() as client:
        effective = client.configure_queue(queue, wanted)
    show_config(invocation, effective)


@command(app)
def defaults(
    invocation: Invocation,
    assigned: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields to change.")
    ] = None,
) -> None:
    """Show or change what counts for every queue that does not say otherwise."""
    wanted = assignments(assigned or [])
    with invocation.client() as client:
        effective = client.configure_defaults(wanted)
    show_config(invocation, effective)


@command(app)
def pause(invocation: Invocation, queue: Queue) -> None:
    """Hand out nothing more until it is resumed; sending goes on."""
    with invocation.client() as client:
        changed = client.pause_queue(queue)
    text = f"Paused queue {queue}." if changed else f"Queue {queue} was paused already."
    invocation.output.document({"queue": queue, "changed": changed}, text)


@command(app)
def resume(invocation: Invocation, queue: Queue) -> None:
    """Hand out messages again."""
    with invocation.client() as client:
        changed = client.resume_queue(queue)
    text = f"Resumed queue {queue}." if changed else f"Queue {queue} was not paused."
    invocation.output.document({"queue": queue, "changed": changed}, text)


@command(app)
def drop(
    invocation: Invocation,
    queue: Queue,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if it has no messages.")] = False,
    yes: Yes = False,
) -> None:
    """Delete a queue and every message in it."""
    what = f"queue {queue} if it is empty" if if_empty else f"queue {queue} and all its messages"
    invocation.confirm(f"Delete {what}?", yes=yes)
    with invocation.client() as client:
        dropped = client.drop_queue(queue, if_empty=if_empty)
    text = f"Dropped queue {queue}." if dropped else f"There was no queue {queue}."
    invocation.output.document({"queue": queue, "dropped": dropped}, text)


def find(client: Holdfast, queue: str) -> Mapping[str, Any]:
    """What is configured for one queue."""
    found = next((named(info) for info in client.queues() if info.queue == queue), {})
    return {name: arranged(field) if isinstance(field, Mapping) else field for name, field in found.items()}


def json_object(text: str) -> dict[str, Any]:
    """A configuration as JSON."""
    value = json_value(text)
    if not isinstance(value, dict):
        raise typer.BadParameter("a configuration is a JSON object")
    return value
