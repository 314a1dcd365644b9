"""Messages as rows, against everybody else.

1. A claim that is open keeps take waiting for a bounded time; then it takes nothing, and later nothing
   that was claimed.
2. Rows that somebody has locked without taking them are claimed all the same, or passed over: never both had.
3. take and an ack of a lease that is over: whoever comes first has it, and the other learns that.
4. Whoever has a row and wants the lane gives way to one who has the lane and wants the row.
5. Two takes of the same rows: one gets them, rolled back or not.
6. The cursor that follows takes does not pass over a send that is open.
"""

from __future__ import annotations

import pytest

from tests.isolation.scene import Scene, Session

QUEUE = "rows"
LOCK = """
select id from holdfast.row_message
where queue = 'rows' and visible_at <= holdfast.now() and deliveries < max_deliveries
order by id for update skip locked limit 10
"""


@pytest.fixture
def rows(scene: Scene) -> Scene:
    """A scene with a queue whose messages are rows."""
    scene.watcher.execute("select holdfast.create_queue('rows', '{\"by_row\": true}')")
    return scene


def locked(session: Session) -> list[int]:
    """The rows that a statement which is about to take them has locked."""
    return [row[0] for row in session.execute(LOCK)]


def test_an_open_claim_makes_take_return_empty(rows: Scene) -> None:
    consumer, taker = rows.sessions("consumer", 2)
    ids = [taker.send(QUEUE) for _ in range(3)]
    consumer.begin().claim(2, QUEUE)

    pending = taker.start(lambda: taker.take_ids(ids, QUEUE)).blocked_by(consumer)
    empty = pending.result()
    at_once = taker.take_ids(ids, QUEUE, patient=False)
    consumer.commit()

    assert (empty, at_once) == ([], [])
    assert taker.take_ids(ids, QUEUE) == ids[2:]


def test_a_fresh_message_that_is_locked_is_claimed_and_then_not_taken(rows: Scene) -> None:
    taker, consumer = rows.sessions("consumer", 2)
    ids = [taker.send(QUEUE) for _ in range(2)]
    taker.begin()
    mine = locked(taker)

    claimed = consumer.take(1, QUEUE)
    taken = taker.take_ids(mine, QUEUE)
    taker.commit()

    assert (mine, claimed, taken) == (ids, ids[:1], ids[1:])


def test_a_due_message_that_is_locked_is_passed_over_and_then_taken(rows: Scene) -> None:
    rows.clock()
    taker, consumer = rows.sessions("consumer", 2)
    ids = [taker.send(QUEUE, delay="1 s") for _ in range(2)]
    rows.clock("2 s")
    taker.begin()
    mine = locked(taker)

    claimed = consumer.take(5, QUEUE)
    taken = taker.take_ids(mine, QUEUE)
    taker.commit()

    assert (mine, claimed, taken) == (ids, [], ids)


def test_what_an_open_ack_ends_is_not_taken(rows: Scene) -> None:
    rows.clock()
    holder, taker = rows.sessions("consumer", 2)
    id = holder.send(QUEUE)
    (held,) = holder.claim(1, QUEUE, lease="1 s")
    rows.clock("2 s")
    holder.begin().ack(held.token, queue=QUEUE)

    taken = taker.take_ids([id], QUEUE)
    holder.commit()

    assert taken == taker.take_ids([id], QUEUE) == []
    assert rows.messages() == 0


def test_an_ack_that_waited_for_a_take_learns_that_it_came_too_late(rows: Scene) -> None:
    rows.clock()
    holder, taker = rows.sessions("consumer", 2)
    id = holder.send(QUEUE)
    (held,) = holder.claim(1, QUEUE, lease="1 s")
    rows.clock("2 s")
    rows.journal.expired([id])
    taker.begin()
    taken = taker.take_ids([id], QUEUE)

    pending = holder.start(lambda: holder.ack(held.token, [id], queue=QUEUE)).blocked_by(taker)
    taker.commit()

    assert taken == [id]
    assert pending.result() == ([], [id])


def test_who_has_a_row_and_wants_the_lane_gives_way(rows: Scene) -> None:
    holder, taker = rows.sessions("consumer", 2)
    ids = [holder.send(QUEUE) for _ in range(2)]
    holder.begin()
    (held,) = holder.claim(1, QUEUE)
    taker.begin()
    mine = locked(taker)

    pending = holder.start(lambda: holder.next(held.token, 5, QUEUE)).blocked_by(taker)
    taken = taker.take_ids(mine, QUEUE)
    taker.commit()

    assert (mine, taken) == (ids, [])
    assert [delivery.id for delivery in pending.result()] == ids[1:]
    holder.commit()


@pytest.mark.parametrize("commits", [True, False])
def test_two_takes_of_the_same_rows_share_nothing(rows: Scene, commits: bool) -> None:
    first, second = rows.sessions("taker", 2)
    rows.patient()
    ids = [first.send(QUEUE) for _ in range(3)]
    first.begin()
    taken = first.take_ids(ids, QUEUE)

    pending = second.start(lambda: second.take_ids(ids, QUEUE)).blocked_by(first)
    if commits:
        first.commit()
    else:
        first.rollback()

    assert taken == ids
    assert pending.result() == ([] if commits else ids)


def test_the_cursor_that_follows_leaves_an_open_send_to_be_found(rows: Scene) -> None:
    sender, taker = rows.sessions("session", 2)
    taker.send(QUEUE)
    late = sender.begin().send(QUEUE)
    many = taker.value("select holdfast.send_batch('rows', array_fill('1'::jsonb, array[1200]))")
    taker.account_sent(many)
    first = locked(taker)[0]
    for wanted in ([first, *many[:1100]], many[1100:1150]):
        taken = taker.claim_of(wanted, QUEUE)
        taker.ack(taken[0].token, queue=QUEUE)

    passed = taker.value("select max(upto) from holdfast.lease")
    sender.commit()
    rest = rows.drain(QUEUE)

    assert passed > many[1000]
    assert sorted(rest) == sorted([late, *many[1150:]])
