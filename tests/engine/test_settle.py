"""ack, release and extend: the fence, parts of a claim, strict.

1. An id counts only while it is in a lease with that token; all else is skipped, and changes nothing.
2. ids null means all under the token; a list means those, in any order, each once.
3. strict raises QH304 when anything is skipped, or the token holds nothing; then nothing is settled. Without
   ids, so it does when a part of what was claimed is gone, unless its holder settled it.
4. ack ends a message; release gives it back uncounted, at once; extend holds it from now on.
5. extend of some ids gives these a lease of their own, under the same token.
6. A token belongs to its queue.
7. A lease that has run out and was swept is lost; one that ran out and nobody swept still counts.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest

from tests.engine.engine import T0, Engine, ids, payloads

SECOND = timedelta(seconds=1)
VERBS = ["ack", "nack", "release", "extend"]


def live(engine: Engine) -> list[int]:
    found: list[int] = engine.look("select coalesce(array_agg(id order by id), '{}') from holdfast.message")
    return found


def test_ack_without_ids_ends_everything_under_the_token(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = queue.claim(2)[0]["token"]

    settled = queue.settle("ack", token)

    assert settled == (sent[:2], [])
    assert live(queue) == sent[2:]


def test_ack_of_some_leaves_the_others_held(queue: Engine) -> None:
    sent = queue.send_numbers(4)
    token = queue.claim(4)[0]["token"]

    settled = queue.settle("ack", token, [sent[2], sent[0]])

    assert settled == ([sent[0], sent[2]], [])
    assert ids(queue.rows("held", queue="q", token=token)) == [sent[1], sent[3]]
    assert queue.claim(10) == []


@pytest.mark.parametrize("verb", VERBS)
def test_ids_that_are_not_held_are_skipped(queue: Engine, verb: str) -> None:
    mine, free = queue.send_numbers(2)
    token = queue.claim_one()["token"]

    settled = queue.settle(verb, token, [mine, free, 42, -1])

    assert settled == ([mine], [-1, 42, free])
    assert free in live(queue)


@pytest.mark.parametrize("verb", VERBS)
def test_a_stale_token_settles_nothing(queue: Engine, verb: str) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]
    before = queue.state()

    assert queue.settle(verb, token + 1 if token < 2**62 else token - 1) == ([], [])
    assert queue.settle(verb, 0, [sent]) == ([], [sent])
    assert queue.settle(verb, -token, [sent]) == ([], [sent])
    assert queue.state() == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_token_counts_in_its_own_queue_only(queue: Engine, verb: str) -> None:
    queue.create("other")
    sent = queue.send(1)
    token = queue.claim_one()["token"]
    before = queue.state()

    assert queue.settle(verb, token, queue="other") == ([], [])
    assert queue.settle(verb, token, [sent], queue="other") == ([], [sent])
    assert queue.state() == before


@pytest.mark.parametrize("verb", VERBS)
def test_an_empty_list_settles_nothing(queue: Engine, verb: str) -> None:
    queue.send(1)
    token = queue.claim_one()["token"]

    assert queue.settle(verb, token, []) == ([], [])
    assert len(queue.rows("held", queue="q", token=token)) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_an_id_named_twice_counts_once(queue: Engine, verb: str) -> None:
    first, second = queue.send_numbers(2)
    token = queue.claim(2)[0]["token"]

    settled = queue.settle(verb, token, [first, first, second, first, 42, 42])

    assert settled == ([first, second], [42])


@pytest.mark.parametrize("verb", VERBS)
def test_strict_refuses_when_one_id_is_not_held_and_settles_none(queue: Engine, verb: str) -> None:
    sent = queue.send_numbers(2)
    token = queue.claim(2)[0]["token"]
    before = queue.state()

    with pytest.raises(psycopg.Error) as caught:
        queue.settle(verb, token, [*sent, 42], strict=True)

    assert caught.value.sqlstate == "QH304"
    assert queue.state() == before


@pytest.mark.parametrize("verb", VERBS)
def test_a_null_among_the_ids_is_skipped_and_strict_refuses_it(queue: Engine, verb: str) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]

    with pytest.raises(psycopg.Error) as caught:
        queue.rows(verb, queue="q", token=token, ids=[sent, None], strict=True)
    (answer,) = queue.rows(verb, queue="q", token=token, ids=[sent, None])

    assert caught.value.sqlstate == "QH304"
    assert str(caught.value.diag.message_detail).endswith(" 1 of the 2 messages: null.")
    assert (answer["settled"], answer["skipped"]) == ([sent], [None])


def test_a_lease_that_is_too_long_is_refused_by_extend(queue: Engine) -> None:
    with pytest.raises(psycopg.Error) as caught:
        queue.settle("extend", 7, lease="178000000 years")

    assert caught.value.sqlstate == "QH302"


@pytest.mark.parametrize("verb", VERBS)
def test_strict_refuses_a_token_that_holds_nothing(queue: Engine, verb: str) -> None:
    queue.send(1)
    token = queue.claim_one()["token"]
    queue.settle("ack", token)

    with pytest.raises(psycopg.Error) as caught:
        queue.settle(verb, token, strict=True)

    assert caught.value.sqlstate == "QH304"


@pytest.mark.parametrize("verb", VERBS)
def test_strict_passes_when_all_is_held(queue: Engine, verb: str) -> None:
    sent = queue.send_numbers(2)
    token = queue.claim(2)[0]["token"]

    assert queue.settle(verb, token, sent[:1], strict=True) == (sent[:1], [])


def part_swept(queue: Engine) -> None:
    """Only the lane of the low priority is swept."""
    queue.at(T0 + 40 * SECOND)
    queue.conn.execute(
        "select holdfast._sweep_lane(l, holdfast.now(), false) from holdfast.lane l where l.priority = 0"
    )


def part_kept_by_a_locked_message(queue: Engine) -> None:
    """The sweep leaves one message in the lease, because somebody has it locked."""
    queue.at(T0 + 40 * SECOND)
    with psycopg.connect(queue.conn.info.dsn, password=queue.conn.info.password) as other:
        other.execute("select from holdfast.message order by id desc limit 1 for update")
        queue.value("sweep", queue="q")


def part_discarded(queue: Engine) -> None:
    queue.value("discard", queue="q", ids=live(queue)[:1])


def part_extended(queue: Engine) -> None:
    """The others run out."""
    token = queue.look("select token from holdfast.lease where ids <> '{}' limit 1")
    queue.settle("extend", token, live(queue)[:1])
    queue.at(T0 + 40 * SECOND)
    queue.settle("extend", token, live(queue)[:1])
    queue.value("sweep", queue="q")


@pytest.mark.parametrize("lose", [part_swept, part_kept_by_a_locked_message, part_discarded, part_extended])
@pytest.mark.parametrize("verb", VERBS)
def test_strict_refuses_a_token_that_has_lost_a_part(
    queue: Engine, verb: str, lose: Callable[[Engine], None]
) -> None:
    for priority in (5, 5, 0, 0):
        queue.send(priority=priority)
    token = queue.claim(max=4)[0]["token"]
    lose(queue)
    held = queue.look("select sum(cardinality(ids)) from holdfast.lease")

    with pytest.raises(psycopg.Error) as caught:
        queue.settle(verb, token, strict=True)

    assert caught.value.sqlstate == "QH304"
    assert str(caught.value.diag.message_detail).startswith(f"This token holds {held} of the 4 messages")
    assert len(queue.settle(verb, token)[0]) == held


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("earlier", ["ack", "nack", "release"])
def test_strict_does_not_miss_what_the_holder_has_settled(queue: Engine, verb: str, earlier: str) -> None:
    for priority in (5, 5, 0, 0, 0):
        queue.send(priority=priority)
    claimed = queue.claim(max=5)
    token, held = claimed[0]["token"], ids(claimed)
    queue.settle(earlier, token, [held[0], held[3]])
    queue.settle(earlier, token, [held[4]])

    assert queue.settle(verb, token, strict=True)[0] == sorted(held[1:3])


def test_a_strict_ack_undoes_the_callers_work_with_it(queue: Engine) -> None:
    queue.conn.execute("create table public.done (n int)")
    sent = queue.send(1)
    held = queue.claim_one(lease="1 s")
    queue.at(T0 + 2 * SECOND)
    queue.value("sweep", queue="q")

    def work() -> None:
        with queue.conn.transaction():
            queue.conn.execute("insert into public.done values (1)")
            queue.settle("ack", held["token"], [sent], strict=True)

    with pytest.raises(psycopg.Error) as caught:
        work()

    assert caught.value.sqlstate == "QH304"
    assert queue.look("select count(*) from public.done") == 0


def test_an_ack_that_rolls_back_leaves_the_lease(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]

    with queue.conn.transaction(force_rollback=True):
        queue.settle("ack", token)

    assert queue.claim(1) == []
    assert queue.settle("ack", token) == ([sent], [])


@pytest.mark.parametrize("verb", VERBS)
def test_settling_spans_priorities(queue: Engine, verb: str) -> None:
    sent = sorted(queue.send(p, priority=p) for p in (0, 5, 9))
    token = queue.claim(3)[0]["token"]

    assert queue.settle(verb, token, strict=True) == (sent, [])


def test_release_gives_back_at_once_and_uncounted(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    token = queue.claim(2)[0]["token"]

    released = queue.settle("release", token)
    rows = queue.claim(2)

    assert released == (sent, [])
    assert ids(rows) == sent
    assert [row["deliveries"] for row in rows] == [1, 1]


def test_a_message_can_be_released_without_end(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.send("still here")

    for _ in range(5):
        engine.settle("release", engine.claim_one()["token"])

    assert payloads(engine.claim(1)) == ["still here"]


def test_extend_holds_from_now_on(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one(lease="10 s")["token"]

    queue.at(T0 + 8 * SECOND)
    extended = queue.settle("extend", token, lease="10 s")
    queue.at(T0 + 17 * SECOND)

    assert extended == ([sent], [])
    assert queue.claim(1) == []
    assert queue.rows("held", queue="q", token=token)[0]["deadline"] == T0 + 18 * SECOND


def test_extend_without_a_lease_takes_the_queues(engine: Engine) -> None:
    engine.create("q", lease="45 s")
    engine.send(1)
    token = engine.claim_one(lease="1 s")["token"]

    engine.settle("extend", token)

    assert engine.rows("held", queue="q", token=token)[0]["deadline"] == T0 + 45 * SECOND


def test_extend_can_shorten_a_lease(queue: Engine) -> None:
    queue.send(1)
    token = queue.claim_one(lease="1 h")["token"]

    queue.settle("extend", token, lease="1 s")
    queue.at(T0 + 2 * SECOND)

    assert payloads(queue.claim(1)) == [1]


def test_extend_of_some_gives_them_their_own_deadline_under_the_same_token(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = queue.claim(3, lease="10 s")[0]["token"]

    extended = queue.settle("extend", token, sent[:1], lease="60 s")
    deadlines = {row["id"]: row["deadline"] for row in queue.rows("held", queue="q", token=token)}
    queue.at(T0 + 11 * SECOND)
    back = queue.claim(10)

    assert extended == (sent[:1], [])
    assert deadlines == {sent[0]: T0 + 60 * SECOND, sent[1]: T0 + 10 * SECOND, sent[2]: T0 + 10 * SECOND}
    assert ids(back) == sent[1:]
    assert queue.settle("ack", token) == (sent[:1], [])


def test_a_split_lease_can_be_split_again_and_settled_as_one(queue: Engine) -> None:
    sent = queue.send_numbers(4)
    token = queue.claim(4)[0]["token"]

    for some in (sent[:1], sent[1:3], sent[2:3]):
        assert queue.settle("extend", token, some, lease="1 h") == (some, [])

    assert queue.settle("ack", token, strict=True) == (sent, [])
    assert live(queue) == []


def test_a_lease_that_ran_out_and_was_swept_is_lost(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one(lease="1 s")["token"]
    queue.at(T0 + 1 * SECOND)

    swept = queue.value("sweep", queue="q")

    assert swept == 1
    assert queue.settle("ack", token, [sent]) == ([], [sent])
    assert live(queue) == [sent]


def test_the_new_holder_is_not_disturbed_by_the_old_one(queue: Engine) -> None:
    sent = queue.send(1)
    old = queue.claim_one(lease="1 s")["token"]
    queue.at(T0 + 2 * SECOND)
    new = queue.claim_one()

    late = [queue.settle(verb, old, [sent]) for verb in VERBS]

    assert new["deliveries"] == 2
    assert late == [([], [sent])] * 4
    assert queue.settle("ack", new["token"]) == ([sent], [])


def test_an_ack_after_the_deadline_counts_while_nobody_swept(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one(lease="1 s")["token"]

    queue.at(T0 + 60 * SECOND)

    assert queue.settle("ack", token, [sent]) == ([sent], [])


def test_what_comes_behind_is_not_delivered_twice_when_a_claim_is_acked_out_of_order(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    first, second, third = (queue.claim(2)[0]["token"] for _ in range(3))

    for token in (second, third, first):
        queue.settle("ack", token)

    assert queue.claim(10) == []
    assert live(queue) == []
    assert len(sent) == 6


@pytest.mark.parametrize("verb", [*VERBS, "held", "next"])
def test_settling_in_a_queue_that_is_not_there_is_an_error(queue: Engine, verb: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        queue.rows(verb, queue="nowhere", token=1)

    assert caught.value.sqlstate == "QH101"


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_a_null_token_is_an_error(queue: Engine, verb: str) -> None:
    queue.send(1)
    queue.claim(1)

    with pytest.raises(psycopg.Error) as refused:
        queue.row(verb, queue="q", token=None)

    assert refused.value.sqlstate == "QH304"
