"""Requests that come together. Claims pinned here:

1. Who comes alone waits for nobody; what comes while a call is on its way goes into the next one, together.
2. Of sends and settlements that share a call, one that is refused fails by itself.
3. A `claim_window` gathers claims and divides what there is by what each takes, claims that wait and streams
   among them; one that is refused leaves the others their shares.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from msgspec import Raw

from holdfast import Holdfast
from holdfast.client import HoldfastError
from holdfast.server.coalesce import Coalescer
from holdfast.server.service import Service
from holdfast.wire.requests import NewMessage
from tests.fix_http import Caller
from tests.http.conftest import OpenService
from tests.http.streams import Stream
from tests.waiting import eventually

WINDOW = "1500 ms"  # long enough for ten requests to come, on a machine that has other things to do


async def together(*requests: Coroutine[Any, Any, Any]) -> list[Any]:
    """What each of several requests is answered with that come in one moment: the code, if it is refused."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    return [answer.code if isinstance(answer, HoldfastError) else answer for answer in answers]


def calls(service: Service, kind: str) -> tuple[float | None, float | None]:
    """How many calls of the database there were, and how many requests they served."""
    name, value = "holdfast_coalesced_requests_", service.meters.registry.get_sample_value
    return value(name + "count", {"call": kind}), value(name + "sum", {"call": kind})


# --- 1. calls --------------------------------------------------------------------------------------


async def test_who_comes_alone_waits_for_nobody_and_who_comes_meanwhile_goes_together() -> None:
    calls: list[list[int]] = []
    gate = asyncio.Event()

    async def call(key: str, items: Sequence[int]) -> list[int]:
        calls.append(list(items))
        await gate.wait()
        return list(items)

    coalescer: Coalescer[str, int, int] = Coalescer(call, weigh=lambda _: 1, most=3)
    tasks = [asyncio.create_task(coalescer.submit("orders", 0))]
    for _ in range(3):  # turns of the loop, and no time
        await asyncio.sleep(0)
    assert calls == [[0]]

    tasks += [asyncio.create_task(coalescer.submit("orders", number)) for number in range(1, 6)]
    await asyncio.sleep(0)
    gate.set()

    assert await asyncio.gather(*tasks) == list(range(6))
    assert calls == [[0], [1, 2, 3], [4, 5]]


# --- 2. one that is refused ------------------------------------------------------------------------


async def test_a_send_that_is_refused_fails_none_of_those_beside_it(
    open_service: OpenService, engine: Holdfast
) -> None:
    engine.create_queue("orders")
    engine.send("orders", "first", idempotency_key="taken")
    service = await open_service()
    await service.configs.of("orders")  # all ask for it, and none has to wait
    keys = ["one", "two", "taken", "three"]
    messages = [NewMessage(payload=Raw(b"%d" % nth), idempotency_key=key) for nth, key in enumerate(keys)]

    answers = await together(*(service.sends.send("orders", [message]) for message in messages))

    assert calls(service, "send") == (5, 8)  # all four together, then each by itself
    assert answers[2] == "QH222"
    sent = [engine.message("orders", answers[nth][0]) for nth in (0, 1, 3)]
    assert [entry and entry.payload for entry in sent] == [0, 1, 3]


async def test_a_settlement_that_is_refused_fails_none_of_those_beside_it(
    open_service: OpenService, engine: Holdfast
) -> None:
    engine.create_queue("orders")
    ids = engine.send_batch("orders", list(range(3)))
    tokens = [engine.claim("orders")[0].token for _ in ids]
    engine.release("orders", tokens[1])
    service = await open_service()

    answers = await together(
        *(service.settlements.settle("ack", "orders", token, None, strict=True) for token in tokens)
    )

    assert calls(service, "settle") == (4, 6)
    assert [answers[0].settled, answers[1], answers[2].settled] == [[ids[0]], "QH304", [ids[2]]]
    assert engine.queue_stats("orders").ready == 1


# --- 3. a window -----------------------------------------------------------------------------------


@pytest.fixture
def windowed(http: Caller, engine: Holdfast) -> Caller:
    """A server with a queue whose claims are gathered."""
    engine.create_queue("orders", {"claim_window": WINDOW})
    return http


def claimed(http: Caller, **options: Any) -> list[Any]:
    """What a claim gets that has a connection of its own."""
    with http.with_key(None) as caller:
        return [message["payload"] for message in caller.claim("orders", **options)]


@pytest.mark.parametrize(
    ("messages", "maxes", "shares"),
    [(50, [10] * 10, [5] * 10), (40, [10, 30, 40], [5, 15, 20])],
    ids=["ten of ten", "in proportion"],
)
def test_claims_that_come_together_are_answered_together(
    windowed: Caller, engine: Holdfast, messages: int, maxes: list[int], shares: list[int]
) -> None:
    engine.send_batch("orders", list(range(messages)))

    with ThreadPoolExecutor(len(maxes)) as pool:
        got = list(pool.map(lambda most: claimed(windowed, max=most), maxes))

    assert [len(share) for share in got] == shares
    assert sorted(payload for share in got for payload in share) == list(range(messages))


@pytest.mark.verify
def test_claims_that_wait_and_streams_share_evenly(windowed: Caller, engine: Holdfast) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(5) as pool:
        streams = [stack.enter_context(Stream(windowed, "orders", "max=10")) for _ in range(5)]
        polls = [pool.submit(claimed, windowed, max=10, wait=30) for _ in range(5)]
        waiting = "holdfast_claims_waiting 10.0"
        eventually(lambda: waiting in windowed.call("GET", "/metrics").text, what="all ten wait")

        engine.send_batch("orders", list(range(50)))

        got = [poll.result() for poll in polls]
        pushed = [[stream.message()["payload"] for _ in range(5)] for stream in streams]
        assert [len(share) for share in got] == [5] * 5
        assert sorted(payload for share in got + pushed for payload in share) == list(range(50))


async def test_a_claim_that_is_refused_leaves_the_others_their_messages(
    open_service: OpenService, engine: Holdfast
) -> None:
    engine.create_queue("orders", {"claim_window": WINDOW})
    engine.send_batch("orders", list(range(10)))
    service = await open_service()
    leases = [None, timedelta(days=2), None]

    answers = await together(*(service.desks.claim("orders", 5, lease=lease) for lease in leases))

    assert calls(service, "claim") == (4, 6)
    assert [len(answers[0]), answers[1], len(answers[2])] == [5, "QH302", 5]
