"""Plans: every statement of the engine reaches its big tables by an index.

1. No verb scans message, lease or gap sequentially: not when the planner believes them empty, not when it
   knows them full.
2. Every index scan on them has a condition on the index: none walks a whole index.
3. No range is read as a whole (by a bitmap) where a LIMIT is to stop it: the planner likes that when it
   believes the range to be short.
4. What claim, settle and sweep do is bounded in a lane: conditions on the lane and on the position.
5. No nested loop aggregates the same rows again and again.
6. This would be noticed: without any one of the indexes, some verb breaks one of these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine
from tests.engine.plans import Access, planned, recounts, statements
from tests.fix_database import fresh_database

Conn = psycopg.Connection[Any]
Work = Callable[[Engine], object]

BIG = {"message", "lease", "gap"}
SECOND = timedelta(seconds=1)

NEXT_ROWS: LiteralString = """
select id from holdfast.row_message
where queue = 'rows' and visible_at <= holdfast.now() and deliveries < max_deliveries
order by id limit 10 for update skip locked
"""

QUIET: LiteralString = """
alter table holdfast.message set (autovacuum_enabled = off);
alter table holdfast.lease set (autovacuum_enabled = off);
alter table holdfast.gap set (autovacuum_enabled = off);
analyze holdfast.message, holdfast.lease, holdfast.gap, holdfast.queue, holdfast.lane;
"""


def filled(engine: Engine) -> None:
    """Thousands of messages in every state, leases of every kind, and gaps."""
    engine.at(T0)
    engine.create("q")
    engine.create("mortal", max_deliveries=1)
    for queue in ("q", "mortal"):
        engine.send_numbers(1000, queue=queue, delay="1 s")
        engine.send_numbers(1000, queue=queue, delay="1 day")
        engine.conn.execute(
            "do $$ begin for i in 1 .. 50 loop perform holdfast.send('q'); rollback;"
            " perform holdfast.send('q'); commit; end loop; end $$"
        )
        engine.send_numbers(3000, queue=queue)
        engine.at(T0 + 2 * SECOND)
        engine.claim(100, queue=queue, lease="1 s")
        engine.conn.execute(
            "do $$ begin for i in 1 .. 300 loop perform holdfast.claim('q', 3, '10 min'); commit;"
            " end loop; end $$"
        )
    engine.settle("nack", engine.claim(100, queue="mortal")[0]["token"], queue="mortal")
    engine.create("kept", keep=["done", "expired"], expire_in_flight=True)
    engine.send_numbers(1000, queue="kept")
    engine.settle("ack", engine.claim(1000, queue="kept")[0]["token"], queue="kept")
    engine.send_numbers(1000, queue="kept", ttl="1 h")
    engine.claim(100, queue="kept", lease="3 h")
    engine.create("lines", ordering="key", on_dead="block")
    for n in range(40):
        engine.send_numbers(50, queue="lines", ordering_key=f"k{n}")
        engine.send(n, queue="lines", ordering_key="short-lived", ttl="3 s")
        engine.send(n, queue="lines", key=f"k{n}")
        engine.send(n, queue="lines", idempotency_key=f"i{n}")
    engine.create("strict", ordering="strict")
    engine.send_numbers(500, queue="strict")
    engine.create("rows", by_row=True, max_deliveries=2)
    engine.send_numbers(3000, queue="rows")
    engine.conn.execute(
        "do $$ begin for i in 1 .. 100 loop perform holdfast.claim('rows', 3, '10 min'); commit;"
        " end loop; end $$"
    )


def in_lines(engine: Engine) -> None:
    """Claim, settle, let expire, cancel and send back, where there is order."""
    for queue in ("lines", "strict"):
        held = engine.claim(50, queue=queue)
        for verb, row in zip(("ack", "nack", "release"), held, strict=False):
            engine.settle(verb, row["token"], [row["id"]], queue=queue)
        engine.claim(10, queue=queue)
        engine.at(T0 + 10 * SECOND)
        engine.claim(10, queue=queue)
        engine.at(T0 + timedelta(hours=1))
        engine.claim(100, queue=queue)


def sent_with_keys(engine: Engine) -> None:
    engine.send(1, queue="lines", ordering_key="k1")
    engine.send(1, queue="lines", key="k1")
    engine.send(2, queue="lines", idempotency_key="i2")


def blocked_line(engine: Engine) -> None:
    engine.send(1, queue="lines", ordering_key="dying", max_deliveries=1, priority=9)
    engine.send(2, queue="lines", ordering_key="dying", priority=9)
    engine.settle("nack", engine.claim_one(queue="lines")["token"], queue="lines")
    engine.claim(1, queue="lines")
    engine.rows("blocked_keys", queue="lines")
    engine.value("unblock", queue="lines", key="dying", how="skip")
    engine.rows("redrive", queue="lines")


def settle(verb: str) -> Work:
    """Settle a whole claim, then a part of one, then the rest, then nothing."""

    def work(engine: Engine) -> None:
        whole = engine.claim(5)
        engine.settle(verb, whole[0]["token"])
        part = engine.claim(5)
        engine.settle(verb, part[0]["token"], [row["id"] for row in part[:2]])
        engine.settle(verb, part[0]["token"])
        engine.settle(verb, 1, [part[0]["id"]])

    return work


def claim(engine: Engine) -> None:
    """Fresh and due messages, through gaps, with a sweep, until nothing is left but what is held."""
    for moment in range(3, 8):
        engine.at(T0 + moment * SECOND)
        for _ in range(3):
            engine.claim(500)
    while engine.claim(5000):
        pass
    engine.claim(1)


def cohorts(engine: Engine) -> None:
    """Fresh and due messages for several, through gaps, with a sweep, and in order."""
    for moment in range(3, 8):
        engine.at(T0 + moment * SECOND)
        for queue in ("q", "lines", "strict"):
            engine.rows("claim_cohort", queue=queue, maxes=[300, 200, 1])


def by_row(engine: Engine) -> None:
    """Take the next rows, and settle some; take what ran out; bury what did so for the last time."""
    for hour in range(3):
        engine.at(T0 + timedelta(hours=hour))
        engine.value("bury_spent")
        for _ in range(2):
            found = [row[0] for row in engine.conn.execute(NEXT_ROWS).fetchall()]
            taken = engine.rows("take", queue="rows", ids=found, lease="1 min")
            engine.settle("ack", taken[0]["token"], found[:3], queue="rows")


def drain_by_next(engine: Engine) -> None:
    token = engine.claim_one()["token"]
    for _ in range(3):
        token = engine.rows("next", queue="q", token=token, max=2)[0]["token"]


def sweep(engine: Engine) -> None:
    engine.at(T0 + timedelta(hours=1))
    engine.value("sweep", queue="q")


def looked_at(engine: Engine) -> None:
    held = engine.claim(3)
    engine.rows("held", queue="q", token=held[0]["token"])
    engine.rows("holders", queue="q", ids=[row["id"] for row in held])
    engine.rows("message", queue="q", id=held[0]["id"])


def found_by_root(engine: Engine) -> None:
    """Messages that live, that moved, that have ended, and none."""
    (dead,) = engine.rows("browse", queue="mortal", state="dead", limit=1)
    (ended,) = engine.rows("browse", queue="kept", state="archive", limit=1)
    roots = [engine.send(1), dead["origin"]["root_id"], ended["id"], 1]
    assert len(engine.rows("whereabouts", ids=roots)) == 3


def listed(engine: Engine) -> None:
    """Pages of all states, and of some, of what lives and what is kept."""
    for queue in ("q", "kept", "lines"):
        for states in (None, ["in_flight", "done", "failed"], ["ready", "scheduled"], ["blocked", "expired"]):
            engine.rows("contents", queue=queue, states=states, limit=5, offset=20)


def repaired(engine: Engine) -> None:
    """Mend all dead letters of a queue, and send some of them back."""
    stage = engine.value("open_stage", queue="mortal", write_id="w", run="a", part=0)
    engine.conn.execute(
        "insert into holdfast.staged (stage, n, payload, key) select %s, id, '1', id::text"
        " from holdfast.browse('mortal', 'dead')",
        [stage],
    )
    engine.rows("check_redrive", queue="mortal", stage=stage, columns=["payload", "key"])
    engine.rows("redrive_staged", queue="mortal", stage=stage, columns=["payload", "key"], limit=5)


def to_the_lake(engine: Engine) -> None:
    """Open a batch, read it page by page, close it, and look at what has left."""
    lake = engine.value("register_lake", place="x")
    (batch,) = engine.rows("open_batch", lake=lake, queue="kept", limit=500)
    rows = engine.rows("read_batch", batch=batch["id"], limit=100)
    place = {"after": rows[-1]["ended_at"], "after_id": rows[-1]["id"]}
    rows += engine.rows("read_batch", batch=batch["id"], limit=100, **place)
    found, checksums = zip(*((row["id"], row["checksum"]) for row in rows), strict=True)
    engine.value("close_batch", batch=batch["id"], ids=list(found), checksums=list(checksums))
    engine.rows("archived", since=T0)


def replayed(engine: Engine) -> None:
    """Send two staged messages of an archive once more."""
    stage = engine.value("open_stage", queue="q", write_id="w", run="a", part=0)
    engine.conn.execute(
        "insert into holdfast.staged (stage, n, payload, origin) select %s, n, '1', '{}'"
        " from generate_series(1, 2) n",
        [stage],
    )
    engine.row("replay_staged", queue="q", write_id="w", stages=[stage], messages=2)


def expire(engine: Engine) -> None:
    engine.at(T0 + timedelta(hours=2))
    engine.value("maintain")


def expire_one_queue(engine: Engine) -> None:
    engine.at(T0 + timedelta(hours=2))
    for queue in ("kept", "lines"):
        engine.row("expire", queue=queue)


HOT: dict[str, Work] = {
    "send": lambda engine: engine.send(1),
    "send_batch": lambda engine: engine.send_numbers(3),
    "send_many": lambda engine: engine.value("send_many", queue="q", messages=Jsonb([{}, {"priority": 3}])),
    "inbox": lambda engine: engine.conn.execute("insert into holdfast.inbox (queue) values ('q')"),
    "claim": claim,
    "claim_cohort": cohorts,
    "take, bury_spent": by_row,
    "next": drain_by_next,
    "ack": settle("ack"),
    "nack": settle("nack"),
    "reject": settle("reject"),
    "release": settle("release"),
    "extend": settle("extend"),
    "sweep": sweep,
    "order": in_lines,
    "keys": sent_with_keys,
    "held, holders, message": looked_at,
}

def sent_back_by_ids(engine: Engine) -> None:
    """Dead letters, by their ids: where they are to be found, and where nothing is buried any more."""
    letters = [row["id"] for row in engine.rows("browse", queue="mortal", state="dead", limit=4)]
    for ids in (letters[:2], letters[2:]):
        assert len(engine.rows("redrive", queue="mortal", ids=ids)) == 2
        engine.value("configure_queue", queue="mortal", config={"dead_letter": False})


OTHER: dict[str, Work] = {
    "queue_stats": lambda engine: engine.stats(),
    "max_depth": lambda engine: (
        engine.value("configure_queue", queue="q", config={"max_depth": 100_000}),
        engine.send(1),
    ),
    "unblock": blocked_line,
    "discard_key": lambda engine: engine.value("discard_key", queue="lines", key="k3"),
    "leases": lambda engine: engine.rows("leases", queue="q"),
    "browse": lambda engine: [
        engine.rows("browse", queue="q", state=s, limit=5) for s in ("ready", "scheduled", "in_flight")
    ],
    "browse dead": lambda engine: engine.rows("browse", queue="mortal", state="dead", limit=5),
    "whereabouts": found_by_root,
    "contents": listed,
    "outcomes": lambda engine: engine.rows("outcomes", queue="kept"),
    "redrive": lambda engine: engine.rows("redrive", queue="mortal", limit=5),
    "redrive by ids": sent_back_by_ids,
    "redrive_staged": repaired,
    "browse archive": lambda engine: engine.rows("browse", queue="kept", state="archive", limit=5),
    "replay": lambda engine: engine.rows("replay", queue="kept", limit=5),
    "lake": to_the_lake,
    "archive_days": lambda engine: engine.rows("archive_days"),
    "replay_staged": replayed,
    "purge": lambda engine: engine.row(
        "purge", queue="q", states=["ready", "scheduled", "blocked", "in_flight"], limit=5000
    ),
    "purge dead": lambda engine: engine.row("purge", queue="mortal", states=["dead"], limit=5),
    "purge archive": lambda engine: engine.row("purge", queue="kept", states=["archive"], limit=5),
    "forget": lambda engine: [
        engine.row("forget", queue="kept", outcomes=outcomes, before=T0 + timedelta(hours=1), limit=5)
        for outcomes in (None, ["done"], ["expired", "failed"])
    ],
    "expire": expire,
    "expire one queue": expire_one_queue,
    "discard": lambda engine: engine.value("discard", queue="q", ids=[1, 2, 3]),
    "maintain": lambda engine: engine.value("maintain", budget="10 s"),
    "why": lambda engine: engine.rows("why", queue="q"),
    "samples": lambda engine: (engine.value("maintain"), engine.rows("samples", queue="q")),
    "repair": lambda engine: engine.value("repair"),
    "drop_queue": lambda engine: engine.value("drop_queue", queue="q"),
}
VERBS = HOT | OTHER

# Conditions that a hot verb must put on each index: the lane alone is not enough.
POSITIONS = {"message_due": (1, 2), "lease_upto": (1, 2), "lease_deadline": (1, 2), "gap_pkey": (1, 2)}
POSITIONS |= {"message_order": (1, 2), "message_key": (1, 2), "message_idempotency": (1, 2)}
# A GIN index can only be read by bitmap, and an id is in one lease; a token has a few leases.
EXACT = {"lease_scattered", "lease_pkey"}
# They want a lane as a whole, to forget it or to count it, or all messages with one first id; and these the
# range of ids that a lease holds.
WHOLE = {"repair", "drop_queue", "expire", "expire one queue", "archive_days", "whereabouts"}
# Nor is a day of the archive's default partition too much for upkeep: over 10,000 rows it leaves it there.
SETTLED = {("ack", "message_pkey"), ("next", "message_pkey")}
SETTLED |= {(verb, "archive_default_ended") for verb in ("maintain", "samples")}


def faults(verb: str, found: set[Access]) -> list[str]:
    """Which accesses to the big tables break a rule."""
    big = sorted(access for access in found if access.table in BIG or access.table.startswith("archive_"))
    hot = verb in HOT
    return [
        str(access)
        for access in big
        if not access.columns
        or (
            access.eager
            and access.index not in EXACT
            and verb not in WHOLE
            and (verb, access.index) not in SETTLED
        )
        or (hot and not set(POSITIONS.get(access.index, ())) <= set(access.columns))
    ]


@contextmanager
def filled_database(server_url: str, template: str, *, analysed_full: bool) -> Iterator[str]:
    """The name of a filled database whose statistics are those of empty tables, or those of full ones."""
    with fresh_database(server_url, template) as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(QUIET)
            filled(Engine(connection))
            if analysed_full:
                connection.execute("analyze")
        yield url.rsplit("/", 1)[1]


@contextmanager
def session_in_copy(server_url: str, name: str) -> Iterator[Engine]:
    """A new session in a copy that takes itself for the original: its lanes don't start over."""
    with fresh_database(server_url, name) as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "update holdfast.boot"
            " set database_oid = (select oid from pg_database where datname = current_database())"
        )
        yield Engine(connection)


@pytest.fixture(scope="module")
def thought_empty(server_url: str, template_database: str) -> Iterator[str]:
    """A filled database that the planner believes to be empty."""
    with filled_database(server_url, template_database, analysed_full=False) as name:
        yield name


@pytest.fixture(scope="module")
def known_full(server_url: str, template_database: str) -> Iterator[str]:
    """A filled database of which the planner knows."""
    with filled_database(server_url, template_database, analysed_full=True) as name:
        yield name


@pytest.fixture(params=["thought_empty", "known_full"])
def session(request: pytest.FixtureRequest, server_url: str) -> Iterator[Engine]:
    """A new session in a filled database of either kind."""
    with session_in_copy(server_url, request.getfixturevalue(request.param)) as engine:
        yield engine


@pytest.fixture
def surprised(thought_empty: str, server_url: str) -> Iterator[Engine]:
    """A new session in a filled database that the planner believes to be empty."""
    with session_in_copy(server_url, thought_empty) as engine:
        yield engine


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reaches_its_tables_by_index(session: Engine, verb: str) -> None:
    found = planned(session.conn, lambda: VERBS[verb](session))

    assert faults(verb, found) == []


@pytest.mark.parametrize(
    ("index", "verb", "instead"),
    [
        ("message_pkey", "ack", "message"),
        ("message_pkey", "claim", "message"),
        ("message_due", "claim", "message"),
        ("message_due", "queue_stats", "message"),
        ("lease_pkey", "ack", "lease"),
        ("lease_pkey", "held, holders, message", "lease"),
        ("lease_upto", "claim", "lease"),
        ("lease_pkey", "claim_cohort", "lease"),
        ("message_pkey", "claim_cohort", "message"),
        ("lease_upto", "held, holders, message", "lease"),
        ("lease_deadline", "sweep", "lease"),
        ("lease_scattered", "held, holders, message", "lease"),
        ("gap_pkey", "repair", "gap"),
        ("message_expiry", "expire", "message"),
        ("message_order", "order", "message"),
        ("message_key", "keys", "message"),
        ("message_idempotency", "keys", "message"),
        ("message_blocks", "unblock", "message"),
        ("message_root", "whereabouts", "message"),
    ],
)
def test_a_missing_index_is_noticed(surprised: Engine, index: str, verb: str, instead: str) -> None:
    drop_index(surprised.conn, index)

    found = planned(surprised.conn, lambda: VERBS[verb](surprised))

    assert any(fault.startswith(f"{instead}: ") for fault in faults(verb, found))


def drop_index(conn: Conn, index: str) -> None:
    if index.endswith("_pkey"):
        owner = sql.Identifier("holdfast", index.removesuffix("_pkey"))
        conn.execute(sql.SQL("alter table {} drop constraint {}").format(owner, sql.Identifier(index)))
    else:
        conn.execute(sql.SQL("drop index {}").format(sql.Identifier("holdfast", index)))


@pytest.mark.parametrize("verb", VERBS)
def test_no_loop_aggregates_the_same_rows_again(surprised: Engine, verb: str) -> None:
    found = [
        fault
        for statement in statements(surprised.conn, lambda: VERBS[verb](surprised))
        for fault in recounts(statement)
    ]

    assert found == []


def test_the_claim_that_is_examined_goes_every_way(surprised: Engine) -> None:
    found = planned(surprised.conn, lambda: claim(surprised))

    indexes = {access.index for access in found if access.table in BIG}
    assert {"message_pkey", "message_due", "lease_upto", "lease_deadline", "gap_pkey"} <= indexes
