"""Sends, claims and settlements are part of the caller's transaction.

1. What a transaction sends is seen by nobody before it commits, and never if it rolls back.
2. A savepoint rolls back the sends after it, and only those.
3. A transaction that claims, works, acks and sends on does all of it or nothing.
4. Creating a queue, and sending to a new priority, roll back without a trace.
5. max_depth: sends that rolled back do not fill a queue, acks make room again; only what a send adds counts.
"""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, ids, payloads

SECOND = timedelta(seconds=1)


def test_nothing_is_delivered_before_the_sender_commits(open_engine: Open, queue: Engine) -> None:
    consumer = open_engine()

    with queue.conn.transaction():
        sent = [queue.send(1), *queue.send_numbers(2)]
        before = consumer.claim(10)

    assert before == []
    assert ids(consumer.claim(10)) == sent


def test_a_rolled_back_send_is_never_delivered(queue: Engine) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.send(1)
        queue.send_numbers(3, priority=5)

    assert queue.claim(10) == []
    queue.value("maintain")
    assert queue.claim(10) == []


def test_a_send_and_the_callers_own_rows_commit_together(queue: Engine) -> None:
    queue.conn.execute("create table public.orders (id int primary key)")

    def order(number: int, key: int) -> None:
        with queue.conn.transaction():
            queue.send({"order": number})
            queue.conn.execute("insert into public.orders values (%s)", [key])

    order(1, 1)
    with pytest.raises(psycopg.errors.UniqueViolation):
        order(2, 1)

    assert payloads(queue.claim(10)) == [{"order": 1}]


def test_a_savepoint_rolls_back_only_what_came_after_it(queue: Engine) -> None:
    with queue.conn.transaction():
        queue.send("before")
        with queue.conn.transaction(force_rollback=True):
            queue.send("undone")
        queue.send("after")

    queue.at(T0 + SECOND)
    assert payloads(queue.claim(10)) == ["before", "after"]
    assert queue.claim(10) == []


def test_a_refused_send_behind_a_savepoint_leaves_the_rest(queue: Engine) -> None:
    with queue.conn.transaction():
        queue.send("good")
        with pytest.raises(psycopg.Error), queue.conn.transaction():
            queue.send("bad", priority=99)
        queue.send("good too")

    queue.at(T0 + SECOND)
    assert payloads(queue.claim(10)) == ["good", "good too"]


def test_work_is_done_all_or_nothing(queue: Engine) -> None:
    queue.create("next")
    queue.send("step 1")

    with queue.conn.transaction(force_rollback=True):
        held = queue.claim_one()
        queue.send("step 2", queue="next")
        queue.settle("ack", held["token"], strict=True)
    undone = queue.claim(10, queue="next")
    with queue.conn.transaction():
        held = queue.claim_one()
        queue.send("step 2", queue="next")
        queue.settle("ack", held["token"], strict=True)

    assert undone == []
    assert payloads(queue.claim(10, queue="next")) == ["step 2"]
    assert queue.claim(10) == []
    assert queue.stats()["depth"] == 0


@pytest.mark.parametrize("verb", ["ack", "nack", "release"])
def test_a_settlement_behind_a_savepoint_can_be_undone(queue: Engine, verb: str) -> None:
    sent = queue.send(1)

    with queue.conn.transaction():
        held = queue.claim_one()
        with queue.conn.transaction(force_rollback=True):
            assert queue.settle(verb, held["token"]) == ([sent], [])

    assert queue.settle("ack", held["token"], strict=True) == ([sent], [])


def test_a_split_behind_a_savepoint_can_be_undone(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    token = queue.claim(2)[0]["token"]

    with queue.conn.transaction(), queue.conn.transaction(force_rollback=True):
        queue.settle("extend", token, sent[:1], lease="1 h")

    deadlines = [row["deadline"] for row in queue.rows("held", queue="q", token=token)]
    assert deadlines == [T0 + 30 * SECOND] * 2


def test_creating_a_queue_rolls_back_without_a_trace(engine: Engine) -> None:
    with engine.conn.transaction(force_rollback=True):
        engine.create("q", priorities=[0, 5])
        engine.send(1)

    assert engine.rows("queues") == []
    engine.create("q")
    assert engine.claim(1) == []


def test_the_first_send_of_a_priority_rolls_back_with_its_lane(queue: Engine) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.send(1, priority=7)

    assert queue.look("select array_agg(priority) from holdfast.lane") == [0]
    queue.send("again", priority=7)
    assert payloads(queue.claim(10)) == ["again"]


def test_dropping_a_queue_can_be_rolled_back(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = queue.claim_one()["token"]

    with queue.conn.transaction(force_rollback=True):
        assert queue.value("drop_queue", queue="q") is True

    assert queue.settle("ack", token) == (sent[:1], [])
    assert ids(queue.claim(10)) == sent[1:]


def test_a_queue_takes_exactly_max_depth(engine: Engine) -> None:
    engine.create("q", max_depth=3)
    engine.send_numbers(2)
    engine.send(2)

    with pytest.raises(psycopg.Error) as caught:
        engine.send(3)

    assert caught.value.sqlstate == "QH209"
    assert engine.stats()["depth"] == 3


def test_max_depth_counts_scheduled_and_in_flight_but_not_the_dead(engine: Engine) -> None:
    engine.create("q", max_depth=3, max_deliveries=1)
    engine.kill(engine.send("dead"))
    engine.send(1)
    engine.claim_one()
    engine.send(2, delay="1 h")
    engine.send(3)

    with pytest.raises(psycopg.Error) as caught:
        engine.send(4)

    assert caught.value.sqlstate == "QH209"


def test_a_send_that_adds_nothing_goes_to_a_full_queue(engine: Engine) -> None:
    engine.create("q", max_depth=2)
    replaced, repeated = engine.send("old", key="k"), engine.send(1, idempotency_key="i")

    again = [engine.send("new", key="k"), engine.send(1, idempotency_key="i")]
    both = engine.value(
        "send_many",
        queue="q",
        messages=Jsonb([{"payload": "newer", "key": "k"}, {"payload": 1, "idempotency_key": "i"}]),
    )
    with pytest.raises(psycopg.Error) as caught:
        engine.send(2, key="other")

    assert again == both == [replaced, repeated]
    assert caught.value.sqlstate == "QH209"
    assert engine.stats()["depth"] == 2


@pytest.mark.parametrize(("keys", "fits"), [(["a", "b", "a"], True), (["a", "b", "c"], False)])
def test_only_what_a_batch_adds_counts(engine: Engine, keys: list[str], fits: bool) -> None:
    engine.create("q", max_depth=3)
    engine.send(0)
    messages = Jsonb([{"key": key} for key in keys])

    if fits:
        engine.value("send_many", queue="q", messages=messages)
    else:
        with pytest.raises(psycopg.Error, match="QH209"):
            engine.value("send_many", queue="q", messages=messages)

    assert engine.stats()["depth"] == (3 if fits else 1)


def test_max_depth_holds_for_lines(engine: Engine) -> None:
    engine.create("q", ordering="key", max_depth=2)
    engine.send_numbers(2, ordering_key="a")

    with pytest.raises(psycopg.Error, match="QH209"):
        engine.send(2, ordering_key="a")


def test_acks_make_room_again(engine: Engine) -> None:
    engine.create("q", max_depth=2)
    engine.send_numbers(2)
    engine.settle("ack", engine.claim_one()["token"])

    engine.send("fits")

    assert engine.stats()["depth"] == 2


def test_sends_that_rolled_back_do_not_fill_a_queue(engine: Engine) -> None:
    engine.create("q", max_depth=2)
    for _ in range(5):
        with engine.conn.transaction(force_rollback=True):
            engine.send_numbers(2)

    engine.send_numbers(2)

    assert engine.stats()["depth"] == 2


def test_a_batch_that_does_not_fit_is_refused_as_a_whole(engine: Engine) -> None:
    engine.create("q", max_depth=3)
    engine.send(1)

    with pytest.raises(psycopg.Error) as caught:
        engine.send_numbers(3)

    assert caught.value.sqlstate == "QH209"
    assert engine.stats()["depth"] == 1


def test_a_raised_max_depth_holds_at_once(engine: Engine) -> None:
    engine.create("q", max_depth=1)
    engine.send(1)

    engine.value("configure_queue", queue="q", config={"max_depth": None})
    engine.send_numbers(10)

    assert engine.stats()["depth"] == 11
