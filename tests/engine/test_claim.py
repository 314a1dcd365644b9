"""claim and next: taking messages under a lease.

1. claim hands out at most max messages under one token, and nothing twice while the lease lives.
2. Tokens are random positive 63-bit numbers; two claims never share one.
3. The deadline is now + lease: the argument's, else the queue's.
4. A claim that rolls back never happened.
5. claim bounds what the rest of the caller's transaction may take, unless the caller has done so.
6. Only `alone => true` lowers synchronous_commit, only for due messages, and only for this transaction.
7. next acks everything under the token and claims again, in one call.
8. One answer is at most 16 MiB; a larger message goes alone.
9. A lane that an open claim holds is waited for, not for ever: then the answer is empty.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, ids, payloads

MIB = 1024 * 1024


def setting(engine: Engine, name: str) -> Any:
    return engine.look("select current_setting(%s)", name)


def test_an_empty_queue_gives_nothing(queue: Engine) -> None:
    assert queue.claim(10) == []


def test_a_claim_takes_at_most_max(queue: Engine) -> None:
    sent = queue.send_numbers(5)

    assert ids(queue.claim(2)) == sent[:2]
    assert ids(queue.claim()) == sent[2:3]
    assert ids(queue.claim(100)) == sent[3:]
    assert queue.claim(100) == []


def test_max_is_one_unless_told(queue: Engine) -> None:
    queue.send_numbers(3)

    assert len(queue.rows("claim", queue="q")) == 1


def test_max_spans_priorities_under_one_token(queue: Engine) -> None:
    for priority in (0, 0, 5, 5):
        queue.send(priority, priority=priority)

    rows = queue.claim(3)

    assert payloads(rows) == [5, 5, 0]
    assert len({row["token"] for row in rows}) == 1


def test_ten_thousand_can_be_claimed_at_once(queue: Engine) -> None:
    sent = queue.send_numbers(10_001)

    assert ids(queue.claim(10_000)) == sent[:10_000]
    assert ids(queue.claim(10_000)) == sent[10_000:]


def test_tokens_are_random_and_positive(queue: Engine) -> None:
    queue.send_numbers(50)

    tokens = [queue.claim_one()["token"] for _ in range(50)]

    assert len(set(tokens)) == 50
    assert all(0 <= token < 2**63 for token in tokens)
    assert max(tokens) > 2**56


def test_the_lease_is_the_arguments_else_the_queues(engine: Engine) -> None:
    engine.create("q", lease="2 min")
    engine.send_numbers(2)

    default, own = engine.claim_one(), engine.claim_one(lease="100 ms")

    assert default["deadline"] == T0 + timedelta(minutes=2)
    assert own["deadline"] == T0 + timedelta(milliseconds=100)


def test_deliveries_count_from_one(queue: Engine) -> None:
    queue.send(1)

    first = queue.claim_one()
    queue.settle("nack", first["token"], delay="0 s")
    second = queue.claim_one()

    assert (first["deliveries"], second["deliveries"]) == (1, 2)


def test_what_was_released_comes_before_what_is_fresh(queue: Engine) -> None:
    first, second, third = queue.send_numbers(3)
    held = queue.claim_one()
    queue.settle("release", held["token"])

    assert ids(queue.claim(10)) == [first, second, third]


def test_a_claim_that_rolls_back_never_happened(queue: Engine) -> None:
    sent = queue.send_numbers(3)

    with queue.conn.transaction(force_rollback=True):
        assert ids(queue.claim(2)) == sent[:2]

    rows = queue.claim(10)
    assert ids(rows) == sent
    assert [row["deliveries"] for row in rows] == [1, 1, 1]


def test_a_claim_of_due_messages_that_rolls_back_never_happened(queue: Engine) -> None:
    queue.send("due", delay="1 s")
    queue.at(T0 + timedelta(seconds=1))

    with queue.conn.transaction(force_rollback=True):
        assert payloads(queue.claim(2)) == ["due"]

    assert payloads(queue.claim(2)) == ["due"]


def test_two_claims_in_one_transaction_take_different_messages(queue: Engine) -> None:
    sent = queue.send_numbers(3)

    with queue.conn.transaction():
        first, second = queue.claim(1), queue.claim(1)

    assert ids(first) + ids(second) == sent[:2]
    assert ids(queue.claim(10)) == sent[2:]


def test_a_claim_rolled_back_to_a_savepoint_gives_its_messages_back(queue: Engine) -> None:
    sent = queue.send_numbers(2)

    with queue.conn.transaction():
        with queue.conn.transaction(force_rollback=True):
            assert ids(queue.claim(1)) == sent[:1]
        assert ids(queue.claim(1)) == sent[:1]

    assert ids(queue.claim(10)) == sent[1:]


def test_a_send_is_claimable_within_its_own_transaction(queue: Engine) -> None:
    with queue.conn.transaction():
        sent = queue.send(1)
        assert ids(queue.claim(1)) == [sent]

    assert queue.claim(1) == []


@pytest.mark.parametrize(("before", "after"), [("0", "1min"), ("5s", "5s"), ("2h", "2h")])
def test_the_rest_of_the_callers_transaction_gets_a_minute_unless_it_has_limits_of_its_own(
    queue: Engine, before: str, after: str
) -> None:
    names = ["statement_timeout", "idle_in_transaction_session_timeout"]
    for name in names:
        queue.conn.execute("select set_config(%s, %s, false)", [name, before])
    queue.send(1)

    with queue.conn.transaction():
        queue.claim(1)
        within = [setting(queue, name) for name in names]

    assert within == [after, after]
    assert [setting(queue, name) for name in names] == [before, before]


@pytest.mark.parametrize(
    ("delay", "alone", "expected"),
    [(None, True, "off"), (None, False, "on"), ("1 s", False, "on"), ("1 s", True, "off")],
)
def test_only_a_lone_claim_lowers_synchronous_commit(
    queue: Engine, delay: str | None, alone: bool, expected: str
) -> None:
    queue.send(1, delay=delay)
    queue.at(T0 + timedelta(seconds=1))

    with queue.conn.transaction():
        assert len(queue.claim(1, alone=alone)) == 1
        within = setting(queue, "synchronous_commit")

    assert within == expected
    assert setting(queue, "synchronous_commit") == "on"


def test_a_claim_lowers_nothing_where_something_was_written_before(queue: Engine) -> None:
    queue.send(1)

    with queue.conn.transaction():
        queue.send(2)
        assert len(queue.claim(1, alone=True)) == 1
        assert setting(queue, "synchronous_commit") == "on"


def test_next_never_lowers_synchronous_commit(queue: Engine) -> None:
    queue.send(1)
    held = queue.claim_one()
    queue.send(2, delay="1 s")
    queue.at(T0 + timedelta(seconds=1))

    with queue.conn.transaction():
        assert payloads(queue.rows("next", queue="q", token=held["token"], alone=True)) == [2]
        assert setting(queue, "synchronous_commit") == "on"


def test_next_acks_all_and_claims_again(queue: Engine) -> None:
    sent = queue.send_numbers(5)
    held = queue.claim(2)

    rows = queue.rows("next", queue="q", token=held[0]["token"], max=2, lease="5 s", consumer="c")

    assert ids(rows) == sent[2:4]
    assert rows[0]["token"] != held[0]["token"]
    assert rows[0]["deadline"] == T0 + timedelta(seconds=5)
    assert queue.look("select array_agg(id order by id) from holdfast.message") == sent[2:]
    assert queue.rows("leases", queue="q")[0]["consumer"] == "c"


def test_next_without_a_token_claims(queue: Engine) -> None:
    sent = queue.send_numbers(2)

    assert ids(queue.rows("next", queue="q", token=None)) == sent[:1]


def test_next_with_a_stale_token_settles_nothing_and_claims(queue: Engine) -> None:
    sent = queue.send_numbers(2)

    rows = queue.rows("next", queue="q", token=12345)

    assert ids(rows) == sent[:1]
    assert queue.look("select count(*) from holdfast.message") == 2


def test_next_with_a_stale_token_and_strict_claims_nothing(queue: Engine) -> None:
    queue.send_numbers(2)
    before = queue.state()

    with pytest.raises(psycopg.Error) as caught:
        queue.rows("next", queue="q", token=12345, strict=True)

    assert caught.value.sqlstate == "QH304"
    assert queue.state() == before


def test_a_bad_next_does_not_ack(queue: Engine) -> None:
    queue.send_numbers(2)
    held = queue.claim_one()
    before = queue.state()

    with pytest.raises(psycopg.Error) as caught:
        queue.rows("next", queue="q", token=held["token"], max=0)

    assert caught.value.sqlstate == "QH301"
    assert queue.state() == before


def send_bytes(engine: Engine, size: int, **options: Any) -> None:
    """A body that cannot be compressed."""
    engine.value("send", queue="q", body=random.Random(1).randbytes(size), **options)


def test_one_answer_has_at_most_sixteen_mebibytes(queue: Engine) -> None:
    for _ in range(20):
        send_bytes(queue, MIB)

    first, second = queue.claim(20), queue.claim(20)

    assert 14 <= len(first) <= 16
    assert len(first) + len(second) == 20


def test_due_messages_are_cut_at_sixteen_mebibytes_too(queue: Engine) -> None:
    for _ in range(20):
        send_bytes(queue, MIB, delay="1 s")
    queue.at(T0 + timedelta(seconds=1))

    first, second = queue.claim(20), queue.claim(20)

    assert 14 <= len(first) <= 17
    assert len(first) + len(second) == 20


def test_due_messages_of_an_ordered_queue_are_cut_at_sixteen_mebibytes_too(engine: Engine) -> None:
    engine.create("q", ordering="key")
    for n in range(40):
        send_bytes(engine, MIB, delay="1 s", ordering_key=f"line {n}")
    engine.at(T0 + timedelta(seconds=1))

    taken = [len(engine.claim(40)) for _ in range(3)]

    assert all(14 <= count <= 17 for count in taken[:2])
    assert sum(taken) == 40


def test_a_message_over_sixteen_mebibytes_goes_alone(engine: Engine) -> None:
    engine.create("q", max_payload=20 * MIB)
    send_bytes(engine, 17 * MIB)
    engine.send("small")

    first, second = engine.claim(10), engine.claim(10)

    assert [len(row["body"]) for row in first] == [17 * MIB]
    assert payloads(second) == ["small"]


def test_a_lane_in_an_open_claim_gives_an_empty_answer_to_others(open_engine: Open, queue: Engine) -> None:
    queue.send_numbers(2)
    other = open_engine()

    with queue.conn.transaction():
        queue.claim(1)
        meanwhile = other.claim(1)

    assert meanwhile == []
    assert payloads(other.claim(1)) == [1]


def test_a_lease_of_another_session_is_respected(open_engine: Open, queue: Engine) -> None:
    sent = queue.send_numbers(2)
    queue.claim(1)

    assert ids(open_engine().claim(10)) == sent[1:]


def test_ids_that_a_rolled_back_send_left_out_are_stepped_over(queue: Engine) -> None:
    first = queue.send(1)
    with queue.conn.transaction(force_rollback=True):
        queue.send_numbers(3)
    last = queue.send(2)
    queue.at(T0 + timedelta(seconds=1))

    assert last == first + 4
    assert ids(queue.claim(10)) == [first, last]
    assert queue.claim(10) == []


def test_a_send_that_commits_late_is_delivered_though_the_cursor_has_passed_it(
    open_engine: Open, queue: Engine
) -> None:
    late = open_engine()
    with late.conn.transaction():
        late.send("late")
        queue.send("early")
        queue.at(T0 + timedelta(seconds=1))
        assert payloads(queue.claim(10)) == ["early"]
        assert queue.claim(10) == []

    assert payloads(queue.claim(10)) == ["late"]
    assert queue.claim(10) == []
