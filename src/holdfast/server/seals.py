"""Seals: messages of requests into envelopes, by the public key of their queue."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode

from msgspec import UNSET, Raw, structs

from holdfast.client import InvalidMessageError
from holdfast.client._rows import scalar
from holdfast.client._schema_rules import counted
from holdfast.client._seal_rules import placed
from holdfast.seals.content import Content, content, digest
from holdfast.seals.envelope import CONTENT_TYPE, is_envelope
from holdfast.seals.sealing import sealed
from holdfast.wire.requests import NewMessage

from .configs import PublicKey
from .engine import Engine

AT_ONCE = 20  # messages, before others have their turn
SECRET = b"select digest_key from holdfast.sealing(%s)"


class Seals:
    """Seals messages. What plaintexts are hashed with is looked up where it is needed, and kept nowhere."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def sealed(
        self, queue: str, key: PublicKey, messages: list[NewMessage], scope: str | None = None
    ) -> list[NewMessage]:
        """Messages as they are to be stored. scope: the idempotency key of all of them together."""
        secret = None
        if scope is not None or any(message.idempotency_key is not None for message in messages):
            found = await self._engine.fetch("send", SECRET, [queue], scalar(bytes))
            secret = found[0] if found else None
        done = []
        for nth, message in counted(messages):
            done.append(one(queue, key, message, secret, scope, nth))
            if len(done) % AT_ONCE == 0:
                await asyncio.sleep(0)
        return done


def one(
    queue: str, key: PublicKey, message: NewMessage, secret: bytes | None, scope: str | None, nth: int | None
) -> NewMessage:
    """One message, sealed; an envelope is passed on."""
    try:
        given = content_of(message)
        if given is None:
            return message
        known = message.idempotency_key if message.idempotency_key is not None else scope
        hashed = digest(secret, known, given) if secret is not None and known is not None else None
    except InvalidMessageError as error:
        raise placed(error, nth) from error
    body = b64encode(sealed(given, key.pem, queue, hashed)).decode("ascii")
    return structs.replace(message, payload=UNSET, body=body, content_type=CONTENT_TYPE)


def content_of(message: NewMessage) -> Content | None:
    """What is to be sealed; None: it is an envelope already."""
    payload = bytes(message.payload) if isinstance(message.payload, Raw) else None
    body = b64decode(message.body) if message.body is not None else None
    if payload is None and is_envelope(body):
        return None
    return content(payload, body, message.content_type)
