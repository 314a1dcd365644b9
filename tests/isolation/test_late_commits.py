"""Sends that commit late: after the cursor has passed their ids.

1. Whatever the order in which many open senders end, every committed message is delivered exactly once, and
   no other: one at a time, in batches, with claims in between that commit or roll back.
2. A send in a savepoint counts when the savepoint is kept and the transaction commits, however late.
3. A gap yields what turned up in it at most max at a time, and in order; the rest follows.
4. A delayed send that commits late is found again, and once: also when it is due by then.
5. Late commits below a held snapshot, a priority, several lanes: the same.
6. A claim that rolls back after it found a late message leaves it to be found again.
"""

from __future__ import annotations

import random

import pytest

from tests.isolation.scene import Scene, Session
from tests.waiting import eventually


def end(session: Session, commits: bool) -> None:
    """Commit or roll back."""
    if commits:
        session.commit()
    else:
        session.rollback()


@pytest.mark.parametrize("seed", range(6))
def test_dozens_of_open_senders_deliver_exactly_what_they_commit(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    senders, consumer = scene.sessions("sender", 24), scene.session("consumer")
    for sender in senders:
        sender.begin()
    for _ in range(120):
        chance.choice(senders).send()

    chance.shuffle(senders)
    for sender in senders:
        end(sender, commits=chance.random() < 0.7)
        consumer.begin()
        for delivery in consumer.claim(chance.choice([1, 3, 100]))[:1]:
            consumer.ack(delivery.token)
        end(consumer, commits=chance.random() < 0.8)
    scene.drain()

    assert len(scene.journal.sent) + len(scene.journal.never_sent) == 120
    scene.journal.check_exactly_once()


@pytest.mark.parametrize("seed", range(3))
def test_open_senders_that_come_and_go_between_claims_lose_nothing(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    senders, consumers = scene.sessions("sender", 8), scene.sessions("consumer", 3)
    open_now: set[Session] = set()
    held: list[tuple[Session, int]] = []

    for _ in range(250):
        sender = chance.choice(senders)
        if sender not in open_now:
            open_now.add(sender.begin())
        sender.send()
        if chance.random() < 0.4:
            open_now.discard(sender)
            end(sender, commits=chance.random() < 0.85)
        consumer = chance.choice(consumers)
        held += [(consumer, token) for token in {d.token for d in consumer.claim(chance.randint(1, 4))}]
        if held and chance.random() < 0.6:
            session, token = held.pop(chance.randrange(len(held)))
            session.ack(token)
    for sender in open_now:
        sender.commit()
    for session, token in held:
        session.ack(token)
    scene.drain()

    scene.journal.check_exactly_once()


def test_a_late_batch_is_handed_out_in_order_and_at_most_max_at_a_time(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = [sender.send() for _ in range(7)]
    early = consumer.send()
    first = consumer.take(3)
    sender.commit()

    parts = [consumer.take(3) for _ in range(4)]

    assert first == [early]
    assert parts == [late[:3], late[3:6], late[6:], []]


def test_holes_inside_a_late_batch_stay_holes(scene: Scene) -> None:
    one, two, consumer = scene.session("one"), scene.session("two"), scene.session("consumer")
    one.begin()
    two.begin()
    late = [(one.send(), two.send()) for _ in range(4)]
    consumer.send()
    consumer.ack(consumer.claim()[0].token)

    one.commit()
    first = consumer.take()
    two.rollback()

    assert first == [id for id, _ in late]
    assert consumer.take() == []


def test_holes_inside_a_late_batch_are_filled_later_still(scene: Scene) -> None:
    one, two, consumer = scene.session("one"), scene.session("two"), scene.session("consumer")
    one.begin()
    two.begin()
    late = [(one.send(), two.send()) for _ in range(4)]
    consumer.send()
    consumer.claim()

    one.commit()
    first = consumer.take()
    between = consumer.take()
    two.commit()

    assert first == [id for id, _ in late]
    assert between == []
    assert consumer.take() == [id for _, id in late]


def test_a_send_in_a_savepoint_that_is_undone_is_never_delivered(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    before = sender.send()
    sender.savepoint("s")
    sender.send()
    after = consumer.send()
    first = consumer.take()
    sender.rollback_to("s")
    again = sender.send()
    sender.commit()

    rest = consumer.take()

    assert first == [after]
    assert sorted(rest + consumer.take()) == [before, again]


def test_a_send_in_a_savepoint_kept_late_is_delivered_when_the_transaction_commits(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    sender.savepoint("s1")
    sender.savepoint("s2")
    late = sender.send()
    early = consumer.send()
    first = consumer.take()
    sender.release_savepoint("s2")
    between = [consumer.take() for _ in range(3)]
    sender.release_savepoint("s1")

    sender.commit()

    assert first == [early]
    assert between == [[], [], []]
    assert consumer.take() == [late]


def test_a_savepoint_undone_under_a_look_does_not_drop_what_its_transaction_sends_later(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    sender.savepoint("s")
    sender.send()
    sender.rollback_to("s")  # with it went the lock on the table of messages
    consumer.send()
    consumer.ack(consumer.claim()[0].token)
    looks = [consumer.take() for _ in range(3)]

    late = sender.send()
    consumer.send()
    consumer.ack(consumer.claim()[0].token)
    sender.commit()

    assert looks == [[], [], []]
    assert scene.drain() == [late]


def test_a_delayed_send_that_commits_late_is_delivered_when_it_is_due(scene: Scene) -> None:
    scene.clock()
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = sender.send(delay="10 s")
    consumer.send()
    consumer.ack(consumer.claim()[0].token)
    scene.clock("5 s")
    sender.commit()
    early = [consumer.take() for _ in range(3)]

    scene.clock("11 s")
    taken = consumer.take()

    assert early == [[], [], []]
    assert taken == [late]
    assert consumer.take() == []


def test_a_delayed_send_that_commits_when_it_is_long_due_is_delivered_once(scene: Scene) -> None:
    scene.clock()
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin()
    late = sender.send(delay="10 s")
    consumer.send()
    consumer.ack(consumer.claim()[0].token)
    scene.clock("11 s")
    before = [consumer.take() for _ in range(3)]

    sender.commit()
    taken = eventually(consumer.take, what="a walk from the bottom finds it")

    assert before == [[], [], []]
    assert taken == [late]
    assert consumer.take() == []


def test_a_late_message_that_expired_meanwhile_is_not_delivered(scene: Scene) -> None:
    scene.clock()
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin().execute("select holdfast.send('q', ttl => '10 s')")
    consumer.send()
    consumer.ack(consumer.claim()[0].token)
    scene.clock("11 s")
    sender.commit()

    taken = consumer.take()

    assert taken == []
    assert scene.messages() == 0


def test_a_claim_that_rolls_back_leaves_the_late_message_it_found(scene: Scene) -> None:
    sender, consumer, other = scene.session("sender"), scene.session("consumer"), scene.session("other")
    sender.begin()
    late = [sender.send() for _ in range(2)]
    consumer.send()
    consumer.claim()
    sender.commit()
    consumer.begin()
    found = consumer.take(1)
    consumer.rollback()

    again = [*other.take(1), *other.take(1)]

    assert found == late[:1]
    assert again == late
    assert other.take() == []


def test_a_claim_that_rolls_back_leaves_no_gap_behind_that_costs_a_message(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sender.begin().send()
    early = consumer.send()
    consumer.begin()
    first = consumer.take()
    within = scene.gaps()
    consumer.rollback()
    gaps = scene.gaps()
    sender.commit()

    drained = scene.drain()

    assert first == [early]
    assert (within, gaps) == ([], [])
    assert len(drained) == 2
    scene.journal.check_exactly_once()


def test_late_commits_under_a_held_snapshot_are_delivered_once(scene: Scene) -> None:
    reader, consumer, *senders = scene.sessions("session", 8)
    reader.begin("isolation level repeatable read").execute("select count(*) from holdfast.message")
    for sender in senders:
        sender.begin().send()
    consumer.send()
    consumer.ack(consumer.claim()[0].token)

    for n, sender in enumerate(reversed(senders)):
        end(sender, commits=n % 3 != 0)
    scene.drain()

    scene.journal.check_exactly_once()
    assert scene.gaps() == []
    reader.rollback()


def test_late_commits_in_several_priorities_are_each_delivered_once(scene: Scene) -> None:
    config = '{"priorities": [0, 5, 9]}'
    scene.watcher.execute("select holdfast.configure_queue('q', %s)", [config])
    senders, consumer = scene.sessions("sender", 9), scene.session("consumer")
    for n, sender in enumerate(senders):
        sender.begin().send(priority=[0, 5, 9][n % 3])
    for priority in (0, 5, 9):
        consumer.send(priority=priority)
    for token in {delivery.token for delivery in consumer.claim()}:
        consumer.ack(token)

    for n, sender in enumerate(reversed(senders)):
        end(sender, commits=n % 4 != 0)
    scene.drain()

    scene.journal.check_exactly_once()


def test_late_commits_in_several_shards_are_each_delivered_once(scene: Scene) -> None:
    scene.watcher.execute("select holdfast.create_queue('wide', '{\"shards\": 3}')")
    senders, consumer = scene.sessions("sender", 12), scene.session("consumer")
    for sender in senders:
        sender.begin()
        for _ in range(3):
            sender.send("wide")
    for n, sender in enumerate(reversed(senders)):
        end(sender, commits=n % 4 != 0)
        for token in {delivery.token for delivery in consumer.claim(5, "wide")}:
            consumer.ack(token, queue="wide")

    scene.drain("wide")

    scene.journal.check_exactly_once()


def test_a_late_copy_into_the_inbox_is_delivered_once(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    arrivals = "select 'q', to_jsonb(n) from generate_series(1, 50) n"
    sender.begin().execute(f"insert into holdfast.inbox (queue, payload) {arrivals}")
    early = consumer.send()
    first = consumer.take()
    sender.commit()

    rest = consumer.execute("select payload::int from holdfast.claim('q', 100)")

    assert first == [early]
    assert [payload for (payload,) in rest] == list(range(1, 51))
    assert consumer.take() == []


def test_a_gap_behind_hundreds_of_dead_ones_still_yields_its_message(scene: Scene) -> None:
    sender, doomed, consumer = scene.session("sender"), scene.session("doomed"), scene.session("consumer")
    doomed.begin()  # stays open: the gaps below cannot be dropped
    for _ in range(300):
        doomed.execute("select holdfast.send_batch('q', array_fill('1'::jsonb, array[2]))")
        consumer.send()
    sender.begin()
    late = sender.send()
    consumer.send()
    for token in [delivery.token for _ in range(4) for delivery in consumer.claim(100)]:
        consumer.ack(token)

    sender.commit()

    assert consumer.take() == [late]
    doomed.rollback()


@pytest.mark.parametrize("size", [400, 1000])
def test_a_late_bulk_is_handed_out_whole_and_in_order(scene: Scene, size: int) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    bulk = "select holdfast.send_batch('q', array_fill('1'::jsonb, array[2500]))"
    sender.begin()
    ids: list[int] = sender.value(bulk)
    sender.account_sent(ids)
    passing = consumer.send()
    first = consumer.take()
    sender.commit()

    parts = [consumer.take(size) for _ in range(-(-2500 // size))]

    assert first == [passing]
    assert {len(part) for part in parts[:-1]} == {size}
    assert [id for part in parts for id in part] == ids
    assert consumer.take() == []
