"""sweep, maintain and the audit: what was left behind comes back.

1. sweep ends leases that have run out, says how many messages that freed, and leaves live ones alone.
2. claim sweeps by itself: every 250 ms, or at once if the last sweep freed something, for that may be undone.
3. Messages that somebody has locked (an ack in an open transaction) stay leased; nobody waits for them.
4. A lease above the cursor register is emptied, not deleted: nothing is handed out twice.
5. maintain sweeps, audits and counts all lanes, and tells what it did; a lane that is busy is skipped.
6. The audit finds a message that no lease holds and nobody would hand out, and makes it due; it leaves alone
   what is held, scheduled, fresh, or locked.
"""

from __future__ import annotations

from datetime import timedelta

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, ids, payloads

SECOND = timedelta(seconds=1)
MOMENT = timedelta(microseconds=1)


def test_sweep_ends_what_ran_out_and_nothing_else(queue: Engine) -> None:
    sent = queue.send_numbers(5)
    queue.claim(2, lease="1 s")
    queue.claim(2, lease="10 s")

    queue.at(T0 + SECOND - MOMENT)
    early = queue.value("sweep", queue="q")
    queue.at(T0 + SECOND)
    freed = queue.value("sweep", queue="q")

    assert (early, freed) == (0, 2)
    assert ids(queue.claim(10)) == [sent[0], sent[1], sent[4]]


def test_sweep_spans_priorities_and_shards(engine: Engine) -> None:
    engine.create("q", shards=3, priorities=[0, 5])
    engine.send_numbers(5)
    engine.send_numbers(5, priority=5)
    engine.claim(10, lease="1 s")
    engine.at(T0 + SECOND)

    assert engine.value("sweep", queue="q") == 10
    assert engine.value("sweep", queue="q") == 0


def test_sweep_ends_leases_of_due_messages(queue: Engine) -> None:
    queue.send("due", delay="1 s")
    queue.at(T0 + SECOND)
    queue.claim_one(lease="1 s")
    queue.at(T0 + 2 * SECOND)

    assert queue.value("sweep", queue="q") == 1
    assert queue.claim_one()["deliveries"] == 2


def test_sweep_ends_parts_of_a_split_lease_one_by_one(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = queue.claim(3, lease="1 s")[0]["token"]
    queue.settle("extend", token, sent[1:2], lease="5 s")

    queue.at(T0 + SECOND)
    first = queue.value("sweep", queue="q")
    queue.at(T0 + 5 * SECOND)
    second = queue.value("sweep", queue="q")

    assert (first, second) == (2, 1)
    assert ids(queue.claim(10)) == [sent[0], sent[2], sent[1]]


def test_many_leases_are_ended_over_several_calls_if_need_be(queue: Engine) -> None:
    queue.send_numbers(1000)
    queue.conn.execute(
        "do $$ begin for i in 1 .. 1000 loop perform holdfast.claim('q', lease => '1 s'); commit;"
        " end loop; end $$"
    )
    queue.at(T0 + SECOND)

    freed = 0
    for _ in range(1000):
        freed += queue.value("sweep", queue="q")
        if freed == 1000:
            break

    assert freed == 1000
    assert len(queue.claim(1000)) == 1000


def test_claim_sweeps_by_itself(queue: Engine) -> None:
    sent = queue.send(1)
    queue.claim_one(lease="1 s")
    queue.at(T0 + 2 * SECOND)

    assert ids(queue.claim(1)) == [sent]


def test_claim_sweeps_again_after_a_quarter_of_a_second(queue: Engine) -> None:
    sent = queue.send(1)
    queue.claim_one(lease="100 ms")
    queue.at(T0 + timedelta(milliseconds=90))
    queue.value("sweep", queue="q")

    queue.at(T0 + timedelta(milliseconds=341))

    assert ids(queue.claim(1)) == [sent]


def test_a_claim_that_is_undone_does_not_put_off_what_it_swept(queue: Engine) -> None:
    queue.send("once more")
    queue.claim(1, lease="1 s")
    queue.at(T0 + SECOND)

    with queue.conn.transaction(force_rollback=True):
        undone = payloads(queue.claim(1))
    again = payloads(queue.claim(1))

    assert (undone, again) == (["once more"], ["once more"])


def test_nobody_waits_for_an_ack_in_an_open_transaction(open_engine: Open, queue: Engine) -> None:
    sent = queue.send_numbers(2)
    token = queue.claim(2, lease="1 s")[0]["token"]
    other = open_engine()
    other.conn.execute("set lock_timeout = '2 s'")
    queue.at(T0 + 2 * SECOND)

    with queue.conn.transaction():
        settled = queue.settle("ack", token, sent[:1])
        swept = other.value("sweep", queue="q")
        meanwhile = other.claim(10)

    assert settled == (sent[:1], [])
    assert (swept, meanwhile) == (0, [])
    other.at(T0 + 3 * SECOND)
    assert ids(other.claim(10)) == sent[1:]


def test_nobody_waits_for_a_message_that_is_locked(open_engine: Open, queue: Engine) -> None:
    sent = queue.send_numbers(2)
    queue.claim(2, lease="1 s")
    other = open_engine()
    other.conn.execute("set lock_timeout = '2 s'")
    queue.at(T0 + 2 * SECOND)

    with queue.conn.transaction():
        queue.conn.execute("select from holdfast.message where id = %s for update", [sent[0]])
        swept = other.value("sweep", queue="q")
        queue.at(T0 + 3 * SECOND)

    assert swept == 1
    assert other.value("sweep", queue="q") == 1
    assert sorted(ids(other.claim(10))) == sent


def test_expiry_of_the_newest_lease_does_not_hand_it_out_as_fresh_too(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    queue.claim(2, lease="1 s")
    queue.at(T0 + SECOND)
    queue.value("sweep", queue="q")

    rows = queue.claim(10)

    assert ids(rows) == sent
    assert [row["deliveries"] for row in rows] == [2, 2]
    assert queue.claim(10) == []


def test_maintain_tells_what_it_did(queue: Engine) -> None:
    queue.create("other")
    queue.send_numbers(3)
    queue.claim(3, lease="1 s")
    queue.at(T0 + SECOND)

    did = queue.value("maintain", budget="10 s")

    assert {name: did[name] for name in ("lanes", "busy", "booted", "swept", "found", "done")} == {
        "lanes": 2,
        "busy": 0,
        "booted": 0,
        "swept": 3,
        "found": 0,
        "done": True,
    }


def test_a_round_of_maintain_goes_on_from_call_to_call(queue: Engine) -> None:
    for n in range(11):
        queue.create(f"q{n}")
    calls = [queue.value("maintain", budget="1 ms")]
    while not calls[-1]["done"]:
        calls.append(queue.value("maintain", budget="1 ms"))

    assert sum(call["queues"] for call in calls) >= 12
    assert sum(call["sampled"] for call in calls) == 12
    assert queue.look("select count(*) from holdfast.probe") == 12


def test_the_full_count_goes_on_from_call_to_call(queue: Engine) -> None:
    queue.send_numbers(25_000, delay="1 h")
    first = queue.value("maintain", budget="1 ms")
    so_far = queue.stats()["scheduled"]
    while not queue.value("maintain", budget="1 ms")["done"]:
        pass

    assert first["done"] is False
    assert so_far == 10_001
    assert queue.stats()["scheduled"] == 25_000


def test_maintain_without_queues_has_nothing_to_do(engine: Engine) -> None:
    did = engine.value("maintain")

    assert (did["lanes"], did["done"]) == (0, True)


def test_maintain_skips_a_lane_that_is_busy(open_engine: Open, queue: Engine) -> None:
    queue.send(1)

    with queue.conn.transaction():
        queue.claim(1)
        did = open_engine().value("maintain")

    assert (did["lanes"], did["busy"]) == (1, 1)


def strand(queue: Engine) -> int:
    """A message that the cursor has passed, and that no lease holds: as a defect would leave it."""
    stranded = queue.send("stranded")
    queue.claim_one()
    queue.send("other")
    queue.settle("ack", queue.claim_one()["token"])
    queue.claim(1)
    queue.conn.execute("delete from holdfast.lease where ids <> '{}'")
    assert queue.claim(10) == []
    return stranded


def test_the_audit_makes_a_stranded_message_due(queue: Engine) -> None:
    stranded = strand(queue)

    did = queue.value("maintain")

    assert did["found"] == 1
    assert ids(queue.claim(10)) == [stranded]


def test_the_audit_finds_a_stranded_message_that_came_by_the_due_path(queue: Engine) -> None:
    sent = queue.send("due", delay="1 s")
    queue.at(T0 + SECOND)
    queue.send("fresh")
    queue.claim(2)
    queue.send("next")
    queue.claim(1)
    queue.claim(1)
    queue.conn.execute("delete from holdfast.lease where %s = any (ids)", [sent])

    found = queue.value("maintain")["found"]

    assert found == 1
    assert ids(queue.claim(10)) == [sent]


def test_the_audit_leaves_everything_else_alone(queue: Engine) -> None:
    sent = queue.send_numbers(4)
    held = queue.claim(2)
    queue.settle("extend", held[0]["token"], sent[:1], lease="1 h")
    queue.send("scheduled", delay="1 h")
    queue.claim(1)
    queue.claim(1)
    queue.send("fresh")
    queue.claim(1)
    queue.send("fresh too")

    did = queue.value("maintain")

    assert did["found"] == 0
    assert payloads(queue.claim(10)) == ["fresh too"]


def test_the_audit_goes_on_where_it_stopped_and_starts_over(queue: Engine) -> None:
    queue.send_numbers(5000)
    queue.claim(5000)
    queue.send("last")
    queue.claim(1)
    queue.claim(1)
    queue.conn.execute("delete from holdfast.lease")

    found = [queue.value("maintain")["found"] for _ in range(4)]

    assert found == [2000, 2000, 1001, 0]
    assert len(queue.claim(10_000)) == 5001


def test_the_audit_does_not_wait_for_an_ack_in_an_open_transaction(open_engine: Open, queue: Engine) -> None:
    queue.send_numbers(2)
    token = queue.claim_one()["token"]
    queue.claim(1)
    queue.claim(1)
    other = open_engine()
    other.conn.execute("set lock_timeout = '2 s'")

    with queue.conn.transaction():
        queue.settle("ack", token)
        did = other.value("maintain")

    assert did["found"] == 0
    assert other.value("maintain")["found"] == 0
    assert other.claim(10) == []
