"""Sending: requests that come together go to the database in one call, and are committed together.

Each is held against the queue's schema before, by itself: what does not fit meets no others' messages. And
each is sealed before, where the queue has a key: nothing else goes to the database.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec
from msgspec import Raw
from opentelemetry.trace import Span

from holdfast.client import InvalidMessageError, UnsealedMessageError
from holdfast.client._queue_schema import InForce
from holdfast.client._rows import scalar
from holdfast.client._schema_rules import counted
from holdfast.schemas.judge import misfit, mismatch
from holdfast.wire.requests import NewMessage

from .coalesce import Coalescer
from .configs import Configs
from .engine import Engine
from .haste import IN_HASTE, patience
from .meters import Meters
from .seals import Seals
from .traces import Traces

MOST = 1_000  # messages in one call, unless one request alone has more
WIDTH = 2  # calls of a queue at once: one may write while the other waits for the disk

SEND_BATCH = b"select holdfast.send_batch(queue => %s, payloads => %s::text[]::jsonb[], alone => true)"
SEND_ONCE = (
    b"select o.ids, o.deduped from holdfast.send_once(queue => %s, messages => %s::text::jsonb, "
    b'idempotency_key => %s, "window" => %s, alone => true, ignoring => %s) o'
)
SEND_MANY = b"select holdfast.send_many(queue => %s, messages => %s::text::jsonb, alone => true)"
CHECK = b"select array[jsonb_array_length(%s::text::jsonb)]"
# Whoever has sent with one of these keys, and not committed yet, is waited for.
SEND_IN_HASTE = IN_HASTE + SEND_MANY + b" from haste"
ONCE_IN_HASTE = IN_HASTE + SEND_ONCE.replace(b"from holdfast", b"from haste, lateral holdfast").replace(
    b"queue => %s", b"queue => case when haste.is_set then %s::text end"
)


encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Once:
    """What is to be sent unless it was sent before, and for how long that counts."""

    messages: list[NewMessage]
    window: timedelta
    ignoring: tuple[str, ...] = ()  # fields in which what comes again may differ


class Sends:
    """Sends the messages of many requests, each all or none."""

    def __init__(self, engine: Engine, configs: Configs, meters: Meters, traces: Traces) -> None:
        self._engine = engine
        self._configs = configs
        self._seals = Seals(engine)
        self._meters = meters
        self._traces = traces
        self._coalescer: Coalescer[tuple[str, bool], list[NewMessage], list[int]] = Coalescer(
            self._send,
            weigh=len,
            most=MOST,
            width=WIDTH,
            measure=meters.batches("send"),
            told=self._told,
            patient=self._send_patiently,
        )
        # One after the other under each key: whoever is sent the same waits here, and not in the database.
        self._once: Coalescer[tuple[str, str], Once, tuple[list[int], bool]] = Coalescer(
            self._send_once, weigh=lambda _: 1, most=1, patient=self._send_once_patiently
        )

    async def send(self, queue: str, messages: list[NewMessage]) -> list[int]:
        """Send the messages of one request; returns their ids."""
        try:
            ids = await self._sent(queue, await self._prepared(queue, messages))
        except UnsealedMessageError:
            # It has got a key, or another, since it was looked at.
            self._configs.changed(queue)
            ids = await self._sent(queue, await self._prepared(queue, messages))
        self._meters.messages("sent", queue, len(ids))
        return ids

    async def _sent(self, queue: str, messages: list[NewMessage]) -> list[int]:
        try:
            return await self._coalescer.submit((queue, all(map(is_plain, messages))), messages)
        except InvalidMessageError as error:
            if error.index is not None or len(messages) == 1:
                raise
            raise await self._placed(error, messages) from error

    async def send_once(
        self,
        queue: str,
        messages: list[NewMessage],
        key: str,
        window: timedelta,
        *,
        ignoring: tuple[str, ...] = (),
    ) -> tuple[list[int], bool]:
        """Send the messages of one request unless they were sent under this key before; returns their ids,
        and whether they were. ignoring: fields in which they may differ."""
        prepared = await self._prepared(queue, messages, key)
        try:
            ids, deduped = await self._once.submit((queue, key), Once(prepared, window, ignoring))
        except UnsealedMessageError:
            self._configs.changed(queue)
            prepared = await self._prepared(queue, messages, key)
            ids, deduped = await self._once.submit((queue, key), Once(prepared, window, ignoring))
        if not deduped:
            self._meters.messages("sent", queue, len(ids))
        return ids, deduped

    async def _send_once(
        self, key: tuple[str, str], requests: Sequence[Once]
    ) -> list[tuple[list[int], bool]]:
        return await self._call_once(ONCE_IN_HASTE, [patience(requests)], key, requests)

    async def _send_once_patiently(
        self, key: tuple[str, str], requests: Sequence[Once]
    ) -> list[tuple[list[int], bool]]:
        return await self._call_once(SEND_ONCE, [], key, requests)

    async def _call_once(
        self, statement: bytes, leading: list[Any], key: tuple[str, str], requests: Sequence[Once]
    ) -> list[tuple[list[int], bool]]:
        queue, name = key
        (asked,) = requests
        given = [queue, encode(asked.messages).decode(), name, asked.window, list(asked.ignoring)]
        return await self._engine.fetch("send_once", statement, [*leading, *given], as_tuples)

    async def _prepared(
        self, queue: str, messages: list[NewMessage], key: str | None = None
    ) -> list[NewMessage]:
        """Messages as they may be stored: they fit, and are sealed if need be. key: of all of them."""
        settings = await self._configs.of(queue)
        if settings.schema is not None:
            refuse_misfits(settings.schema, messages, hidden=settings.seal is not None)
        if settings.seal is None:
            return messages
        return await self._seals.sealed(queue, settings.seal, messages, key)

    def _told(
        self, key: tuple[str, bool], began: int, spans: Sequence[Span], error: BaseException | None
    ) -> None:
        queue, plain = key
        self._traces.call("send_batch" if plain else "send_many", queue, began, spans, error)

    async def _send(self, key: tuple[str, bool], requests: Sequence[list[NewMessage]]) -> list[list[int]]:
        queue, plain = key
        ids = await (self._send_plain if plain else self._send_any)(queue, requests)
        return split(ids, [len(messages) for messages in requests])

    async def _send_patiently(
        self, key: tuple[str, bool], requests: Sequence[list[NewMessage]]
    ) -> list[list[int]]:
        (messages,) = requests
        return [await self._call("send_many", SEND_MANY, [key[0], encode(messages).decode()])]

    async def _placed(self, error: InvalidMessageError, messages: list[NewMessage]) -> InvalidMessageError:
        """An error of JSON that the database does not take: it does not say in which message."""
        first, beyond = 0, len(messages)
        while beyond - first > 1:
            middle = (first + beyond) // 2
            if await self._is_stored(messages[first:middle]):
                first = middle
            else:
                beyond = middle
        detail = f"messages[{first}]: {error.detail or ''}"
        return InvalidMessageError(error.code, error.message, detail, error.hint)

    async def _is_stored(self, messages: list[NewMessage]) -> bool:
        """Whether the database takes messages as JSON."""
        try:
            await self._call("send_many", CHECK, [encode(messages).decode()])
        except InvalidMessageError:
            return False
        return True

    async def _send_plain(self, queue: str, requests: Sequence[list[NewMessage]]) -> list[int]:
        payloads = [str(cast(Raw, message.payload), "utf-8") for messages in requests for message in messages]
        return await self._call("send_batch", SEND_BATCH, [queue, payloads])

    async def _send_any(self, queue: str, requests: Sequence[list[NewMessage]]) -> list[int]:
        together = [message for messages in requests for message in messages]
        given = [patience(requests), queue, encode(together).decode()]
        return await self._call("send_many", SEND_IN_HASTE, given)

    async def _call(self, verb: str, statement: bytes, parameters: list[Any]) -> list[int]:
        rows = await self._engine.fetch(verb, statement, parameters, scalar(list))
        return rows[0]


def as_tuples(cursor: Any) -> Any:
    """A row factory that leaves rows as they are."""
    return tuple


def refuse_misfits(schema: InForce, messages: list[NewMessage], *, hidden: bool) -> None:
    """Refuse a message that does not fit."""
    for nth, message in counted(messages):
        payload = bytes(message.payload) if isinstance(message.payload, Raw) else None
        found = misfit(schema, payload, with_body=message.body is not None)
        if found is not None:
            raise mismatch(schema, found, nth, hidden=hidden)


def is_plain(message: NewMessage) -> bool:
    """Whether a message is a payload and nothing else."""
    return bool(message.payload) and options(message) == NO_OPTIONS


def options(message: NewMessage) -> tuple[Any, ...]:
    """What a message says beside its payload."""
    return msgspec.structs.astuple(message)[1:]


NO_OPTIONS = options(NewMessage())


def split(ids: list[int], sizes: Sequence[int]) -> list[list[int]]:
    """Each request's share of the ids."""
    shares, place = [], 0
    for size in sizes:
        shares.append(ids[place : place + size])
        place += size
    return shares
