"""The plain flow of messages: send, claim and ack, one by one and by the hundred, and with refusals."""

from __future__ import annotations

from collections.abc import Callable

from bench import work
from bench.arena import Arena
from bench.crew import WARM_CALLS, Work
from bench.scenarios.case import LAPS, Case, Course, lap_quota
from bench.scenarios.scale import Scale

CONSUMERS = (1, 8, 64)
BATCH = 100
SHARDS = 8
NACK_SHARE = 0.1
NACK_DELAY_S = 0.1


def cases(scale: Scale) -> list[Case]:
    return [
        *_sends(scale),
        *_claims(scale),
        *_divided(scale),
        _aged(scale),
        *_nexts(scale),
        _nacks(scale),
    ]


def _sends(scale: Scale) -> list[Case]:
    return [
        _send(1, 1, scale.singles),
        _send(1, 8, scale.singles),
        _send(BATCH, 1, scale.batches * BATCH),
    ]


def _send(size: int, clients: int, quota: int) -> Case:
    def ready(arena: Arena) -> Course:
        return Course(arena.crew(clients, work.send(size)), quota)

    return Case(f"send-x{size}-{clients}", "send", f"send ×{size}, {_count(clients, 'producer')}", ready)


def _claims(scale: Scale) -> list[Case]:
    return [
        Case(
            f"claim-ack-x{size}-{consumers}",
            "claim",
            f"claim + ack ×{size}, {_count(consumers, 'consumer')}",
            _drain(work.claim_ack(size), size, consumers, scale),
        )
        for size in (1, BATCH)
        for consumers in CONSUMERS
    ]


def _divided(scale: Scale) -> list[Case]:
    """Many consumers that claim one by one share a lock; shards are the setting for that."""
    return [
        Case(
            f"claim-ack-x1-{consumers}-shards",
            "claim",
            f"claim + ack ×1, {consumers} consumers, {SHARDS} shards",
            _drain(work.claim_ack(1), 1, consumers, scale, shards=SHARDS),
        )
        for consumers in CONSUMERS[1:]
    ]


def _aged(scale: Scale) -> Case:
    """A checkpoint between send and claim: every page's first change is logged whole."""
    title = "claim + ack ×100, 1 consumer, after a checkpoint"
    ready = _drain(work.claim_ack(BATCH), BATCH, 1, scale, aged=True)
    return Case("claim-ack-x100-aged", "claim", title, ready)


def _nexts(scale: Scale) -> list[Case]:
    """pgmq has no such call: it deletes and reads, in two."""
    return [
        Case(
            f"next-x{size}-{consumers}",
            "next",
            f"next ×{size}, {_count(consumers, 'consumer')}",
            _drain(work.claim_next(size), size, consumers, scale),
        )
        for size, consumers in ((1, 1), (1, 8), (1, 64), (BATCH, 1))
    ]


def _nacks(scale: Scale) -> Case:
    refusing = work.claim_nack(BATCH, nack_share=NACK_SHARE, delay_s=NACK_DELAY_S)
    title = f"claim + ack ×100, 10 % nacked for {NACK_DELAY_S * 1000:.0f} ms, 1 consumer"
    return Case("nacks", "nack", title, _drain(refusing, BATCH, 1, scale))


def _drain(
    task: Work, size: int, consumers: int, scale: Scale, *, aged: bool = False, shards: int = 1
) -> Callable[[Arena], Course]:
    quota = _quota(scale, size, consumers)

    def ready(arena: Arena) -> Course:
        if shards > 1:
            # A session sends into one shard: one sender for each, and enough in every shard.
            arena.contender.divide(arena.url, shards)
            arena.preload(2 * _backlog(size, consumers, quota), clients=shards)
        else:
            arena.preload(_backlog(size, consumers, quota))
        if aged:
            arena.checkpoint()
        return Course(arena.crew(consumers, task), quota)

    return ready


def _quota(scale: Scale, size: int, consumers: int) -> int:
    """Messages per consumer."""
    if size == 1:
        return max(100, scale.singles // max(1, consumers // 4))
    return max(10, scale.batches // consumers) * size


def _backlog(size: int, consumers: int, quota: int) -> int:
    """Enough for the warm-up and the block, and some more, so that nobody meets the end of the queue."""
    calls_a_lap = -(-lap_quota(quota) // size)
    used = consumers * (LAPS * calls_a_lap + WARM_CALLS) * size
    return used + used // 4 + 2_000


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"
