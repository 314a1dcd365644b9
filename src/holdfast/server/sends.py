"""Sending: requests that come together go to the database in one call, and are committed together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import msgspec
from msgspec import Raw
from opentelemetry.trace import Span

from holdfast.client._rows import scalar
from holdfast.wire.requests import NewMessage

from .coalesce import Coalescer
from .engine import Engine
from .meters import Meters
from .traces import Traces

MOST = 1_000  # messages in one call, unless one request alone has more
WIDTH = 2  # calls of a queue at once: one may write while the other waits for the disk

SEND_BATCH = b"select holdfast.send_batch(queue => %s, payloads => %s::text[]::jsonb[], alone => true)"
SEND_ONCE = (
    b"select o.ids, o.deduped from (select %s::text) q(name), lateral holdfast.send_once("
    b"queue => q.name, messages => %s::text::jsonb, "
    b'idempotency_key => %s, "window" => %s, alone => true) o'
)
SEND_MANY = b"select holdfast.send_many(queue => %s, messages => %s::text::jsonb, alone => true)"
# Whoever has sent with one of these keys, and not committed yet, is waited for: not for long, since others
# wait in the same call, or behind it.
IN_HASTE = (
    b"with haste as materialized (select set_config('lock_timeout', %s, true)) " + SEND_MANY + b" from haste"
)
# The name of the queue comes by way of the setting, so that this is made first.
ONCE_IN_HASTE = SEND_ONCE.replace(
    b"(select %s::text) q(name)",
    b"(select case when set_config('lock_timeout', %s, true) is not null then %s::text end offset 0) q(name)",
)
HASTE, GREATER_HASTE = "200ms", "50ms"  # of several requests, of one


encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Once:
    """What is to be sent unless it was sent before, and for how long that counts."""

    messages: list[NewMessage]
    window: timedelta


class Sends:
    """Sends the messages of many requests, each all or none."""

    def __init__(self, engine: Engine, meters: Meters, traces: Traces) -> None:
        self._engine = engine
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
        ids = await self._coalescer.submit((queue, all(map(is_plain, messages))), messages)
        self._meters.messages("sent", queue, len(ids))
        return ids

    async def send_once(
        self, queue: str, messages: list[NewMessage], key: str, window: timedelta
    ) -> tuple[list[int], bool]:
        """Send the messages of one request unless they were sent under this key before; returns their ids,
        and whether they were."""
        ids, deduped = await self._once.submit((queue, key), Once(messages, window))
        if not deduped:
            self._meters.messages("sent", queue, len(ids))
        return ids, deduped

    async def _send_once(
        self, key: tuple[str, str], requests: Sequence[Once]
    ) -> list[tuple[list[int], bool]]:
        return await self._call_once(ONCE_IN_HASTE, [GREATER_HASTE], key, requests)

    async def _send_once_patiently(
        self, key: tuple[str, str], requests: Sequence[Once]
    ) -> list[tuple[list[int], bool]]:
        return await self._call_once(SEND_ONCE, [], key, requests)

    async def _call_once(
        self, statement: bytes, first: list[Any], key: tuple[str, str], requests: Sequence[Once]
    ) -> list[tuple[list[int], bool]]:
        queue, name = key
        (asked,) = requests
        parameters = [*first, queue, encode(asked.messages).decode(), name, asked.window]
        return await self._engine.fetch("send_once", statement, parameters, as_tuples)

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

    async def _send_plain(self, queue: str, requests: Sequence[list[NewMessage]]) -> list[int]:
        payloads = [str(cast(Raw, message.payload), "utf-8") for messages in requests for message in messages]
        return await self._call("send_batch", SEND_BATCH, [queue, payloads])

    async def _send_any(self, queue: str, requests: Sequence[list[NewMessage]]) -> list[int]:
        together = [message for messages in requests for message in messages]
        haste = GREATER_HASTE if len(requests) == 1 else HASTE
        return await self._call("send_many", IN_HASTE, [haste, queue, encode(together).decode()])

    async def _call(self, verb: str, statement: bytes, parameters: list[Any]) -> list[int]:
        rows = await self._engine.fetch(verb, statement, parameters, scalar(list))
        return rows[0]


def as_tuples(cursor: Any) -> Any:
    """A row factory that leaves rows as they are."""
    return tuple


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
