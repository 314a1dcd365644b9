"""holdfast hook: make, change, look at and drop inbound hooks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Annotated, Any

import typer

from holdfast.client import Holdfast, HookNotFoundError
from holdfast.database import key_folder
from holdfast.vault import Vault

from ._command import Invocation, command
from ._help import Group
from ._options import LARGEST_COUNT, Yes
from ._output import named
from ._values import assignments, duration

COLUMNS = ("hook", "queue", "enabled", "created_at", "changed_at")
CALL_COLUMNS = ("at", "outcome", "status", "size", "code", "message_id", "id")
FROM_STDIN = "-"

app = typer.Typer(cls=Group, help="Inbound hooks: where others post messages to.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="HOOK", help="Its name.")]
Assigned = Annotated[
    list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the configuration.")
]
Queue = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Which queue it fills; else one of its name.")
]
GivenSlug = Annotated[
    bool, typer.Option("--slug-from-stdin", help="Read the slug from stdin, instead of making one.")
]
NewSlug = Annotated[bool, typer.Option("--slug", help="Make another slug.")]
NewSecret = Annotated[bool, typer.Option("--secret", help="Make another signing secret.")]
GivenSecret = Annotated[
    bool, typer.Option("--secret-from-stdin", help="Read the signing secret from stdin: the sender has it.")
]
Overlap = Annotated[
    timedelta | None,
    typer.Option("--overlap", parser=duration, metavar="DURATION", help="What was before counts so long."),
]
WithQueue = Annotated[bool, typer.Option("--with-queue", help="And its queue, with its messages.")]
Limit = Annotated[int, typer.Option("--limit", max=LARGEST_COUNT, help="At most so many.")]


@contextmanager
def client(invocation: Invocation) -> Iterator[Holdfast]:
    """A client that has the key for secrets."""
    with invocation.client() as found:
        found.vault = Vault.found(key_folder(invocation.database_url))
        yield found


@command(app)
def create(
    invocation: Invocation,
    hook: Name,
    assigned: Assigned = None,
    queue: Queue = None,
    slug_from_stdin: GivenSlug = False,
    secret_from_stdin: GivenSecret = False,
) -> None:
    """Make a hook, and show the path to post to this once."""
    config = assignments(assigned or [])
    slug = sys.stdin.readline().strip() if slug_from_stdin else None
    if secret_from_stdin:
        config["signing_secret"] = sys.stdin.readline().strip()
    with client(invocation) as found:
        made = found.create_hook(hook, config, queue=queue, slug=slug)
    invocation.output.document(made, made.path)
    invocation.output.note(
        f"Created hook {hook}, which fills the queue {made.queue}. Post to the path above at any server. "
        "Keep it: it is shown this once, and stored nowhere."
    )


@command(app, "list")
def list_hooks(invocation: Invocation) -> None:
    """List hooks, without their slugs and secrets."""
    with invocation.client() as found:
        invocation.output.records(found.hooks(), COLUMNS, "There are no hooks.")


@command(app)
def show(invocation: Invocation, hook: Name) -> None:
    """Show one hook: what is in force, how its slugs begin, and until when they count."""
    with invocation.client() as found:
        info = found.hook_info(hook)
    if info is None:
        raise HookNotFoundError(
            "QH880", f'hook "{hook}" does not exist', "Hooks are made explicitly.", "holdfast hook create."
        )
    invocation.output.fields(named(info))


@command(app, "set")
def set_fields(
    invocation: Invocation,
    hook: Name,
    assigned: Annotated[
        list[str], typer.Argument(metavar="FIELD=VALUE...", help="Fields to change; null: the default.")
    ],
) -> None:
    """Change fields of a hook's configuration; prints what is in force."""
    with client(invocation) as found:
        invocation.output.fields(found.configure_hook(hook, assignments(assigned)))


@command(app)
def rotate(
    invocation: Invocation,
    hook: Name,
    slug: NewSlug = False,
    secret: NewSecret = False,
    secret_from_stdin: GivenSecret = False,
    overlap: Overlap = None,
) -> None:
    """Give a hook another slug, another signing secret, or both, and show what was made this once."""
    given: str | bool = sys.stdin.readline().strip() if secret_from_stdin else secret
    with client(invocation) as found:
        made = found.rotate_hook(hook, slug=slug, secret=given, overlap=overlap)
    path = None if made.slug is None else f"/wh/{made.slug}"
    told = [each for each in (path, None if secret_from_stdin else made.secret) if each is not None]
    invocation.output.document({**named(made), "path": path}, "\n".join(told) or f"Rotated hook {hook}.")
    if told:
        invocation.output.note("Keep what is above: it is shown this once.")


@command(app)
def drop(invocation: Invocation, hook: Name, with_queue: WithQueue = False, yes: Yes = False) -> None:
    """Remove a hook; its queue stays with its messages, unless told otherwise."""
    what = f"hook {hook}, its queue and all messages in it" if with_queue else f"hook {hook}"
    invocation.confirm(f"Remove {what}?", yes=yes)
    with invocation.client() as found:
        dropped = found.drop_hook(hook, with_queue=with_queue)
    text = f"Removed hook {hook}." if dropped else f"There was no hook {hook}."
    result: dict[str, Any] = {"hook": hook, "dropped": dropped}
    invocation.output.document(result, text)


@command(app)
def calls(invocation: Invocation, hook: Name, limit: Limit = 100) -> None:
    """List the last calls of a hook, and what became of them."""
    with invocation.client() as found:
        invocation.output.records(found.hook_calls(hook, limit), CALL_COLUMNS, f"Nobody has called {hook}.")
