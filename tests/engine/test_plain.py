"""The short ways of claim and ack: what they take over from the long ones, condition by condition.

1. Where a lane is calm, a claim leases the next ids as one range, and an ack of the token settles that range.
2. Such an ack settles nothing twice, nothing of another queue, and nothing that it was not asked for.
3. It settles nothing under a lease of another database. A lane whose mark is gone or wrong is booted first.
4. It removes a lease that the cursor has passed, and leaves one above it, empty.
5. A lease of which something was settled, extended or discarded on its own is no range any more.
6. A claim that took from several lanes is settled in all of them.
7. A claim takes the long way where something is due, a message has expired or is delayed, or the
   answer would be too large; and if the time for a look lies implausibly far ahead.
8. The cursor register does not follow claims of an open transaction.
"""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, Row, ids, payloads

NINE_SECONDS = 9_000_000  # microseconds
LEASE_LOST = "QH304"


def calm(engine: Engine) -> None:
    """Let claims take the short way for a while."""
    engine.conn.execute(
        "select setval(l.care_at, holdfast._us(clock_timestamp()) + %s) from holdfast.lane l", [NINE_SECONDS]
    )


def claim_range(engine: Engine, count: int = 1) -> list[Row]:
    """Claim messages the short way."""
    calm(engine)
    rows = engine.claim(count)
    assert len(rows) == count
    assert engine.look("select lo is not null from holdfast.lease where token = %s", rows[0]["token"])
    return rows


def leases(engine: Engine, token: int) -> list[list[int]]:
    """The ids in the leases of a token."""
    found = engine.conn.execute("select ids from holdfast.lease where token = %s", [token]).fetchall()
    return [row[0] for row in found]


def left(engine: Engine) -> list[int]:
    """The ids of all messages there are."""
    return [id for (id,) in engine.conn.execute("select id from holdfast.message order by id").fetchall()]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("named", [True, False])
def test_an_ack_settles_the_range_and_nothing_else(queue: Engine, count: int, named: bool) -> None:
    sent = queue.send_numbers(5)
    rows = claim_range(queue, count)

    settled = queue.settle("ack", rows[0]["token"], ids(rows) if named else None, strict=True)

    assert settled == (sent[:count], [])
    assert left(queue) == sent[count:]


@pytest.mark.parametrize("passed", ["before", "between", "never"])
def test_a_second_ack_settles_nothing(queue: Engine, passed: str) -> None:
    queue.send_numbers(2)
    (row,) = claim_range(queue)
    if passed == "before":
        claim_range(queue)
    queue.settle("ack", row["token"])
    if passed == "between":
        claim_range(queue)

    assert queue.settle("ack", row["token"]) == ([], [])
    assert queue.settle("ack", row["token"], [row["id"]]) == ([], [row["id"]])
    with pytest.raises(psycopg.Error) as caught:
        queue.settle("ack", row["token"], strict=True)
    assert caught.value.sqlstate == LEASE_LOST


@pytest.mark.parametrize("passed", [True, False])
def test_an_ack_under_another_queues_name_settles_nothing(queue: Engine, passed: bool) -> None:
    queue.create("other")
    sent = queue.send_numbers(2)
    (row,) = claim_range(queue)
    if passed:
        claim_range(queue)

    assert queue.settle("ack", row["token"], queue="other") == ([], [])
    assert left(queue) == sent


@pytest.mark.parametrize("passed", [True, False])
def test_an_ack_of_some_ids_leaves_the_others(queue: Engine, passed: bool) -> None:
    sent = queue.send_numbers(4)
    rows = claim_range(queue, 3)
    if passed:
        claim_range(queue)

    some = queue.settle("ack", rows[0]["token"], sent[1:2])

    assert some == (sent[1:2], [])
    assert left(queue) == [sent[0], *sent[2:]]
    assert queue.settle("ack", rows[0]["token"]) == ([sent[0], sent[2]], [])


@pytest.mark.parametrize("passed", [True, False])
def test_an_ack_of_a_lease_that_came_from_another_database_settles_nothing(
    queue: Engine, passed: bool
) -> None:
    sent = queue.send_numbers(2)
    (row,) = claim_range(queue)
    if passed:
        claim_range(queue)
    # What a copy of the database brings along: a lease, and marks that are not this database's.
    queue.conn.execute("update holdfast.boot set database_oid = 1")
    queue.conn.execute("select setval(l.booted, 7) from holdfast.lane l")

    assert queue.settle("ack", row["token"]) == ([], [])
    assert queue.settle("ack", row["token"], [row["id"]]) == ([], [row["id"]])
    assert left(queue) == sent


def test_a_lane_that_was_never_seen_booted_is_booted_before_it_hands_out_anything(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    claim_range(queue)
    queue.conn.execute("truncate holdfast.boot")
    queue.conn.execute("select setval(l.booted, 7) from holdfast.lane l")
    calm(queue)

    assert queue.claim(10) == []
    assert ids(queue.claim(10)) == sent


def test_a_lane_whose_registers_a_crash_has_emptied_is_booted(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    claim_range(queue)
    # What PostgreSQL does to unlogged tables and sequences.
    queue.conn.execute("truncate holdfast.lease, holdfast.gap, holdfast.boot, holdfast.tally")
    queue.conn.execute(
        "do $$ declare v_register regclass; begin"
        " for v_register in select c.oid from pg_class c where c.relnamespace = 'holdfast'::regnamespace"
        " and c.relkind = 'S' and c.relpersistence = 'u' loop"
        " execute format('alter sequence %s restart', v_register); end loop; end $$"
    )
    assert queue.look("select pg_sequence_last_value(l.booted) is null from holdfast.lane l")

    assert queue.claim(10) == []
    assert ids(queue.claim(10)) == sent


def test_a_boot_that_is_rolled_back_leaves_no_mark(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    (row,) = claim_range(queue)
    queue.conn.execute("update holdfast.boot set database_oid = 1")
    queue.conn.execute("select setval(l.booted, 7) from holdfast.lane l")

    with queue.conn.transaction(force_rollback=True):
        assert queue.claim(10) == []
        assert ids(queue.claim(10)) == sent

    assert queue.settle("ack", row["token"], [row["id"]]) == ([], [row["id"]])
    assert queue.claim(10) == []
    assert ids(queue.claim(10)) == sent


def test_a_mark_that_fits_spares_the_look_at_the_boot_row(queue: Engine) -> None:
    queue.send_numbers(2)
    claim_range(queue)
    queue.conn.execute("truncate holdfast.boot")

    (row,) = claim_range(queue)

    assert queue.settle("ack", row["token"]) == ([row["id"]], [])


def test_an_ack_removes_a_lease_that_the_cursor_has_passed(queue: Engine) -> None:
    queue.send_numbers(2)
    (row,) = claim_range(queue)
    claim_range(queue)

    queue.settle("ack", row["token"])

    assert leases(queue, row["token"]) == []


def test_an_ack_leaves_a_lease_above_the_cursor_empty(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    (row,) = claim_range(queue)

    queue.settle("ack", row["token"])

    assert leases(queue, row["token"]) == [[]]
    assert ids(claim_range(queue)) == sent[1:]
    assert queue.look("select count(*) from holdfast.gap") == 0


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_a_range_of_which_some_was_settled_is_settled_in_parts(queue: Engine, verb: str) -> None:
    sent = queue.send_numbers(3)
    token = claim_range(queue, 3)[0]["token"]
    queue.settle(verb, token, sent[1:2])

    settled, skipped = queue.settle("ack", token)

    held = sent if verb == "extend" else [sent[0], sent[2]]
    assert (settled, skipped) == (held, [])
    assert left(queue) == ([] if verb in ("ack", "extend") else sent[1:2])


@pytest.mark.parametrize("verb", ["nack", "release", "extend"])
def test_an_ack_of_what_is_left_of_a_range_leaves_what_was_taken_out_of_it(queue: Engine, verb: str) -> None:
    sent = queue.send_numbers(3)
    token = claim_range(queue, 3)[0]["token"]
    queue.settle(verb, token, sent[1:2])

    settled = queue.settle("ack", token, [sent[0], sent[2]], strict=True)

    assert settled == ([sent[0], sent[2]], [])
    assert left(queue) == sent[1:2]


@pytest.mark.parametrize("passed", [True, False])
def test_an_extend_of_a_lease_that_came_from_another_database_extends_nothing(
    queue: Engine, passed: bool
) -> None:
    queue.send_numbers(2)
    (row,) = claim_range(queue)
    if passed:
        claim_range(queue)
    queue.conn.execute("update holdfast.boot set database_oid = 1")
    queue.conn.execute("select setval(l.booted, 7) from holdfast.lane l")

    assert queue.settle("extend", row["token"], [row["id"]]) == ([], [row["id"]])


@pytest.mark.parametrize("named", [True, False])
def test_an_ack_does_not_claim_to_have_settled_what_was_discarded(queue: Engine, named: bool) -> None:
    sent = queue.send_numbers(3)
    token = claim_range(queue, 3)[0]["token"]
    queue.value("discard", queue="q", ids=sent[1:2])

    answer = queue.settle("ack", token, sent if named else None)

    assert answer == ([sent[0], sent[2]], sent[1:2] if named else [])


def test_a_lease_that_ran_out_in_part_is_settled_in_the_part_that_is_left(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = claim_range(queue, 3)[0]["token"]
    queue.settle("extend", token, sent[:1], lease="1 h")
    queue.at(T0 + timedelta(minutes=1))
    queue.value("sweep", queue="q")

    assert queue.settle("ack", token) == (sent[:1], [])
    assert left(queue) == sent[1:]


def test_a_claim_from_several_lanes_is_settled_in_all_of_them(queue: Engine) -> None:
    low = queue.send_numbers(3)
    high = queue.send_numbers(2, priority=9)
    calm(queue)
    rows = queue.claim(5)

    settled = queue.settle("ack", rows[0]["token"], strict=True)

    assert ids(rows) == [*high, *low]
    assert settled == (sorted([*low, *high]), [])
    assert left(queue) == []


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_due_comes_before_the_next_of_a_range(queue: Engine, count: int) -> None:
    sent = queue.send_numbers(3)
    (row,) = claim_range(queue)
    queue.settle("nack", row["token"], delay="0 s")
    calm(queue)

    assert ids(queue.claim(count)) == sent[:count]


@pytest.mark.parametrize("count", [1, 3])
def test_delayed_and_expired_messages_are_not_taken_as_part_of_a_range(queue: Engine, count: int) -> None:
    queue.claim(1)
    queue.send("delayed", delay="1 h")
    queue.send("expired", ttl="1 s")
    queue.send("good")
    queue.at(T0 + timedelta(seconds=2))
    calm(queue)

    assert payloads(queue.claim(count)) == ["good"]


@pytest.mark.parametrize("count", [1, 2])
def test_an_expired_message_that_is_next_is_not_taken(queue: Engine, count: int) -> None:
    queue.send("expired", ttl="1 s")
    queue.send("good")
    queue.at(T0 + timedelta(seconds=2))
    calm(queue)

    assert payloads(queue.claim(count)) == ["good"]


def test_an_expired_message_in_the_midst_of_a_range_is_not_taken(queue: Engine) -> None:
    queue.send(1)
    queue.send("expired", ttl="1 s")
    queue.send(2)
    queue.at(T0 + timedelta(seconds=2))
    calm(queue)

    assert payloads(queue.claim(3)) == [1, 2]


def test_a_range_with_more_bytes_than_an_answer_holds_is_not_taken_whole(queue: Engine) -> None:
    queue.value("configure_queue", queue="q", config={"max_payload": 64 << 20})
    queue.conn.execute("alter table holdfast.message alter payload set storage external")
    for n in range(3):
        queue.send(str(n) * (7 << 20))
    calm(queue)

    first, second = queue.claim(3), queue.claim(3)

    assert (len(first), len(second)) == (2, 1)


def test_a_claim_looks_with_care_if_the_time_for_that_lies_implausibly_far_ahead(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    queue.claim(1, lease="1 s")
    queue.at(T0 + timedelta(minutes=1))
    queue.conn.execute(
        "select setval(l.care_at, holdfast._us(clock_timestamp()) + 3600000000) from holdfast.lane l"
    )

    assert ids(queue.claim(10)) == sent


@pytest.mark.parametrize("count", [1, 2])
def test_claims_of_an_open_transaction_do_not_move_the_cursor(queue: Engine, count: int) -> None:
    sent = queue.send_numbers(4 * count)
    queue.claim(count)
    before = queue.look("select pg_sequence_last_value(l.cursor) from holdfast.lane l")

    with queue.conn.transaction(force_rollback=True):
        taken = [id for _ in range(3) for id in ids(claim_range(queue, count))]

    assert taken == sent[count:]
    cursor = queue.look("select pg_sequence_last_value(l.cursor) from holdfast.lane l")
    assert cursor in (before, sent[count])
    calm(queue)
    assert ids(queue.claim(4 * count)) == sent[count:]


def test_a_range_is_handed_out_with_everything_the_long_way_says(queue: Engine) -> None:
    options: Row = {"tag": "t", "headers": Jsonb({"h": 1}), "content_type": "text/x", "max_deliveries": 7}
    for n in range(4):
        queue.send(n, **options)

    (long,) = queue.claim(1)
    (one,) = claim_range(queue)
    two = claim_range(queue, 2)

    same = [{k: v for k, v in row.items() if k not in ("token", "id", "payload")} for row in (one, *two)]
    assert same == 3 * [{k: v for k, v in long.items() if k not in ("token", "id", "payload")}]
    assert payloads([long, one, *two]) == [0, 1, 2, 3]
