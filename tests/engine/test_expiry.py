"""Expiry: messages end when their time to live is over.

1. maintain ends what nobody claims: fresh, due, scheduled, parked, in a gap; once, and no other.
2. A message in flight does not expire, unless the queue says expire_in_flight.
3. With it, whoever looks first ends the message: maintain, the sweep, or the settlement itself. Its id
   leaves the lease, the rest of the lease stays, and ack, nack, release and extend skip it.
4. Expiry is bounded: a call takes what it can in some 20 ms, and says that there is more.
   expire ends the messages of one queue, on request, up to a limit.
5. The cursor passes what expired ahead of it, and nothing is stranded behind it.
6. The walk goes on where it stopped, and comes back for what it passed over; a clock set back starts it over.
7. The dead letter has no time to live; one of a message that was in flight too long is still a dead letter.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, payloads
from tests.waiting import eventually

SECOND = timedelta(seconds=1)
LATER = T0 + 60 * SECOND


def expired(engine: Engine) -> int:
    """Upkeep until it is done: how many messages it ended."""
    ended = 0
    while True:
        did = engine.value("maintain")
        ended += int(did["expired"])
        if did["done"]:
            return ended


def left(engine: Engine) -> list[object]:
    """The payloads of all messages there are, by id."""
    rows = engine.conn.execute("select payload from holdfast.message order by id").fetchall()
    return [payload for (payload,) in rows]


def leased(engine: Engine) -> list[tuple[int | None, list[int]]]:
    """Each lease that holds something: lo, and the ids."""
    rows = engine.conn.execute(
        "select lo, ids from holdfast.lease where ids <> '{}' order by upto"
    ).fetchall()
    return [(lo, list(ids)) for lo, ids in rows]


@pytest.fixture
def hasty(engine: Engine) -> Engine:
    """A queue whose messages also expire in flight."""
    engine.create("q", expire_in_flight=True)
    return engine


def test_a_fresh_message_expires_without_a_claim(queue: Engine) -> None:
    queue.send("short", ttl="60 s")
    queue.send("long", ttl="61 s")
    queue.send("for ever")
    queue.at(LATER)

    assert [expired(queue), expired(queue)] == [1, 0]
    assert left(queue) == ["long", "for ever"]
    assert payloads(queue.claim(10)) == ["long", "for ever"]


def test_a_message_that_was_sent_too_late_expires(queue: Engine) -> None:
    queue.send("stale", expires_at="1960-01-01Z")
    queue.send("just now", expires_at=T0)

    assert expired(queue) == 2


def test_the_queues_own_ttl_expires_messages_without_a_claim(engine: Engine) -> None:
    engine.create("q", ttl="60 s")
    engine.send_numbers(3)
    engine.send("own", ttl="2 min")
    engine.at(LATER)

    assert expired(engine) == 3
    assert left(engine) == ["own"]


def test_a_scheduled_message_expires_before_its_time_comes(queue: Engine) -> None:
    queue.send("never", ttl="60 s", delay="1 h")
    queue.at(LATER)

    assert expired(queue) == 1
    assert queue.stats()["depth"] == 0


def test_a_message_that_was_given_back_expires_while_it_waits(queue: Engine) -> None:
    queue.send("nacked", ttl="60 s")
    queue.settle("nack", queue.claim_one()["token"], delay="2 min")
    queue.at(LATER)

    assert expired(queue) == 1
    assert left(queue) == []


def test_a_parked_message_expires(queue: Engine) -> None:
    id = queue.send("parked", ttl="60 s")
    queue.conn.execute("update holdfast.message set due_at = 'infinity' where id = %s", [id])
    queue.at(LATER)

    assert expired(queue) == 1
    assert left(queue) == []


def test_a_message_that_came_late_behind_the_cursor_expires(queue: Engine) -> None:
    late = queue.send("late", ttl="60 s")
    queue.send("taken")
    queue.conn.execute("create temp table hidden as select * from holdfast.message where id = %s", [late])
    queue.conn.execute("delete from holdfast.message where id = %s", [late])
    assert payloads(queue.claim(2)) == ["taken"]
    queue.conn.execute("insert into holdfast.message select * from hidden")
    queue.at(T0 + 20 * SECOND)
    queue.conn.execute("update holdfast.message set expires_at = %s where id = %s", [T0, late])

    assert expired(queue) == 1
    assert left(queue) == ["taken"]


def test_a_message_in_flight_does_not_expire(queue: Engine) -> None:
    id = queue.send("busy", ttl="60 s")
    token = queue.claim_one(lease="1 h")["token"]
    queue.at(LATER)

    assert expired(queue) == 0
    assert queue.settle("ack", token) == ([id], [])


def test_what_was_in_flight_expires_once_it_is_given_back(queue: Engine) -> None:
    queue.send("busy", ttl="60 s")
    token = queue.claim_one(lease="1 h")["token"]
    queue.at(LATER)
    assert expired(queue) == 0
    queue.settle("release", token)

    eventually(lambda: expired(queue) == 1, what="the walk comes back")
    assert left(queue) == []


def test_expire_in_flight_takes_the_message_out_of_its_lease(hasty: Engine) -> None:
    ids = [hasty.send(n, ttl=ttl) for n, ttl in enumerate(("60 s", "2 h", "60 s"))]
    token = hasty.claim(3, lease="1 h")[0]["token"]
    hasty.at(LATER)

    assert expired(hasty) == 2
    assert leased(hasty) == [(None, [ids[1]])]
    assert hasty.settle("ack", token, ids) == ([ids[1]], [ids[0], ids[2]])


def test_an_overdue_message_in_flight_still_has_its_idempotency_key(hasty: Engine) -> None:
    first = hasty.send(1, ttl="60 s", idempotency_key="k")
    hasty.claim(1, lease="1 h")
    hasty.at(LATER)

    assert hasty.send(1, ttl="60 s", idempotency_key="k") == first
    assert expired(hasty) == 1
    assert hasty.send(1, ttl="60 s", idempotency_key="k") != first


def test_a_lease_that_claims_short_way_made_loses_its_range(queue: Engine) -> None:
    ids = queue.send_numbers(3, ttl="60 s")
    token = queue.claim(3, lease="1 h")[0]["token"]
    assert leased(queue) == [(ids[0], ids)]
    queue.value("configure_queue", queue="q", config={"expire_in_flight": True})
    queue.at(LATER)

    assert expired(queue) == 3
    assert queue.look("select count(*) from holdfast.lease where lo is not null") == 0
    assert queue.settle("ack", token) == ([], [])


def test_a_redelivered_message_expires_in_flight(hasty: Engine) -> None:
    id = hasty.send("again", ttl="60 s")
    hasty.settle("release", hasty.claim_one()["token"])
    token = hasty.claim_one(lease="1 h")["token"]
    hasty.at(LATER)

    assert expired(hasty) == 1
    assert hasty.settle("ack", token, [id]) == ([], [id])


@pytest.mark.parametrize("verb", ["ack", "nack", "release"])
def test_a_settlement_after_the_time_to_live_is_skipped_before_anybody_else_looked(
    hasty: Engine, verb: str
) -> None:
    ids = [hasty.send(n, ttl=ttl) for n, ttl in enumerate(("60 s", "2 h"))]
    token = hasty.claim(2, lease="1 h")[0]["token"]
    hasty.at(LATER)

    assert hasty.settle(verb, token, ids) == ([ids[1]], [ids[0]])
    assert left(hasty) == ([] if verb == "ack" else [1])


def test_an_extension_after_the_time_to_live_is_skipped(hasty: Engine) -> None:
    ids = [hasty.send(n, ttl=ttl) for n, ttl in enumerate(("60 s", "2 h"))]
    token = hasty.claim(2, lease="1 h")[0]["token"]
    hasty.at(LATER)

    assert hasty.settle("extend", token, ids=ids) == ([ids[1]], [ids[0]])


def test_the_sweep_ends_what_expired_in_flight_instead_of_burying_it(engine: Engine) -> None:
    engine.create("q", expire_in_flight=True, max_deliveries=1)
    engine.send("old", ttl="60 s")
    engine.claim_one(lease="30 s")
    engine.at(LATER)

    assert engine.value("sweep", queue="q") == 1
    assert engine.stats()["dead"] == 0
    assert left(engine) == []


def test_without_it_the_sweep_buries_a_message_whose_deliveries_are_used_up(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.send("old", ttl="60 s")
    engine.claim_one(lease="30 s")
    engine.at(LATER)
    engine.value("sweep", queue="q")
    expired(engine)

    (dead,) = engine.rows("browse", queue="q", state="dead")
    assert (dead["payload"], dead["expires_at"]) == ("old", None)


def test_expiry_is_bounded_and_says_that_there_is_more(queue: Engine) -> None:
    for _ in range(3):
        queue.send_numbers(10_000, ttl="60 s")
    queue.at(LATER)
    rounds = [queue.value("maintain") for _ in range(2)]
    while not rounds[-1]["done"]:
        rounds.append(queue.value("maintain"))

    assert not rounds[0]["done"]
    assert max(round["expired"] for round in rounds) < 30_000
    assert sum(round["expired"] for round in rounds) == 30_000


def test_expire_ends_messages_of_one_queue_up_to_a_limit(queue: Engine) -> None:
    queue.create("other", ttl="60 s")
    for priority in (0, 5):
        queue.send_numbers(30, ttl="60 s", priority=priority)
    queue.send("other", queue="other")
    queue.send("living")
    queue.at(LATER)

    calls = [queue.row("expire", queue="q", limit=25) for _ in range(3)]

    assert [(call["expired"], call["more"]) for call in calls] == [(25, True), (25, True), (10, False)]
    assert left(queue) == ["living", "other"]
    assert payloads(queue.claim(10)) == ["living"]


def test_expire_leaves_a_lane_alone_that_somebody_holds(queue: Engine, open_engine: Open) -> None:
    queue.send("overdue", ttl="60 s")
    queue.send("living")
    queue.at(LATER)
    other = open_engine()
    with other.conn.transaction():
        assert payloads(other.claim(1)) == ["living"]

        # The claim that met it has ended it, in the open transaction.
        assert queue.row("expire", queue="q") == {"expired": 0, "more": True}

    assert queue.row("expire", queue="q") == {"expired": 0, "more": False}


@pytest.mark.parametrize(
    ("given", "code"), [({"limit": 0}, "QH402"), ({"limit": 10_001}, "QH402"), ({"queue": "none"}, "QH101")]
)
def test_expire_refuses_what_it_does_not_know(queue: Engine, given: dict[str, Any], code: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        queue.row("expire", **{"queue": "q"} | given)

    assert caught.value.sqlstate == code


def test_the_cursor_passes_what_expired_ahead_of_it(queue: Engine) -> None:
    last = queue.send_numbers(100, ttl="60 s")[-1]
    queue.at(LATER)
    assert expired(queue) == 100
    assert queue.claim(1) == []

    queue.send("new")

    assert payloads(queue.claim(1)) == ["new"]
    assert queue.look("select max(upto) from holdfast.lease") == last + 2
    assert queue.look("select count(*) from holdfast.gap") == 0


def test_a_living_head_stays_where_it_is(queue: Engine) -> None:
    queue.send("head")
    queue.send_numbers(5, ttl="60 s")
    queue.send("tail")
    queue.at(LATER)

    assert expired(queue) == 5
    assert payloads(queue.claim(5)) == ["head", "tail"]


def test_messages_in_flight_do_not_hide_those_behind_them(queue: Engine) -> None:
    queue.send_numbers(2500, ttl="30 s")
    held = queue.claim(2500, lease="1 h")
    queue.send("waiting", ttl="60 s")
    queue.at(LATER)

    assert len(held) == 2500
    assert expired(queue) == 1


def test_a_clock_that_is_set_back_starts_the_walk_over(queue: Engine) -> None:
    lane = queue.look("select id from holdfast.lane")
    queue.conn.execute("select setval(format('holdfast.expiry_at_%%s', %s::int), 9e15::bigint)", [lane])
    queue.send("short", ttl="60 s")
    queue.at(LATER)

    assert expired(queue) == 1


def test_a_walk_that_was_dear_goes_on_from_its_place_until_its_time_comes(queue: Engine) -> None:
    lane = queue.look("select id from holdfast.lane")
    queue.send("below", ttl="10 s")
    queue.send("above", ttl="40 s")
    queue.at(LATER)

    def register(name: str, value: str) -> None:
        queue.conn.execute(f"select setval('holdfast.{name}_{lane}', {value})".encode())

    register("expiry_at", "holdfast._us('2030-01-01 00:00:30Z')")
    register("expiry_walk", "holdfast._us(clock_timestamp() + interval '30 s')")

    assert (expired(queue), left(queue)) == (1, ["below"])

    register("expiry_walk", "1")

    assert (expired(queue), left(queue)) == (1, [])
