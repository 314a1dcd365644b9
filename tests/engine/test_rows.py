"""Messages as rows: shown by holdfast.row_message, taken by take, buried by bury_spent.

1. Messages of a queue with by_row are rows, in whatever way they came; those of other queues are none.
2. A row says from when on it can be taken, who has it, and how many deliveries that makes.
3. take claims the very messages that it is told, if they can be claimed now, wherever the cursor is; claims
   do not hand them out, and take hands out nothing that a claim holds.
4. What lies in a lease that is over is given back first: counted, and buried if that was the last delivery.
5. take leaves alone what is held, later, paused, over a limit, or not there; what is past its time ends.
6. What was taken is settled, held and found like anything else; a crash gives it back.
7. Where nobody claims, the cursor follows, and the figures stay right.
8. bury_spent buries what has used up its deliveries, and touches nothing else.
9. by_row is said when a queue is made; it does not go with an order, nor with several lanes.
10. The next rows are found by an index in their order, however many wait behind them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, ids, payloads
from tests.fix_database import Connect

SECOND = timedelta(seconds=1)


@pytest.fixture
def rows(engine: Engine) -> Engine:
    """A queue `q` whose messages are rows."""
    engine.create("q", by_row=True, max_deliveries=3)
    return engine


def shown(engine: Engine, *columns: str, queue: str = "q") -> list[Any]:
    wanted = ", ".join(columns or ("id",))
    statement = f"select {wanted} from holdfast.row_message where queue = '{queue}' order by id"
    found = engine.conn.execute(statement.encode()).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]


def take(engine: Engine, *wanted: int, queue: str = "q", **options: Any) -> list[int]:
    return ids(engine.rows("take", queue=queue, ids=list(wanted), **options))


# --- 1: what is a row


def test_messages_are_rows_however_they_came(rows: Engine) -> None:
    rows.create("other")
    rows.send(0, queue="other")
    sent = [rows.send(1), *rows.send_numbers(2), rows.send(4, key="k"), rows.send(5, idempotency_key="i")]
    sent += rows.value("send_many", queue="q", messages=Jsonb([{}, {"key": "l"}]))
    rows.conn.execute("insert into holdfast.inbox (queue) values ('q')")
    sent += rows.row("send_once", queue="q", messages=Jsonb([{}]), idempotency_key="o")["ids"]

    found = shown(rows)

    assert set(sent) < set(found)
    assert len(found) == len(sent) + 1
    assert rows.look("select count(*) from holdfast.row_message") == len(found)


def test_what_is_redriven_or_replayed_is_a_row(engine: Engine) -> None:
    engine.create("q", by_row=True, max_deliveries=1, keep=["done"])
    engine.kill(engine.send(1))
    engine.rows("redrive", queue="q")
    (dead,) = shown(engine)
    engine.settle("ack", engine.claim_one()["token"])
    engine.rows("replay", queue="q")

    (again,) = shown(engine)

    assert again > dead


# --- 2: what a row says


def test_a_row_says_who_has_it_until_when_and_how_often_that_makes(rows: Engine) -> None:
    fresh, later = rows.send(1), rows.send(2, delay="1 min")
    before = shown(rows, "visible_at <= now()", "visible_at", "deliveries", "consumer")
    taken = rows.claim(1, lease="30 s", consumer="Ada")

    after = shown(rows, "visible_at", "deliveries", "consumer", "token")

    assert [(row[0], row[2], row[3]) for row in before] == [(True, 0, None), (False, 0, None)]
    assert before[1][1] == T0 + 60 * SECOND
    assert after[0] == (T0 + 30 * SECOND, 1, "Ada", taken[0]["token"])
    assert after[1][1:] == (0, None, None)
    assert [fresh, later] == shown(rows)


# --- 3: take


def test_take_claims_what_it_is_told_and_claims_pass_it_by(rows: Engine) -> None:
    sent = rows.send_numbers(6)
    due = rows.send(6, delay="1 s")
    rows.at(T0 + SECOND)

    taken = rows.rows("take", queue="q", ids=[sent[4], sent[1], due], lease="1 min", consumer="Ada")
    claimed = ids(rows.claim(10))

    assert sorted(ids(taken)) == [sent[1], sent[4], due]
    assert {row["deadline"] for row in taken} == {T0 + 61 * SECOND}
    assert {row["deliveries"] for row in taken} == {1}
    assert claimed == [sent[0], *sent[2:4], sent[5]]
    assert take(rows, *sent, due) == []
    assert rows.claim(10) == []


def test_a_message_in_a_gap_is_taken_once(rows: Engine, connect: Connect) -> None:
    with connect() as sender, sender.transaction():
        late = Engine(sender).send("late")
        rows.send("early")
        rows.claim(5)
    # The cursor has passed it, and a gap remembers it.

    taken = take(rows, late)
    claimed = [rows.claim(5) for _ in range(3)]

    assert taken == [late]
    assert claimed == [[], [], []]
    rows.settle("release", rows.rows("holders", queue="q", ids=[late])[0]["token"])
    assert ids(rows.claim(5)) == [late]


# --- 4: leases that are over


def test_what_a_lease_that_is_over_holds_is_counted_and_taken(rows: Engine) -> None:
    sent = rows.send_numbers(3)
    (old, *_) = rows.claim(3, lease="1 s")
    rows.at(T0 + 2 * SECOND)

    taken = rows.rows("take", queue="q", ids=[sent[1]], lease="10 s")

    assert [(row["id"], row["deliveries"]) for row in taken] == [(sent[1], 2)]
    assert rows.settle("ack", old["token"], sent) == ([], sent)
    assert sorted(ids(rows.claim(5))) == [sent[0], sent[2]]


def test_the_last_delivery_that_ran_out_is_buried_not_taken(engine: Engine) -> None:
    engine.create("q", by_row=True, max_deliveries=1)
    id = engine.send(1)
    take(engine, id, lease="1 s")
    engine.at(T0 + 2 * SECOND)

    again = take(engine, id)

    assert again == []
    assert engine.stats()["dead"] == 1
    assert shown(engine) == []


# --- 5: what cannot be taken


def test_take_leaves_alone_what_cannot_be_claimed_now(rows: Engine) -> None:
    held, later = rows.send(1), rows.send(2, delay="1 min")
    mine = take(rows, held)
    rows.create("other", by_row=True)
    foreign = rows.send(3, queue="other")
    state = rows.state()

    assert mine == [held]
    assert take(rows, held, later, foreign, 1, -1) == []
    assert rows.rows("take", queue="q", ids=None) == []
    assert rows.state() == state
    rows.value("pause_queue", queue="other")
    assert take(rows, foreign, queue="other") == []
    rows.value("resume_queue", queue="other")
    assert take(rows, foreign, queue="other") == [foreign]


def test_take_keeps_to_the_throughput_limit(engine: Engine) -> None:
    engine.create("q", by_row=True, throughput_limit=2)
    sent = engine.send_numbers(5)

    first, none = take(engine, *sent), take(engine, *sent)
    engine.at(T0 + SECOND)
    given_back = take(engine, *first)

    assert (len(first), none, given_back, len(take(engine, *sent))) == (2, [], [], 2)


def test_what_is_past_its_time_ends(rows: Engine) -> None:
    id = rows.send(1, ttl="1 s")
    rows.at(T0 + SECOND)

    assert take(rows, id) == []
    assert shown(rows) == []
    assert rows.stats()["counters"]["expired"] == 1


# --- 6: like anything else


def test_what_was_taken_is_settled_and_found_like_anything_else(rows: Engine) -> None:
    sent = rows.send_numbers(5)
    token = rows.rows("take", queue="q", ids=sent, consumer="Ada")[0]["token"]

    assert payloads(rows.rows("held", queue="q", token=token)) == [0, 1, 2, 3, 4]
    assert {row["consumer"] for row in rows.rows("holders", queue="q", ids=sent)} == {"Ada"}
    assert rows.stats()["in_flight"] == 5
    assert rows.settle("ack", token, sent[:1]) == (sent[:1], [])
    assert rows.settle("nack", token, sent[1:2], delay="1 s") == (sent[1:2], [])
    assert rows.settle("extend", token, sent[2:3], lease="1 min") == (sent[2:3], [])
    assert rows.value("discard", queue="q", ids=sent[3:4]) == sent[3:4]
    rows.at(T0 + 31 * SECOND)
    assert ids(rows.claim(5)) == [sent[1], sent[4]]
    rows.at(T0 + 61 * SECOND)
    assert sent[2] in ids(rows.claim(5))
    assert rows.row("purge", queue="q", states=["in_flight"])["purged"] == 3


def test_a_crash_gives_back_what_was_taken(rows: Engine) -> None:
    sent = rows.send_numbers(3)
    take(rows, *sent)
    rows.conn.execute("truncate holdfast.lease, holdfast.gap, holdfast.boot")
    rows.conn.execute(
        "select setval(c.oid::regclass, 0) from pg_class c where c.relnamespace = 'holdfast'::regnamespace"
        " and c.relkind = 'S' and c.relpersistence = 'u'"
    )

    visible = shown(rows, "visible_at <= now()")
    first, second = take(rows, sent[0]), take(rows, *sent)

    assert visible == [True, True, True]
    assert (first, second) == ([], sent)


# --- 7: the cursor


def test_the_cursor_follows_where_nobody_claims(rows: Engine) -> None:
    sent = rows.send_numbers(2500)
    stays = rows.rows("take", queue="q", ids=sent[:1], lease="1 h")
    for start in range(1, 2400, 100):
        token = rows.rows("take", queue="q", ids=sent[start : start + 100])[0]["token"]
        rows.settle("ack", token)

    cursor = rows.look("select max(upto) from holdfast.lease")
    stats = rows.stats()

    assert cursor > sent[1900]
    assert (stats["ready"], stats["in_flight"], stats["exact"]) == (99, 1, True)
    assert ids(rows.claim(200)) == sent[2401:]
    rows.settle("release", stays[0]["token"])
    assert ids(rows.claim(200)) == sent[:1]


# --- 8: bury_spent


def test_bury_spent_buries_the_last_delivery_and_touches_nothing_else(engine: Engine) -> None:
    engine.create("q", by_row=True, max_deliveries=2)
    last, first, live = engine.send_numbers(3)
    token = engine.rows("take", queue="q", ids=[last])[0]["token"]
    engine.settle("nack", token, delay="0 s")
    engine.claim(2, lease="1 s")  # the second time for one, the first for the other
    take(engine, live, lease="1 min")
    engine.at(T0 + 2 * SECOND)

    buried = [engine.value("bury_spent"), engine.value("bury_spent", queue="q")]

    assert buried == [1, 0]
    assert shown(engine, "id", "deliveries") == [(first, 1), (live, 1)]
    assert engine.stats()["dead"] == 1
    assert take(engine, first, live) == [first]


# --- 9: the setting


@pytest.mark.parametrize(
    "config",
    [
        {"by_row": True, "ordering": "key"},
        {"by_row": True, "ordering": "strict"},
        {"by_row": True, "shards": 2},
        {"by_row": True, "priorities": [0, 5]},
        {"by_row": True, "kind": "log"},
        {"by_row": 1},
    ],
)
def test_what_does_not_go_with_rows_is_refused(refusing: Engine, config: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error, match=r"by_row|ordering is none|shards|priorities") as refused:
        refusing.create("new", **config)
    assert refused.value.sqlstate == "QH104"


def test_by_row_is_said_when_the_queue_is_made(rows: Engine) -> None:
    rows.create("plain")
    for queue, by_row in (("q", False), ("q", None), ("plain", True)):
        with pytest.raises(psycopg.Error, match="bad value for by_row") as refused:
            rows.value("configure_queue", queue=queue, config={"by_row": by_row})
        assert refused.value.sqlstate == "QH104"
    with pytest.raises(psycopg.Error, match="no global default"):
        rows.value("configure_defaults", config={"by_row": True})
    rows.value("configure_defaults", config={"shards": 4, "priorities": [0, 1]})
    assert rows.value("configure_queue", queue="q", config={"by_row": True})["shards"] == 1


def test_only_rows_are_taken(queue: Engine) -> None:
    with pytest.raises(psycopg.Error, match='the messages of "q" are no rows'):
        take(queue, 1)


# --- 10: a deep backlog

NEXT = """
select id from holdfast.row_message where queue = 'q' and visible_at <= now() and deliveries < max_deliveries
order by id limit 10 for update skip locked
"""


def test_a_deep_backlog_does_not_make_the_next_rows_dearer(rows: Engine) -> None:
    def looked() -> tuple[str, int]:
        (plan,) = rows.look(f"explain (analyze, buffers, costs off, format json) {NEXT}")
        return str(plan), int(plan["Plan"]["Shared Hit Blocks"]) + int(plan["Plan"]["Shared Read Blocks"])

    rows.send_numbers(1_000)
    looked()
    _, shallow = looked()
    rows.send_numbers(50_000)

    for statistics in ("none", "new"):
        if statistics == "new":
            rows.conn.execute("vacuum analyze holdfast.message")
        looked()
        plan, deep = looked()
        assert "Sort" not in plan
        assert deep <= shallow + 20
