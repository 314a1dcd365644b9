"""Inbound hooks: who may post to which queue, and how that goes.

Hooks are the business of an admin of all queues: whoever has a slug needs no key.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw

from holdfast.client import HookNotFoundError
from holdfast.server.endpoint import ADMIN, READ, Book, Call
from holdfast.server.reading import parse_body
from holdfast.wire import requests as wire
from holdfast.wire.requests import Config

from ._values import number_or_none, span

book = Book("hooks")


def named(call: Call[Any]) -> str:
    """The hook in the path."""
    return call.part("hook")


@book.verb(ADMIN)
async def create_hook(call: Call[wire.CreateHook]) -> object:
    """Make a hook, and its queue if it is not there; the slug is in this answer, and told never again."""
    asked = call.asked
    config = parse_body(bytes(asked.config), dict[str, Any]) if isinstance(asked.config, Raw) else None
    made = await call.service.engine.create_hook(asked.hook, config, queue=asked.queue, slug=asked.slug)
    call.service.hooks.forget()
    call.service.configs.changed(made.queue)
    return made


@book.verb(ADMIN)
async def configure_hook(call: Call[Config]) -> object:
    """Change fields of a hook (null: back to the default); answers with what is in force."""
    change = parse_body(bytes(call.asked), dict[str, Any])
    effective = await call.service.engine.configure_hook(named(call), change)
    call.service.hooks.forget()
    call.service.configs.changed("")
    return effective


@book.verb(ADMIN)
async def rotate_hook(call: Call[wire.RotateHook]) -> object:
    """Give a hook another slug, another signing secret, or both; this answer alone tells them.

    true makes one, text is taken. What was before counts too, for a while.
    """
    asked = call.asked
    made = await call.service.engine.rotate_hook(
        named(call), slug=asked.slug, secret=asked.secret, overlap=span(asked.overlap, "overlap")
    )
    call.service.hooks.forget()
    return made


@book.verb(ADMIN)
async def drop_hook(call: Call[wire.DropHook]) -> object:
    """Remove a hook; its queue stays with its messages, unless with_queue."""
    dropped = await call.service.engine.drop_hook(named(call), with_queue=call.asked.with_queue)
    call.service.hooks.forget()
    call.service.configs.changed("")
    return dropped


@book.verb(READ)
async def hooks(call: Call[None]) -> object:
    """All hooks, without their slugs and secrets."""
    return await call.service.engine.hooks()


@book.verb(READ)
async def hook_info(call: Call[None]) -> object:
    """A hook, and what is in force, without its slugs and secrets."""
    found = await call.service.engine.hook_info(named(call))
    if found is None:
        raise HookNotFoundError(
            "QH880",
            f'hook "{named(call)}" does not exist',
            "Hooks are made explicitly.",
            "POST /v1/hooks makes one.",
        )
    return found


@book.verb(READ)
async def hook_calls(call: Call[wire.HookCalls]) -> object:
    """The last calls of a hook, and what became of them; the last first."""
    asked = call.asked
    before = number_or_none(asked.before, "before")
    return await call.service.engine.hook_calls(named(call), asked.limit, before=before)
