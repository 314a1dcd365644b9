"""Settling: acks, nacks, releases and extensions that come together are one statement, and one commit.

Each is still one call of its verb, with its own fence. They are asked for in the order of their tokens, so
that two servers lock leases in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import itemgetter
from typing import Any

import msgspec

from holdfast.client import Settlement

from .coalesce import Coalescer
from .engine import Engine, took
from .haste import IN_HASTE, patience
from .meters import Meters
from .traces import Traces

MOST = 1_000  # settlements in one statement
EACH = (
    "select u.n, s.settled, s.skipped, extract(epoch from clock_timestamp() - statement_timestamp())::float8 "
    "from {haste}unnest(%s::bigint[], %s::text[], %s::boolean[]{types}) "
    "with ordinality u(token, ids, strict{names}, n), lateral holdfast.{verb}("
    "queue => %s, token => u.token, ids => u.ids::bigint[], strict => u.strict{is_set}{arguments}) s "
    "order by u.n"
)
# What a verb takes beside token, ids and strict.
OPTIONS = {
    "ack": {},
    "release": {},
    "nack": {"delay": "interval", "error": "text"},
    "reject": {"error": "text"},
    "extend": {"lease": "interval"},
}


class Asked(msgspec.Struct, gc=False):
    """What one request settles."""

    token: int
    ids: list[int] | None
    strict: bool
    options: tuple[timedelta | str | None, ...] = ()


def statement(verb: str, *, in_haste: bool = False) -> bytes:
    """The statement that calls a verb once for each of several tokens."""
    options = OPTIONS[verb]
    return EACH.format(
        verb=verb,
        haste="haste, " if in_haste else "",
        is_set=" and haste.is_set" if in_haste else "",
        types="".join(f", %s::{kind}[]" for kind in options.values()),
        names="".join(f", {name}" for name in options),
        arguments="".join(f", {name} => u.{name}" for name in options),
    ).encode()


STATEMENTS = {verb: statement(verb) for verb in OPTIONS}
# A token that somebody else is settling in an open transaction is waited for.
STATEMENTS_IN_HASTE = {verb: IN_HASTE + statement(verb, in_haste=True) for verb in OPTIONS}

Watch = Callable[[str, str, int, list[int]], None]


class Settled(msgspec.Struct, gc=False):
    """What one request has settled, and how long its commit took: until the answer was here, in seconds."""

    settlement: Settlement
    commit: float


class Settlements:
    """Settles what many requests ask for."""

    def __init__(self, engine: Engine, meters: Meters, traces: Traces, watch: Watch) -> None:
        """watch: is told of every settlement, by verb, queue, token and ids."""
        self._engine = engine
        self._meters = meters
        self._watch = watch
        self._coalescer: Coalescer[tuple[str, str], Asked, Settled] = Coalescer(
            self._settle,
            weigh=lambda _: 1,
            most=MOST,
            measure=meters.batches("settle"),
            told=lambda key, *rest: traces.call(*key, *rest),
            patient=self._settle_patiently,
        )

    async def settle(
        self,
        verb: str,
        queue: str,
        token: int,
        ids: list[int] | None,
        *,
        strict: bool = False,
        options: tuple[timedelta | str | None, ...] = (),
    ) -> Settlement:
        """Settle what one request names."""
        return (
            await self.settle_timed(verb, queue, token, ids, strict=strict, options=options)
        ).settlement

    async def settle_timed(
        self,
        verb: str,
        queue: str,
        token: int,
        ids: list[int] | None,
        *,
        strict: bool = False,
        options: tuple[timedelta | str | None, ...] = (),
    ) -> Settled:
        """Settle what one request names, and tell how long the commit took."""
        asked = Asked(token, ids, strict, options)
        done = await self._coalescer.submit((verb, queue), asked)
        settled = done.settlement.settled
        self._watch(verb, queue, token, settled)
        self._meters.settled(verb, queue, len(settled))
        return done

    async def _settle(self, key: tuple[str, str], requests: Sequence[Asked]) -> list[Settled]:
        return await self._ask(STATEMENTS_IN_HASTE[key[0]], [patience(requests)], key, requests)

    async def _settle_patiently(self, key: tuple[str, str], requests: Sequence[Asked]) -> list[Settled]:
        return await self._ask(STATEMENTS[key[0]], [], key, requests)

    async def _ask(
        self, statement: bytes, leading: list[Any], key: tuple[str, str], requests: Sequence[Asked]
    ) -> list[Settled]:
        verb, queue = key
        places = sorted(range(len(requests)), key=lambda place: requests[place].token)
        sorted_requests = [requests[place] for place in places]
        given = [*leading, *parameters(verb, queue, sorted_requests)]
        rows = await self._engine.fetch(verb, statement, given, as_tuples)
        # What is left when the last settlement was made is the commit, and the way back.
        commit = max(took.get() - max(row[3] for row in rows), 0.0)
        answers: list[Settled | None] = [None] * len(requests)
        for (_, settled, skipped, _), place in zip(rows, places, strict=True):
            answers[place] = Settled(Settlement(settled=settled, skipped=skipped), commit)
        return [answer for answer in answers if answer is not None]


def parameters(verb: str, queue: str, requests: Sequence[Asked]) -> list[Any]:
    """One list for each argument."""
    return [
        [asked.token for asked in requests],
        [as_array(asked.ids) for asked in requests],
        [asked.strict for asked in requests],
        *([asked.options[place] for asked in requests] for place in range(len(OPTIONS[verb]))),
        queue,
    ]


def as_array(ids: list[int] | None) -> str | None:
    """Ids as the text of an array: PostgreSQL has no arrays of arrays of different length."""
    return None if ids is None else "{" + ",".join(map(str, ids)) + "}"


def as_tuples(cursor: Any) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A row factory that leaves rows as they are."""
    return itemgetter(slice(None))
