"""What order costs, and whether that grows with the length of a line.

The same drains as in flow.py, of messages that have their place in a line: many keys, one hot key with a
long and with a short line behind it, and a strict queue. pgmq has no such queue: beside it stands its plain
drain.
"""

from __future__ import annotations

from bench import work
from bench.arena import Arena
from bench.contenders.contender import QUEUE
from bench.scenarios.case import Case, Course
from bench.scenarios.scale import Scale, short

BATCH = 100
KEYS = 1_000
CHUNK = 10_000

ORDERED = f"select holdfast.configure_queue('{QUEUE}', '{{\"ordering\": \"%s\"}}')"
SEND = (
    f"insert into holdfast.inbox (queue, payload, ordering_key) select '{QUEUE}',"
    " jsonb_build_object('n', n, 'filler', repeat('x', 160)), %s from generate_series(1, %d) n"
)


def cases(scale: Scale) -> list[Case]:
    many, hot = min(200_000, scale.deep), min(500_000, scale.deep)
    keys = f"claim + ack ×100, 1 k keys, {short(many)} waiting"
    return [
        _drain("order-keys", keys, "key", KEYS, many, BATCH, scale),
        _drain("order-hot-short", "claim + ack ×1, one key, 10 k waiting", "key", 1, 10_000, 1, scale),
        _drain("order-hot", f"claim + ack ×1, one key, {short(hot)} waiting", "key", 1, hot, 1, scale),
        _drain("order-strict", f"claim + ack ×1, strict, {short(many)} waiting", "strict", 0, many, 1, scale),
    ]


def _drain(name: str, title: str, ordering: str, keys: int, waiting: int, size: int, scale: Scale) -> Case:
    def ready(arena: Arena) -> Course:
        if arena.contender.name == "Holdfast":
            _line_up(arena, ordering, keys, waiting)
        else:
            arena.preload(waiting)
        quota = scale.singles if size == 1 else scale.batches * size // 4
        return Course(arena.crew(1, work.claim_ack(size)), quota)

    return Case(name, "order", title, ready)


def _line_up(arena: Arena, ordering: str, keys: int, waiting: int) -> None:
    """Send a backlog in lines."""
    key = f"'k' || n % {keys}" if keys else "null"
    arena.admin.run(ORDERED % ordering)
    for _ in range(waiting // CHUNK):
        arena.admin.run(SEND % (key, CHUNK))
    arena.admin.run("analyze")
