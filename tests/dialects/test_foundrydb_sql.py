"""The SQL contract of FoundryDB Queues, held against its page: every statement as it stands there.

These are the claims of the page that are about SQL; docs/dialects/foundrydb.md says which hold, and which
do not and why.

2. Message data lives in a dedicated mdb_queue schema, transactional with your application data
3. Consumers claim messages using SELECT … FOR UPDATE SKIP LOCKED, so multiple workers can drain a queue
   concurrently without contention or double-processing
4. Queues use at-least-once delivery
5. A message that is claimed but never acknowledged reappears automatically when the visibility timeout
   expires
13. visibility_timeout_seconds: how long a claimed message is hidden, 1 to 43200, 30 by default
14. max_attempts: maximum delivery attempts before a message moves to the DLQ, 1 to 100, 5 by default
15. dlq_enabled: whether exhausted messages are saved in mdb_queue.dead_messages, true by default
23. payload: arbitrary JSON document, max 256 KB
24. delay_seconds: a first visibility is postponed by 0 to 43200 seconds
26. Enqueue directly via SQL: faster, and atomic within your own transaction
27. Enqueue one message: the statement returns its id
36. The mdb_queue schema is owned by the platform but your primary user has full data access
37. Claim up to 10 messages with a 60-second visibility window
38. SKIP LOCKED ensures that concurrent consumers each claim a disjoint set of rows without blocking each
    other
39. Ack: delete the message once processing succeeds
40. Token-gated: an expired claim that was re-claimed by another consumer sees zero rows
41. Nack: reschedule the message for redelivery after a backoff, with an error note
42. Extend the claim to prevent redelivery
43. A message is redelivered if the consumer crashes between claiming and acknowledging it
44. Ordered by ID within a claim batch, no global FIFO guarantee across concurrent consumers
45. The claim statement first sweeps any over-budget messages to mdb_queue.dead_messages in the same atomic
    operation
46. No background daemon is required
47. Claim in autocommit or a short transaction: holding claimed rows inside a long transaction degrades
    throughput
"""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import MigrationError
from holdfast.cli.postgres import find_program, variables
from holdfast.migrate import migrate, plan
from tests.dialects.pins import claimed, listed, pins, verdicts
from tests.dialects.seeds import page
from tests.fix_database import holdfast_database
from tests.waiting import eventually

Conn = psycopg.Connection[Any]

ENQUEUE: LiteralString = """INSERT INTO mdb_queue.messages (queue_name, payload, max_attempts, visible_at)
SELECT q.name, $2, q.max_attempts, now() + ($3 * interval '1 second')
FROM mdb_queue.queues q WHERE q.name = $1
RETURNING id;"""
CLAIM: LiteralString = """UPDATE mdb_queue.messages m
SET visible_at = now() + (60 * interval '1 second'),
attempt_count = m.attempt_count + 1,
claimed_by = 'worker-1'
WHERE m.id IN (
SELECT id FROM mdb_queue.messages
WHERE queue_name = 'order-events'
AND visible_at <= now()
AND attempt_count < max_attempts
ORDER BY id
FOR UPDATE SKIP LOCKED
LIMIT 10
)
RETURNING m.id, m.payload, m.attempt_count, m.enqueued_at;"""
ACK: LiteralString = "DELETE FROM mdb_queue.messages WHERE id = $1 AND claimed_by = $2;"
NACK: LiteralString = """UPDATE mdb_queue.messages
SET visible_at = now() + ($3 * interval '1 second'),
last_error = $4
WHERE id = $1 AND claimed_by = $2;"""
EXTEND: LiteralString = """UPDATE mdb_queue.messages
SET visible_at = now() + ($3 * interval '1 second')
WHERE id = $1 AND claimed_by = $2;"""
STATEMENTS = (ENQUEUE, CLAIM, ACK, NACK, EXTEND)

_numbers = itertools.count(1)


class Shop:
    """An application with a connection of its own, and a queue."""

    def __init__(self, url: str, queue: str) -> None:
        self.url = url
        self.queue = queue
        self.conn: Conn = psycopg.connect(url, autocommit=True, cursor_factory=psycopg.RawCursor)

    def another(self) -> Shop:
        return Shop(self.url, self.queue)

    def rows(self, statement: str, *parameters: Any) -> list[Any]:
        return self.conn.execute(statement.encode(), parameters).fetchall()

    def count(self, statement: str, *parameters: Any) -> int:
        """How many rows a statement has changed."""
        return self.conn.execute(statement.encode(), parameters).rowcount

    def value(self, statement: str, *parameters: Any) -> Any:
        ((found,),) = self.rows(statement, *parameters)
        return found

    def enqueue(self, payload: Any = None, delay: float = 0) -> int:
        return int(self.value(ENQUEUE, self.queue, Jsonb(payload), delay))

    def claim(self, worker: str = "worker-1", seconds: float = 60, limit: int = 10) -> list[int]:
        """The statement of the page, for this queue; the ids."""
        return sorted(row[0] for row in self.claim_rows(worker, seconds, limit))

    def claim_rows(self, worker: str = "worker-1", seconds: float = 60, limit: int = 10) -> list[Any]:
        statement = CLAIM.replace("order-events", self.queue).replace("worker-1", worker)
        return self.rows(statement.replace("(60 *", f"({seconds} *").replace("LIMIT 10", f"LIMIT {limit}"))

    def claim_briefly(self, worker: str = "worker-1") -> list[int]:
        """Claim, and wait until the window is over."""
        ids = self.claim(worker, seconds=0.3)
        eventually(
            lambda: self.value(
                "select bool_and(visible_at <= now()) from mdb_queue.messages where id = any($1)", ids
            ),
            what="the window is over",
        )
        return ids

    def messages(self, columns: str = "id") -> list[Any]:
        found = self.rows(
            f"select {columns} from mdb_queue.messages where queue_name = $1 order by id", self.queue
        )
        return [row[0] if len(row) == 1 else row for row in found]

    def dead(self, columns: str = "id") -> list[Any]:
        found = self.rows(
            f"select {columns} from mdb_queue.dead_messages where queue_name = $1 order by id", self.queue
        )
        return [row[0] if len(row) == 1 else row for row in found]

    def stats(self, figure: str) -> int:
        return int(self.value(f"select {figure} from holdfast.queue_stats($1)", self.queue))


@pytest.fixture(scope="module")
def contract_url(server_url: str, template_database: str) -> Iterator[str]:
    """A database with the schema of the contract."""
    with holdfast_database(server_url, template_database) as url:
        assert migrate(url, dialects=["foundrydb"]).dialects == ("foundrydb",)
        yield url


@pytest.fixture
def opened(contract_url: str) -> Iterator[Any]:
    """Opens an application with a new queue, of the settings of the page that are named."""
    shops: list[Shop] = []

    def open_shop(queue: str | None = None, **settings: Any) -> Shop:
        shop = Shop(contract_url, queue or f"orders-{next(_numbers)}")
        shops.append(shop)
        if queue is None:
            named = "".join(f", {name} => {value}" for name, value in settings.items())
            shop.rows(f"select mdb_queue.create_queue($1{named})", shop.queue)
        return shop

    yield open_shop
    for shop in shops:
        shop.conn.close()


@pytest.fixture
def shop(opened: Any) -> Shop:
    """An application with a queue as the page makes one by default."""
    made: Shop = opened()
    return made


# --- the page


def test_the_claims_of_this_file_are_those_of_the_docs() -> None:
    assert listed(__doc__ or "").items() <= claimed("foundrydb").items()
    unclear = [v for v in verdicts("foundrydb").values() if not v.startswith(("same", "differs, because"))]
    assert unclear == []


def test_the_statements_are_those_of_the_page() -> None:
    text = page("foundrydb-queues")
    assert text is None or [statement for statement in STATEMENTS if statement not in text] == []


@pins(27, 37, 39, 41, 42)
def test_every_statement_of_the_page_runs_as_it_stands(opened: Any) -> None:
    orders = opened()
    orders.rows("select holdfast.drop_queue('order-events')")
    orders.rows("select mdb_queue.create_queue('order-events')")
    orders.queue = "order-events"
    sent = [orders.enqueue({"order_id": n}) for n in range(12)]

    claimed = orders.rows(CLAIM)
    first, second, third = sorted(row[0] for row in claimed)[:3]
    acked = orders.count(ACK, first, "worker-1")
    nacked = orders.count(NACK, second, "worker-1", 90, "no such customer")
    extended = orders.count(EXTEND, third, "worker-1", 600)

    assert sorted(row[0] for row in claimed) == sent[:10]
    assert [(row[1], row[2]) for row in sorted(claimed)][:2] == [({"order_id": 0}, 1), ({"order_id": 1}, 1)]
    assert (acked, nacked, extended) == (1, 1, 1)
    assert orders.messages("id, attempt_count, max_attempts, claimed_by, last_error")[:2] == [
        (second, 1, 5, None, "no such customer"),
        (third, 1, 5, "worker-1", None),
    ]
    away = "extract(epoch from visible_at - now())::int"
    assert orders.messages(away)[:2] == [pytest.approx(90, abs=5), pytest.approx(600, abs=5)]
    assert sorted(row[0] for row in orders.rows(CLAIM)) == sent[10:]


# --- enqueue


@pins(2, 26)
def test_enqueue_is_part_of_the_transaction(shop: Shop) -> None:
    shop.conn.execute("create table if not exists sale (id int)")
    for outcome in ("rollback", "commit"):
        shop.conn.execute("begin")
        shop.conn.execute("insert into sale values (1)")
        shop.enqueue(1)
        shop.conn.execute(outcome.encode())

    assert len(shop.messages()) == shop.value("select count(*) from sale") == 1


@pins(24)
def test_a_message_is_put_off_by_up_to_twelve_hours(shop: Shop) -> None:
    later, now = shop.enqueue(1, delay=43_200), shop.enqueue(2)

    assert shop.claim() == [now]
    assert shop.messages() == [later, now]
    with pytest.raises(psycopg.errors.CheckViolation, match="visible_at is too far ahead"):
        shop.enqueue(3, delay=43_260)


@pins(14, 23)
def test_bad_messages_are_refused_and_nothing_is_sent(shop: Shop) -> None:
    insert = "insert into mdb_queue.messages (queue_name, payload, max_attempts) values ($1, $2, $3)"
    fitting = Jsonb("x" * (262_144 - 2))
    for parameters, state in (
        (("nowhere", Jsonb(1), 5), "23503"),
        ((None, Jsonb(1), 5), "23503"),
        ((shop.queue, None, 5), "23502"),
        ((shop.queue, Jsonb("x" * (262_144 - 1)), 5), "23514"),
        ((shop.queue, Jsonb(1), 0), "23514"),
        ((shop.queue, Jsonb(1), 101), "23514"),
    ):
        with pytest.raises(psycopg.Error) as refused:
            shop.count(insert, *parameters)
        assert refused.value.sqlstate == state
        assert refused.value.diag.message_hint
    with pytest.raises(psycopg.Error, match="a new message has no id"):
        shop.count("insert into mdb_queue.messages (id, queue_name, payload) values (1, $1, '1')", shop.queue)

    assert shop.messages() == []
    assert shop.count(insert, shop.queue, fitting, 100) == 1
    assert shop.count(insert, shop.queue, Jsonb(None), 100) == 1
    assert shop.rows(ENQUEUE, "nowhere", Jsonb(1), 0) == []


# --- claims


@pins(3, 38)
def test_two_claims_at_once_share_nothing(shop: Shop) -> None:
    sent = [shop.enqueue(n) for n in range(4)]
    other = shop.another()
    with other.conn.transaction():
        first = other.claim("worker-2", limit=2)
        meanwhile = shop.claim()
    second = shop.claim()
    other.conn.close()

    assert (first, meanwhile, second) == (sent[:2], [], sent[2:])


@pins(44)
def test_a_batch_has_the_lowest_ids(shop: Shop) -> None:
    sent = [shop.enqueue(n) for n in range(5)]

    assert [shop.claim(limit=2), shop.claim(limit=2)] == [sent[:2], sent[2:4]]


@pins(4, 5, 43, 46)
def test_what_is_not_acked_comes_back_by_one_statement(shop: Shop) -> None:
    sent = [shop.enqueue(n) for n in range(3)]
    shop.claim_briefly()

    again = shop.claim_rows("worker-2")

    assert sorted((row[0], row[2]) for row in again) == [(id, 2) for id in sent]


@pins(40)
def test_who_has_lost_a_claim_changes_nothing(shop: Shop) -> None:
    (id,) = [shop.enqueue(1)]
    shop.claim_briefly("worker-1")
    shop.claim("worker-2")

    lost = [
        shop.count(ACK, id, "worker-1"),
        shop.count(NACK, id, "worker-1", 0, "late"),
        shop.count(EXTEND, id, "worker-1", 600),
    ]

    assert lost == [0, 0, 0]
    assert shop.messages("claimed_by, attempt_count, last_error") == [("worker-2", 2, None)]


def test_the_token_tells_two_claims_of_one_worker_apart(shop: Shop) -> None:
    id = shop.enqueue(1)
    shop.claim_briefly()
    (old,) = shop.messages("claim_token")
    shop.claim()

    acks = [
        shop.count("delete from mdb_queue.messages where id = $1 and claim_token = $2", id, token)
        for token in (old, *shop.messages("claim_token"))
    ]

    assert acks == [0, 1]


@pins(47)
def test_a_claim_that_rolls_back_never_happened(shop: Shop) -> None:
    sent = [shop.enqueue(n) for n in range(3)]
    with shop.conn.transaction(force_rollback=True):
        shop.claim()

    assert [(row[0], row[2]) for row in sorted(shop.claim_rows())] == [(id, 1) for id in sent]


def test_a_claim_needs_read_committed(shop: Shop) -> None:
    id = shop.enqueue(1)
    shop.conn.execute("begin isolation level repeatable read")
    with pytest.raises(psycopg.Error, match="take works in READ COMMITTED only"):
        shop.claim()
    shop.conn.execute("rollback")

    assert shop.claim() == [id]


# --- the end


@pins(41)
def test_a_nack_gives_back_and_the_last_one_buries(opened: Any) -> None:
    shop = opened(max_attempts=2)
    id = shop.enqueue({"n": 1})
    shop.claim()
    shop.count(NACK, id, "worker-1", 0, "first")
    again = shop.claim_rows()
    shop.count(NACK, id, "worker-1", 0, "second")

    assert again[0][2] == 2
    assert shop.messages() == []
    assert shop.dead("id, payload, attempt_count, last_error, died_at is not null") == [
        (id, {"n": 1}, 2, "second", True)
    ]
    assert shop.stats("dead") == 1
    assert shop.count("delete from mdb_queue.dead_messages where id = $1", id) == 1
    assert shop.dead() == []


def test_a_claim_moved_to_now_is_given_up(shop: Shop) -> None:
    id = shop.enqueue(1)
    shop.claim()

    assert shop.count(EXTEND, id, "worker-1", 0) == 1
    assert shop.claim("worker-2") == [id]


@pins(45)
def test_the_claim_buries_what_is_over_budget_in_the_same_statement(opened: Any) -> None:
    shop = opened(max_attempts=1)
    spent = shop.enqueue("spent")
    shop.claim_briefly()
    fresh = shop.enqueue("fresh")
    with shop.conn.transaction(force_rollback=True):
        undone = shop.claim(), shop.dead()

    before = shop.dead()
    claimed = shop.claim()

    assert undone == ([fresh], [spent])
    assert before == []
    assert (claimed, shop.dead("id, attempt_count"), shop.messages()) == ([fresh], [(spent, 1)], [fresh])


@pins(15)
def test_without_dead_letters_what_is_exhausted_is_deleted(opened: Any) -> None:
    shop = opened(max_attempts=1, dlq_enabled="false")
    id = shop.enqueue(1)
    shop.claim()
    shop.count(NACK, id, "worker-1", 0, "boom")

    assert (shop.messages(), shop.dead(), shop.stats("dead")) == ([], [], 0)
    assert shop.value("select dlq_enabled from mdb_queue.queues where name = $1", shop.queue) is False


# --- other doors


def test_messages_and_claims_cross_doors(shop: Shop) -> None:
    sent = shop.value("select holdfast.send($1, '1')", shop.queue)
    here = shop.enqueue(2)
    raw = shop.value("select holdfast.send($1, body => '\\x0001', content_type => 'a/b')", shop.queue)

    native = shop.rows("select id, token from holdfast.claim($1, 1, consumer => 'Ada')", shop.queue)
    rest = shop.claim_rows()

    assert [native[0][0], sorted(row[:2] for row in rest)] == [
        sent,
        [(here, 2), (raw, {"body": "AAE=", "content_type": "a/b"})],
    ]
    assert shop.rows("select id from holdfast.claim($1, 10)", shop.queue) == []
    assert shop.messages("claimed_by") == ["Ada", "worker-1", "worker-1"]
    assert shop.count(ACK, sent, "Ada") == 1
    assert shop.value("select settled from holdfast.ack($1, $2)", shop.queue, native[0][1]) == []


def test_a_queue_that_was_made_natively_keeps_its_own_limit(shop: Shop) -> None:
    for limit, shown in ((0, 2_147_483_647), (500, 500)):
        config = Jsonb({"by_row": True, "max_deliveries": limit})
        shop.queue = f"native-{limit}"
        shop.rows("select holdfast.create_queue($1, $2)", shop.queue, config)

        shop.enqueue(1)

        assert shop.messages("max_attempts") == [shown]
        assert len(shop.claim()) == 1


# --- what is not in the contract


@pytest.mark.parametrize(
    "statement",
    [
        "update mdb_queue.messages set payload = '2' where id = $1",
        "update mdb_queue.messages set queue_name = 'x' where id = $1",
        "update mdb_queue.messages set visible_at = now() where id = $1",
        "update mdb_queue.messages set attempt_count = 0, claimed_by = 'x' where id = $1",
        "update mdb_queue.messages set attempt_count = attempt_count + 1,"
        " visible_at = now() + interval '1 min' where id = $1",
    ],
)
def test_other_updates_are_refused_and_change_nothing(shop: Shop, statement: str) -> None:
    id = shop.enqueue(1)
    before = shop.rows("select * from mdb_queue.messages where id = $1", id)

    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        shop.count(statement, id)

    assert "UPDATE claims" in (refused.value.diag.message_hint or "")
    assert shop.rows("select * from mdb_queue.messages where id = $1", id) == before


def test_what_nobody_has_claimed_can_be_deleted(shop: Shop) -> None:
    ids = [shop.enqueue(n) for n in range(2)]

    assert shop.count("delete from mdb_queue.messages where id = $1", ids[0]) == 1
    assert shop.messages() == ids[1:]


@pins(13, 14)
@pytest.mark.parametrize(
    "arguments",
    ["'Orders'", "''", "repeat('a', 129)", "null", "'a', 0", "'a', 43201", "'a', 30, 0", "'a', 30, 101"],
)
def test_a_queue_out_of_range_is_refused(shop: Shop, arguments: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        shop.rows(f"select mdb_queue.create_queue({arguments})")


@pins(13, 14, 15)
def test_a_queue_has_the_settings_of_the_page(opened: Any) -> None:
    columns = "visibility_timeout_seconds, max_attempts, dlq_enabled"
    found = [
        shop.rows(f"select {columns} from mdb_queue.queues where name = $1", shop.queue)[0]
        for shop in (
            opened(),
            opened(visibility_timeout_seconds=43_200, max_attempts=100, dlq_enabled="false"),
        )
    ]
    assert found == [(30, 5, True), (43_200, 100, False)]
    again = opened()
    with pytest.raises(psycopg.errors.DuplicateObject):
        again.rows("select mdb_queue.create_queue($1)", again.queue)


@pytest.mark.parametrize(
    "statement",
    [
        "delete from mdb_queue.queues where name = $1",
        "update mdb_queue.queues set name = 'x' where name = $1",
        "insert into mdb_queue.queues (name) values ($1 || 'x')",
    ],
)
def test_queues_are_not_changed_as_rows_not_even_by_the_owner(shop: Shop, statement: str) -> None:
    id = shop.enqueue(1)

    with pytest.raises(psycopg.errors.FeatureNotSupported) as refused:
        shop.count(statement, shop.queue)

    hint = refused.value.diag.message_hint or ""
    assert ("mdb_queue.create_queue" in hint, "mdb_queue.drop_queue" in hint) == (True, True)
    assert shop.claim() == [id]


def test_no_view_of_the_contract_passes_a_write_on(contract_url: str) -> None:
    with psycopg.connect(contract_url, autocommit=True) as conn:
        through = conn.execute(
            "select c.relname from pg_class c where c.relnamespace = 'mdb_queue'::regnamespace"
            " and c.relkind = 'v' and pg_relation_is_updatable(c.oid, false) <> 0"
            " and (select bit_or(t.tgtype::int) & 28 from pg_trigger t"
            "      where t.tgrelid = c.oid and t.tgtype & 64 <> 0) is distinct from 28"
        ).fetchall()

    assert through == []


def test_a_queue_is_dropped_with_its_messages_and_dead_letters(opened: Any) -> None:
    shop = opened(max_attempts=1)
    first, second = shop.enqueue(1), shop.enqueue(2)
    assert shop.claim(limit=1) == [first]
    shop.count(NACK, first, "worker-1", 0, "boom")
    assert (shop.messages(), shop.dead()) == ([second], [first])

    assert shop.value("select mdb_queue.drop_queue($1)", shop.queue) is True
    assert shop.value("select mdb_queue.drop_queue($1)", shop.queue) is False

    left = "select count(*) from holdfast.queues() where queue like $1 || '%'"
    assert shop.value(left, shop.queue) == 0


def test_dead_letters_of_somebody_else_stay(opened: Any) -> None:
    shop = opened()
    other = f"{shop.queue}-natively"
    config = {"by_row": True, "dead_letter": f"{shop.queue}.dlq"}
    shop.rows("select holdfast.create_queue($1)", f"{shop.queue}.dlq")
    shop.rows("select holdfast.create_queue($1, $2)", other, Jsonb(config))

    assert shop.value("select mdb_queue.drop_queue($1)", other) is True
    assert shop.value("select count(*) from holdfast.queues() where queue = $1", f"{shop.queue}.dlq") == 1


# --- rights, and what the schema stands on


@pins(36)
def test_a_user_of_the_contract_needs_no_right_on_holdfast(opened: Any) -> None:
    shop = opened(max_attempts=1)
    shop.conn.execute("create role app login")
    try:
        shop.conn.execute("set role app")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.enqueue(1)
        shop.conn.execute("reset role")
        shop.conn.execute("grant mdb_queue_user to app")
        shop.conn.execute("set role app")
        first, second, third = (shop.enqueue(n) for n in range(3))
        assert shop.claim() == [first, second, third]
        assert [shop.count(ACK, first, "worker-1"), shop.count(EXTEND, second, "worker-1", 5)] == [1, 1]
        assert shop.count(NACK, third, "worker-1", 0, "boom") == 1
        assert (shop.messages(), shop.dead()) == ([second], [third])
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.rows("select holdfast.claim($1)", shop.queue)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.rows("select mdb_queue.create_queue('x')")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            shop.rows("select mdb_queue.drop_queue($1)", shop.queue)
    finally:
        shop.conn.execute("reset role")
        shop.conn.execute("drop role app")


def test_the_contract_stands_on_public_functions_and_views_alone(contract_url: str) -> None:
    with psycopg.connect(contract_url, autocommit=True) as conn:
        functions = conn.execute(
            "select p.proname, coalesce(p.proconfig::text, ''), obj_description(p.oid, 'pg_proc'),"
            " p.proacl::text from pg_proc p where p.pronamespace = 'mdb_queue'::regnamespace"
        ).fetchall()
        used = conn.execute(
            "select distinct d.refobjid::regclass::text from pg_depend d join pg_rewrite r on r.oid = d.objid"
            " join pg_class c on c.oid = r.ev_class"
            " where c.relnamespace = 'mdb_queue'::regnamespace and d.refclassid = 'pg_class'::regclass"
            " and d.refobjid <> c.oid"
        ).fetchall()
        called = conn.execute(
            "select distinct m[1] from pg_proc p, regexp_matches(p.prosrc, 'holdfast\\.(\\w+)', 'g') m"
            " where p.pronamespace = 'mdb_queue'::regnamespace"
        ).fetchall()

    assert {name for (name,) in used} == {"holdfast.row_message", "holdfast.row_queue", "mdb_queue.queues"}
    assert {name for (name,) in called} == {
        *("send", "take", "ack", "nack", "extend", "discard", "bury_spent", "now", "create_queue"),
        *("drop_queue", "scan", "scan_bounds", "delivery", "hold", "row_queue"),
    }
    bare = [name for name, settings, comment, _ in functions if "pg_temp" not in settings or not comment]
    assert bare == []
    assert [name for name, *_, rights in functions if not rights or "{=X" in rights or ",=X" in rights] == []


def test_a_schema_of_somebody_else_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("create schema mdb_queue")
        with pytest.raises(MigrationError, match="the schema mdb_queue is there, and is not Holdfast's"):
            migrate(database_url, dialects=["foundrydb"])
        assert migrate(database_url).dialects == ()
        conn.execute("drop schema mdb_queue")
    assert plan(database_url, dialects=["foundrydb"]).dialects == ("foundrydb",)
    with pytest.raises(MigrationError, match='there is no SQL of a dialect "postgres"'):
        migrate(database_url, dialects=["postgres"])


def test_the_schema_is_brought_up_to_date_with_the_rest(database_url: str) -> None:
    migrate(database_url, dialects=["foundrydb"])
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("comment on schema mdb_queue is 'Holdfast: the dialect foundrydb #older'")
        conn.execute("drop view mdb_queue.dead_messages")

        assert plan(database_url).dialects == migrate(database_url).dialects == ("foundrydb",)
        assert conn.execute("select from mdb_queue.dead_messages").fetchall() == []
    assert migrate(database_url).dialects == ()


# --- many at once


class Psql:
    """A session of psql, which is told one statement after the other."""

    END = "-- it is over --"

    def __init__(self, url: str) -> None:
        words = [str(find_program("psql")), "-XAtF", "|", "-v", "ON_ERROR_STOP=1"]
        self.process = subprocess.Popen(
            words,
            env={**os.environ, **variables(url)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def __enter__(self) -> Psql:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate(timeout=60)

    def tell(self, statements: str) -> list[str]:
        """The lines that come back: rows, and what each statement has done."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{statements}\n\\echo {self.END}\n")
        self.process.stdin.flush()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.rstrip("\n") == self.END:
                return lines
            lines.append(line.rstrip("\n"))
        raise AssertionError(lines)

    def claim(self, queue: str, worker: str) -> list[int]:
        """The statement of the page; the ids."""
        statement = CLAIM.replace("order-events", queue).replace("worker-1", worker)
        *rows, tag = self.tell(statement)
        assert tag == f"UPDATE {len(rows)}", (rows, tag)
        return [int(row.partition("|")[0]) for row in rows]

    def ack(self, ids: Sequence[int], worker: str) -> list[int]:
        """The statement of the page for one after the other; those that were still held."""
        statements = [ACK.replace("$1", str(id)).replace("$2", f"'{worker}'") for id in ids]
        tags = self.tell("\n".join(statements))
        return [id for id, tag in zip(ids, tags, strict=True) if tag == "DELETE 1"]


def drained(shop: Shop, messages: int, workers: int) -> Counter[int]:
    """How often each message was claimed, by sessions of psql that claim by tens and ack one by one."""
    shop.rows(
        "with sent as (insert into mdb_queue.messages (queue_name, payload)"
        " select $1, to_jsonb(n) from generate_series(1, $2::int) n returning id) select count(*) from sent",
        shop.queue,
        messages,
    )
    taken: Counter[int] = Counter()
    acked: Counter[int] = Counter()
    guard = threading.Lock()

    def work(name: str) -> None:
        with Psql(shop.url) as psql:
            while shop_is_open():
                got = psql.claim(shop.queue, name)
                done = psql.ack(got, name)
                with guard:
                    taken.update(got)
                    acked.update(done)

    def shop_is_open() -> bool:
        with guard:
            return sum(acked.values()) < messages

    with ThreadPoolExecutor(workers) as sessions:
        # Whatever went wrong in one of them is raised here.
        list(sessions.map(work, [f"worker-{n}" for n in range(workers)]))
    assert taken == acked
    return taken


@pins(3, 38)
@pytest.mark.parametrize(
    "messages",
    [200, pytest.param(20_000, marks=[pytest.mark.verify, pytest.mark.timeout(900)])],
)
def test_eight_sessions_of_psql_drain_a_queue_each_message_once(shop: Shop, messages: int) -> None:
    taken = drained(shop, messages, 8)

    assert len(taken) == messages
    assert set(taken.values()) == {1}
    assert shop.messages() == []
