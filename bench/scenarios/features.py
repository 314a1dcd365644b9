"""What each feature costs beside the plain case, and whether that grows with what waits.

The drains of flow.py, of messages that have their place in a line (many keys, one hot key, a strict queue),
behind a million that are due tomorrow, and spread over all priorities; and a log, appended to and read. pgmq
has a delay, and nothing of the rest: there its plain drain stands beside, and its send beside the append.
"""

from __future__ import annotations

from bench import work
from bench.arena import Arena
from bench.contenders.contender import FILLER, QUEUE
from bench.crew import Work
from bench.scenarios.case import Case, Course
from bench.scenarios.scale import Scale, short

BATCH = 100
KEYS = 1_000
PRIORITIES = 11
CHUNK = 10_000

CONFIGURE = f"select holdfast.configure_queue('{QUEUE}', '%s')"
LOG = "select holdfast.drop_queue('{0}'), holdfast.create_queue('{0}', '{{\"kind\": \"log\"}}')"
LINED_UP = f"insert into holdfast.inbox (queue, payload, ordering_key) select '{QUEUE}', {FILLER}, %s"
SPREAD = f"insert into holdfast.inbox (queue, payload, priority) select '{QUEUE}', {FILLER}, n % {PRIORITIES}"
PLAIN = f"insert into holdfast.inbox (queue, payload) select '{QUEUE}', {FILLER}"


def cases(scale: Scale) -> list[Case]:
    return [
        *_order(scale),
        _scheduled(scale),
        _priorities(scale),
        *_settings(scale),
        *_calls(scale),
        *_log(scale),
    ]


# --- order ---------------------------------------------------------------------------------------


def _order(scale: Scale) -> list[Case]:
    few, many, hot = scale.shallow, min(200_000, scale.deep), min(500_000, scale.deep)
    return [
        _line("order-keys-short", "key", KEYS, few, BATCH, scale),
        _line("order-keys", "key", KEYS, many, BATCH, scale),
        _line("order-hot-short", "key", 1, few, 1, scale),
        _line("order-hot", "key", 1, hot, 1, scale),
        _line("order-strict-short", "strict", 0, few, 1, scale),
        _line("order-strict", "strict", 0, many, 1, scale),
    ]


def _line(name: str, ordering: str, keys: int, waiting: int, size: int, scale: Scale) -> Case:
    kind = "strict" if ordering == "strict" else "one key" if keys == 1 else f"{short(keys)} keys"
    quota = min(waiting // 2, scale.singles if size == 1 else scale.batches * size // 4)

    def ready(arena: Arena) -> Course:
        if _is_ours(arena):
            arena.admin.run(CONFIGURE % f'{{"ordering": "{ordering}"}}')
            _fill(arena, LINED_UP % (f"'k' || n % {keys}" if keys else "null"), waiting)
        else:
            arena.preload(waiting)
        return Course(arena.crew(1, work.claim_ack(size)), quota)

    return Case(name, "order", f"claim + ack ×{size}, {kind}, {short(waiting)} waiting", ready)


# --- schedules and priorities --------------------------------------------------------------------


def _scheduled(scale: Scale) -> Case:
    def ready(arena: Arena) -> Course:
        arena.preload(scale.batches * BATCH * 3 // 2)
        return Course(arena.crew(1, work.claim_ack(BATCH)), scale.batches * BATCH)

    return Case(
        "scheduled",
        "schedule",
        f"claim + ack ×100, behind {short(scale.scheduled)} due tomorrow",
        ready,
        prepare=lambda arena: arena.contender.schedule(arena.url, scale.scheduled),
        lasting="scheduled",
    )


def _priorities(scale: Scale) -> Case:
    waiting = scale.batches * BATCH * 5 // 4

    def ready(arena: Arena) -> Course:
        if _is_ours(arena):
            _fill(arena, SPREAD, waiting)
        else:
            arena.preload(waiting)
        return Course(arena.crew(1, work.claim_ack(BATCH)), scale.batches * BATCH)

    return Case("priorities", "priority", f"claim + ack ×100, {PRIORITIES} priorities", ready)


# --- settings, and calls of their own ------------------------------------------------------------


def _settings(scale: Scale) -> list[Case]:
    keep, limit = '{"keep": ["done"]}', '{"throughput_limit": 1000000}'
    return [
        _configured("keep", "claim + ack ×100, done is kept", keep, BATCH, scale.batches * BATCH // 4),
        _configured("limited", "claim + ack ×1, with a throughput limit", limit, 1, scale.singles),
    ]


def _configured(name: str, title: str, config: str, size: int, quota: int) -> Case:
    def ready(arena: Arena) -> Course:
        if _is_ours(arena):
            arena.admin.run(CONFIGURE % config)
        arena.preload(quota * 3 // 2 + 2_000)
        return Course(arena.crew(1, work.claim_ack(size)), quota)

    return Case(name, "setting", title, ready)


def _calls(scale: Scale) -> list[Case]:
    """Beside sends with a key stands pgmq's send, beside the others its figures."""
    return [
        _call("send_key", "send ×1 with a key", work.send(1), scale.singles),
        _call("send_once", "send ×1 with an idempotency key", work.send(1), scale.singles),
        _call("take_rate", "take_rate, per call", work.stats, scale.singles),
        _call("why", "why of a queue with 10 k waiting, per call", work.stats, scale.stats_calls, 10_000),
    ]


def _call(name: str, title: str, beside: Work, calls: int, waiting: int = 1_000) -> Case:
    def ready(arena: Arena) -> Course:
        arena.admin.run("create sequence n")
        arena.preload(waiting)
        return Course(arena.crew(1, work.call(name) if _is_ours(arena) else beside), calls)

    return Case(name.replace("_", "-"), "call", title, ready)


# --- logs ----------------------------------------------------------------------------------------


def _log(scale: Scale) -> list[Case]:
    records = min(200_000, scale.deep)
    return [
        _logged("log-append", "append ×100 to a log", 0, work.send(BATCH), work.send(BATCH), scale),
        _logged(
            "log-read-short",
            f"read ×100 of a log with {short(scale.shallow)} records",
            scale.shallow,
            work.read(BATCH),
            work.claim_ack(BATCH),
            scale,
        ),
        _logged(
            "log-read",
            f"read ×100 of a log with {short(records)} records",
            records,
            work.read(BATCH),
            work.claim_ack(BATCH),
            scale,
        ),
    ]


def _logged(name: str, title: str, records: int, task: Work, beside: Work, scale: Scale) -> Case:
    quota = scale.batches * BATCH

    def ready(arena: Arena) -> Course:
        if _is_ours(arena):
            arena.admin.run(LOG.format(QUEUE))
            _fill(arena, PLAIN, records)
            return Course(arena.crew(1, task), quota)
        arena.preload(quota * 3 // 2)
        return Course(arena.crew(1, beside), quota)

    return Case(name, "log", title, ready)


def _is_ours(arena: Arena) -> bool:
    return arena.contender.name == "Holdfast"


def _fill(arena: Arena, insert: str, messages: int) -> None:
    """Send a backlog through the inbox, then let the planner know of it."""
    for _ in range(messages // CHUNK):
        arena.admin.run(f"{insert} from generate_series(1, {CHUNK}) n")
    arena.admin.run("analyze")
