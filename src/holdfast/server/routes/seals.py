"""Seals: the public keys of queues, with which the server encrypts what it sends."""

from __future__ import annotations

from holdfast.server.endpoint import ADMIN, ANY, Book, Call
from holdfast.wire.requests import SetSealKey

book = Book("seals")


@book.verb(ADMIN)
async def set_seal_key(call: Call[SetSealKey]) -> object:
    """Have messages sealed with this public key from now on; answers with its id.

    The keys before it still count for whoever has sealed with one. The same key once more changes nothing.
    """
    id = await call.service.engine.set_seal_key(call.queue, call.asked.public_key)
    call.service.configs.changed(call.queue)
    return id


@book.verb(ANY)
async def seal_keys(call: Call[None]) -> object:
    """The public keys: the one in force, those before it, and those that were dropped."""
    return await call.service.engine.seal_keys(call.queue)


@book.verb(ADMIN)
async def drop_seal_key(call: Call[None]) -> object:
    """Take a public key away; without any, messages are stored as they come."""
    key_id = call.request.path_params["key_id"]
    dropped = await call.service.engine.drop_seal_key(call.queue, key_id)
    call.service.configs.changed(call.queue)
    return dropped
