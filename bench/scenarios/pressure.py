"""A long drain while someone's open transaction keeps PostgreSQL from cleaning up, and one while none does.

Two consumers claim and ack by twenties, each with a producer that keeps the backlog's depth; the figures are
the throughput of the first and of the last seconds. The transactions that disturb:
- a snapshot: REPEATABLE READ, has read, stays open (a dump, a report);
- an idle writer: has written to some other table and never commits;
- an idle sender: has sent a message to this very queue and never commits.
Beside the last two the producers also roll back a tenth on top of what they send, before and during the run:
missing ids whose owners are hard to tell from the idle one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench import payload, work
from bench.arena import Arena
from bench.crew import Crew, Work
from bench.sample import Sample
from bench.scenarios.case import LongCase
from bench.scenarios.scale import Scale
from bench.tally import NS_PER_US

CONSUMERS = 2
BATCH = 20
REFILL = 100
ROLLBACK_SHARE = 0.1
NACK_SHARE = 0.1
NACK_DELAY_S = 1.0

Disturb = Callable[[Arena], None]


def cases(scale: Scale) -> list[LongCase]:
    drain = work.claim_ack(BATCH)
    refusing = work.claim_nack(BATCH, nack_share=NACK_SHARE, delay_s=NACK_DELAY_S)
    return [
        _case("undisturbed", "drain that nothing disturbs", scale, _disturb_nothing, drain),
        _case("held-snapshot", "drain under a held snapshot", scale, _hold_snapshot, drain),
        _case("idle-writer", "drain beside an idle open writer", scale, _idle_writer, drain, ROLLBACK_SHARE),
        _case("idle-sender", "drain beside an idle open sender", scale, _idle_sender, drain, ROLLBACK_SHARE),
        _case("nacks-snapshot", "10 % nacked for 1 s, held snapshot", scale, _hold_snapshot, refusing),
    ]


def _case(
    name: str, title: str, scale: Scale, disturb: Disturb, task: Work, rollback_share: float = 0
) -> LongCase:
    def measure(arena: Arena) -> Sample:
        arena.preload(scale.pressure_backlog, task=work.send(REFILL, rollback_share=rollback_share))
        refilled = work.refilled(task, arena.session, batch=REFILL, rollback_share=rollback_share)
        disturb(arena)
        crew = arena.crew(CONSUMERS, refilled)
        return _windows(arena, crew, scale)

    return LongCase(name, "pressure", f"{title}, {scale.seconds:g} s", measure)


def _disturb_nothing(arena: Arena) -> None:
    """What the others are compared with: a long run has a first and a last window of its own."""


def _hold_snapshot(arena: Arena) -> None:
    link = arena.session().link
    link.run("begin isolation level repeatable read")
    link.run("select count(*) from pg_class")


def _idle_writer(arena: Arena) -> None:
    arena.admin.run("create table public.elsewhere (n int)")
    link = arena.session().link
    link.run("begin")
    link.run("insert into public.elsewhere values (1)")


def _idle_sender(arena: Arena) -> None:
    sender = arena.session()
    sender.link.run("begin")
    sender.send(payload.document(1))


def _windows(arena: Arena, crew: Crew, scale: Scale) -> Sample:
    crew.begin(None)
    begun = time.perf_counter()
    first_rate, first_cpu = _window(arena, crew, scale.window_s)
    _sleep_until(begun + scale.seconds - scale.window_s, crew)
    last_rate, last_cpu = _window(arena, crew, scale.window_s)
    crew.end()
    return Sample(
        first_per_second=first_rate, last_per_second=last_rate, first_cpu_us=first_cpu, last_cpu_us=last_cpu
    )


def _window(arena: Arena, crew: Crew, seconds: float) -> tuple[float, float]:
    """Messages per second and CPU µs per message of the consumers' backends over the coming seconds."""
    begun, messages, cpu = time.perf_counter(), crew.messages, arena.cpu.read(crew.pids)
    _sleep_until(begun + seconds, crew)
    passed, finished = time.perf_counter() - begun, max(1, crew.messages - messages)
    used = arena.cpu.read(crew.pids) - cpu
    return finished / passed, used.foreground / NS_PER_US / finished


def _sleep_until(moment: float, crew: Crew) -> None:
    while (left := moment - time.perf_counter()) > 0:
        time.sleep(min(0.2, left))
        crew.check()
