"""API keys: make, list, rotate, revoke.

All of it takes the scope admin for all queues, so that no key can make one that may do more than itself.
"""

from __future__ import annotations

from holdfast.server.endpoint import ADMIN, Book, Call
from holdfast.wire import requests as wire

from ._values import path_id, span

book = Book("keys")


@book.verb(ADMIN)
async def create_key(call: Call[wire.CreateKey]) -> object:
    """Make a key; its secret is in this answer, and told never again."""
    asked = call.asked
    made = await call.service.engine.create_key(
        asked.name,
        scopes=asked.scopes,
        queues=asked.queues,
        expires_in=span(asked.expires_in, "expires_in"),
        rate=asked.rate,
        burst=asked.burst,
    )
    call.service.ask_again()
    return made


@book.verb(ADMIN)
async def keys(call: Call[None]) -> object:
    """All keys, without their secrets; those that are revoked or have expired, too."""
    return await call.service.engine.keys()


@book.verb(ADMIN)
async def rotate_key(call: Call[wire.RotateKey]) -> object:
    """Give a key another secret, told this once; the old one stays valid for the grace, or ends at once."""
    made = await call.service.engine.rotate_key(path_id(call), grace=span(call.asked.grace, "grace"))
    call.service.ask_again()
    return made


@book.verb(ADMIN)
async def revoke_key(call: Call[None]) -> object:
    """Let a key be valid no more; false if it was revoked before."""
    revoked = await call.service.engine.revoke_key(path_id(call))
    call.service.ask_again()
    return revoked
