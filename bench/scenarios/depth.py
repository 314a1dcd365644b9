"""Does the cost grow with what waits or is in flight? And what does it cost to ask how much that is?

One consumer claims and acks by the hundred, while a producer on another connection keeps the depth; only the
consumer is measured.
"""

from __future__ import annotations

from bench import work
from bench.arena import Arena
from bench.scenarios.case import Case, Course
from bench.scenarios.scale import Scale, short

BATCH = 100
HELD_LEASE_S = 3_600
ONLY_CPU = ("cpu_us",)  # the producer's work is in all other figures


def cases(scale: Scale) -> list[Case]:
    return [*_in_flight(scale), _shallow(scale), _deep(scale), _stats(scale)]


def _shallow(scale: Scale) -> Case:
    def ready(arena: Arena) -> Course:
        arena.preload(scale.shallow)
        return _steady(arena, scale)

    title = f"claim + ack ×100, {short(scale.shallow)} waiting"
    return Case("backlog-shallow", "backlog", title, ready, ONLY_CPU)


def _deep(scale: Scale) -> Case:
    return Case(
        "backlog-deep",
        "backlog",
        f"claim + ack ×100, {short(scale.deep)} waiting",
        lambda arena: _steady(arena, scale),
        ONLY_CPU,
        prepare=lambda arena: arena.preload(scale.deep),
        lasting="deep",
    )


def _in_flight(scale: Scale) -> list[Case]:
    return [_held("in-flight-none", 0, scale), _held("in-flight-many", scale.in_flight, scale)]


def _held(name: str, held: int, scale: Scale) -> Case:
    def ready(arena: Arena) -> Course:
        arena.preload(held + scale.shallow)
        holder, size = arena.session(), arena.contender.holding_size
        for _ in range(held // size):
            holder.hold(size, HELD_LEASE_S)
        arena.admin.run("analyze")
        return _steady(arena, scale)

    return Case(name, "in flight", f"claim + ack ×100, {short(held)} in flight", ready, ONLY_CPU)


def _steady(arena: Arena, scale: Scale) -> Course:
    """Both sides of a comparison take messages from before the last checkpoint, as a backlog's are."""
    crew = arena.crew(1, work.refilled(work.claim_ack(BATCH), arena.session, batch=BATCH))
    arena.checkpoint()
    return Course(crew, scale.shallow // 2)


def _stats(scale: Scale) -> Case:
    return Case(
        "stats",
        "stats",
        f"figures of a queue with {short(scale.deep)} waiting, per call",
        lambda arena: Course(arena.crew(1, work.stats, warm_calls=2), scale.stats_calls),
        ("cpu_us", "per_second"),
        prepare=lambda arena: arena.preload(scale.deep),
        lasting="deep",
    )
