"""Gaps: which transactions may still own missing ids, and when a gap is dropped.

1. Every send holds a transaction id and its lock on the messages before it draws message ids.
2. A horizon lies above every owner: also above one that the snapshot's xmax does not know yet, and also when
   the claim's own transaction id is older than an owner.
3. An idle open writer elsewhere does not keep gaps of rolled-back sends alive; an open sender keeps its own.
4. A prepared transaction that owns ids keeps its gap until it ends, either way.
5. Gaps of rolled-back sends do not pile up: claims in a busy loop, claims after writes, next(), many lanes.
6. However many gaps stay open, a commit into one of them is found within a few walks.
7. Gaps that keep opening do not put off the look at those that are there.
"""

from __future__ import annotations

import pytest

from tests.isolation.scene import Scene, Session
from tests.waiting import eventually

LOCKS = """
select (select count(*) from pg_locks where pid = %(pid)s and locktype = 'transactionid'
          and mode = 'ExclusiveLock' and granted),
       (select count(*) from pg_locks where pid = %(pid)s and relation = 'holdfast.message'::regclass
          and mode = 'RowExclusiveLock' and granted)
"""

SENDS = {
    "send": "select holdfast.send('q')",
    "send_batch": "select holdfast.send_batch('q', array['1', '2']::jsonb[])",
    "send_many": """select holdfast.send_many('q', '[{"payload": 1}, {"payload": 2}]')""",
    "inbox": "insert into holdfast.inbox (queue, payload) values ('q', '1')",
    "redrive": "select holdfast.redrive('from', target => 'q')",
    "nack": "select holdfast.nack('from', (select token from holdfast.lease where ids <> '{}'))",
}


def look(scene: Scene, consumer: Session, times: int = 3) -> list[int]:
    """Claims that look at all gaps thoroughly, though it is not time; what they got."""
    taken = []
    for _ in range(times):
        scene.set_register("gap_look", 1)
        taken += consumer.take()
    return taken


def step_over(scene: Scene, sender: Session) -> int:
    """Let the cursor pass the open sender's ids: something after them is sent, claimed and acked."""
    passing = scene.session("passing")
    id = passing.send()
    deliveries = passing.claim()
    passing.ack(deliveries[0].token)
    assert [delivery.id for delivery in deliveries] == [id]
    assert len(scene.gaps()) > 0, f"the ids of {sender.name} were not passed"
    return id


@pytest.mark.parametrize("kind", SENDS)
def test_a_send_has_its_transaction_id_and_lock_before_it_draws_an_id(scene: Scene, kind: str) -> None:
    config = '{"dead_letter": "q", "max_deliveries": 1}'
    scene.watcher.execute("select holdfast.create_queue('from', %s)", [config])
    scene.watcher.execute("select holdfast.send('from') from generate_series(1, 2)")
    scene.watcher.execute("select holdfast.nack('from', token) from holdfast.claim('from')")
    scene.watcher.execute("select holdfast.claim('from')")
    blocker, sender = scene.session("blocker"), scene.session("sender")
    blocker.begin().execute(f"alter sequence holdfast.ids_{scene.lane()} owned by none")
    pending = sender.start(lambda: sender.execute(SENDS[kind])).blocked_by(blocker)

    held = scene.watcher.execute(LOCKS, {"pid": sender.pid})
    blocker.rollback()
    pending.result()

    assert held == [(1, 1)]


def test_an_owner_that_the_snapshot_does_not_know_yet_keeps_its_gap(scene: Scene) -> None:
    early, owner, consumer = scene.session("early"), scene.session("owner"), scene.session("consumer")
    early.begin().execute("select pg_current_xact_id()")
    owner.begin()
    late = owner.send()  # the newest transaction: xmax of every snapshot until something newer ends
    early.send()
    early.commit()
    known = scene.watcher.value("select pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    consumer.ack(consumer.claim()[0].token)

    looks = look(scene, consumer)
    owner_id = owner.value("select pg_current_xact_id()::text::bigint")
    owner.commit()

    assert known == owner_id
    assert looks == []
    assert look(scene, consumer) == [late]


def test_a_claim_older_than_the_owner_gives_the_gap_no_horizon_of_its_own(scene: Scene) -> None:
    owner, consumer = scene.session("owner"), scene.session("consumer")
    consumer.begin().execute("select pg_current_xact_id()")
    owner.begin()
    late = owner.send()
    early = scene.watcher.send()
    (delivery,) = consumer.claim()
    consumer.ack(delivery.token)
    consumer.commit()

    looks = look(scene, consumer)
    owner.commit()

    assert delivery.id == early
    assert looks == []
    assert look(scene, consumer) == [late]


def test_a_second_window_of_one_claim_gives_its_gaps_no_horizon_that_is_too_low(scene: Scene) -> None:
    owners, consumer = scene.sessions("owner", 3), scene.session("consumer")
    late = []
    for owner in owners:
        owner.begin()
        late.append(owner.send())
        consumer.execute("select holdfast.send('q', delay => '1 hour') from generate_series(1, 1100)")
    taken = consumer.take()

    looks = look(scene, consumer)
    for owner in reversed(owners):
        owner.commit()

    assert (taken, looks) == ([], [])
    assert look(scene, consumer) == late


def test_gaps_of_rolled_back_sends_are_dropped_though_a_writer_elsewhere_is_open(scene: Scene) -> None:
    writer, sender, consumer = scene.session("writer"), scene.session("sender"), scene.session("consumer")
    scene.watcher.execute("create table elsewhere (n int)")
    writer.begin().execute("insert into elsewhere values (1)")
    sender.begin().send()
    sender.send()
    step_over(scene, sender)
    sender.rollback()

    eventually(lambda: look(scene, consumer) == [] and not scene.gaps(), what="the gap is dropped")

    writer.commit()


def test_an_open_sender_keeps_its_gap_though_an_older_writer_elsewhere_is_open(scene: Scene) -> None:
    writer, sender, consumer = scene.session("writer"), scene.session("sender"), scene.session("consumer")
    writer.begin().execute("select pg_current_xact_id()")
    sender.begin()
    late = sender.send()
    step_over(scene, sender)

    looks = look(scene, consumer, times=6)
    kept = scene.gaps()
    sender.commit()

    assert looks == []
    assert kept == [(late, late)]
    assert look(scene, consumer) == [late]
    writer.rollback()


def test_a_sender_idle_since_its_send_keeps_its_gap(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = sender.send()
    step_over(scene, sender)
    for _ in range(5):  # newer senders come and go
        scene.watcher.send()
        consumer.ack(consumer.claim()[0].token)

    looks = look(scene, consumer)
    sender.commit()

    assert looks == []
    assert look(scene, consumer) == [late]


def test_a_sender_that_waits_for_a_lock_keeps_its_gap(scene: Scene) -> None:
    sender, blocker, consumer = scene.session("sender"), scene.session("blocker"), scene.session("consumer")
    scene.watcher.execute("create table elsewhere (n int)")
    blocker.begin().execute("lock table elsewhere")
    sender.begin()
    late = sender.send()
    waiting = sender.start(lambda: sender.execute("select * from elsewhere")).blocked_by(blocker)
    step_over(scene, sender)

    looks = look(scene, consumer)
    blocker.rollback()
    waiting.result()
    sender.commit()

    assert looks == []
    assert look(scene, consumer) == [late]


@pytest.mark.parametrize("writer_elsewhere", [True, False])
def test_a_prepared_sender_keeps_its_gap_until_it_commits(scene: Scene, writer_elsewhere: bool) -> None:
    sender, writer, consumer = scene.session("sender"), scene.session("writer"), scene.session("consumer")
    if writer_elsewhere:
        writer.begin().execute("select pg_current_xact_id()")
    sender.begin()
    late = sender.send()
    sender.prepare("late")
    step_over(scene, sender)

    looks = look(scene, consumer, times=6)
    sender.commit_prepared("late")

    assert looks == []
    assert look(scene, consumer) == [late]
    if writer_elsewhere:
        writer.rollback()


def test_the_gap_of_a_prepared_sender_that_rolls_back_is_dropped(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin().send()
    sender.prepare("never")
    step_over(scene, sender)
    sender.rollback_prepared("never")

    eventually(lambda: look(scene, consumer) == [] and not scene.gaps(), what="the gap is dropped")


def test_a_prepared_claim_holds_its_lane_and_then_its_messages(scene: Scene) -> None:
    consumer, other = scene.session("consumer"), scene.session("other")
    id = other.send()
    consumer.begin()
    (delivery,) = consumer.claim()
    consumer.prepare("claim")
    blocked = other.start(other.take).result()
    consumer.commit_prepared("claim")

    after = other.take()

    assert (blocked, after) == ([], [])
    assert other.ack(delivery.token).settled == [id]


def test_a_prepared_ack_is_done_when_it_commits(scene: Scene) -> None:
    scene.clock()
    consumer, other = scene.session("consumer"), scene.session("other")
    id = consumer.send()
    (delivery,) = consumer.claim(lease="30 s")
    consumer.begin().ack(delivery.token)
    consumer.prepare("ack")
    scene.clock("31 s")

    swept = other.sweep()
    taken = other.take()
    consumer.commit_prepared("ack")

    assert (swept, taken) == (0, [])
    assert scene.journal.ended[id] == 1
    assert scene.drain() == []


def lose_one(scene: Scene, doomed: Session) -> None:
    """A send that is rolled back, and one after it that is not."""
    doomed.begin().send()
    doomed.rollback()
    scene.watcher.send()


def test_gaps_do_not_pile_up_under_a_consumer_that_always_finds_something(scene: Scene) -> None:
    doomed, consumer = scene.session("doomed"), scene.session("consumer")
    for _ in range(60):
        lose_one(scene, doomed)
        scene.set_register("gap_look", 1)
        consumer.ack(consumer.claim()[0].token)

    assert len(scene.gaps()) < 10
    scene.journal.check_exactly_once()


def test_gaps_do_not_pile_up_under_claims_that_always_follow_a_write(scene: Scene) -> None:
    scene.watcher.execute("select holdfast.create_queue('another')")  # its lane is not the only one
    doomed, consumer = scene.session("doomed"), scene.session("consumer")
    for _ in range(30):
        doomed.begin().send("another")
        doomed.rollback()
        scene.watcher.send("another")
        consumer.begin().execute("select pg_current_xact_id()")
        consumer.ack(consumer.claim(queue="another")[0].token, queue="another")
        consumer.commit()
        consumer.execute("select holdfast.maintain()")
        scene.set_register("gap_look", 1, "another")

    assert len(scene.gaps("another")) < 10


def test_gaps_do_not_pile_up_under_next_with_maintenance(scene: Scene) -> None:
    scene.watcher.execute("select holdfast.create_queue('another')")
    doomed, consumer = scene.session("doomed"), scene.session("consumer")
    scene.watcher.send("another")
    token = consumer.claim(queue="another")[0].token
    for _ in range(30):
        doomed.begin().send("another")
        doomed.rollback()
        scene.watcher.send("another")
        scene.set_register("gap_look", 1, "another")
        token = consumer.next(token, queue="another")[0].token
        consumer.execute("select holdfast.maintain()")

    assert len(scene.gaps("another")) < 10


def test_emptied_leases_do_not_pile_up(scene: Scene) -> None:
    scene.clock()
    consumer = scene.session("consumer")
    for n in range(60):
        scene.clock(f"{100 * n} ms")
        consumer.send()
        consumer.ack(consumer.claim()[0].token)

    leases = scene.watcher.value("select count(*) from holdfast.lease")

    assert leases < 10


GAPS_THAT_STAY = """
insert into holdfast.gap (lane_id, lo, hi, horizon)
select %(lane)s, (%(lane)s::bigint << 40) + n, (%(lane)s::bigint << 40) + n, '9000000000'
from (select generate_series(-25000, -1) as n union all select generate_series(1000000, 1000099)) g
"""


def test_a_late_commit_is_found_behind_more_gaps_than_one_walk_takes(scene: Scene) -> None:
    late, prompt, consumer = scene.session("late"), scene.session("prompt"), scene.session("consumer")
    sent = late.begin().send()
    others = prompt.send()
    scene.clock("1 s")
    assert consumer.take() == [others]
    scene.watcher.execute(GAPS_THAT_STAY, {"lane": scene.lane()})

    late.commit()

    found = []
    for _ in range(3):
        scene.set_register("gap_walk", 0)
        found += look(scene, consumer, times=1)
    assert found == [sent]


def test_new_gaps_do_not_put_off_the_look_at_old_ones(scene: Scene) -> None:
    looks = []
    for id in (scene.first_id(), scene.first_id() + 2):
        scene.watcher.execute(
            "select holdfast._open_gaps(l, array[%(id)s::bigint], array[%(id)s::bigint], false)"
            " from holdfast.lane l where l.id = %(lane)s",
            {"id": id, "lane": scene.lane()},
        )
        looks.append(scene.register("gap_look"))

    assert looks[0] == looks[1] > 0
