"""Cohorts among other sessions: rolled back, left open, beside late commits.

1. A cohort that rolls back never happened: whole, or to a savepoint.
2. While it is open nobody sees its shares, and the lane waits for it as for a claim.
3. Late commits around cohorts are delivered once, whoever they fall to.
4. Shares are settled by several sessions at once, while the next cohort is made.
5. A held snapshot changes nothing of this.
"""

from __future__ import annotations

import random

import pytest

from tests.isolation.scene import Delivery, Scene, Session


def by_token(deliveries: list[Delivery]) -> dict[int, list[int]]:
    """The shares, by their tokens."""
    shares: dict[int, list[int]] = {}
    for delivery in deliveries:
        shares.setdefault(delivery.token, []).append(delivery.id)
    return shares


def end(session: Session, commits: bool) -> None:
    """Commit or roll back."""
    if commits:
        session.commit()
    else:
        session.rollback()


def test_a_cohort_that_rolls_back_never_happened(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    sent = [consumer.send() for _ in range(6)]
    consumer.begin()
    undone = consumer.claim_cohort([2, 2])
    consumer.rollback()

    assert other.ack(next(iter(by_token(undone)))) == ([], [])
    again = other.claim_cohort([3, 3])

    assert [(delivery.id, delivery.deliveries) for delivery in again] == [(id, 1) for id in sent]


def test_a_cohort_undone_to_a_savepoint_leaves_those_before_it(scene: Scene) -> None:
    consumer, other = scene.sessions("consumer", 2)
    sent = [consumer.send() for _ in range(6)]
    consumer.begin()
    kept = consumer.claim_cohort([1, 1])
    consumer.savepoint("s")
    consumer.claim_cohort([1, 1])
    consumer.rollback_to("s")
    consumer.commit()

    rest = other.claim_cohort([2, 2])

    assert [delivery.id for delivery in [*kept, *rest]] == sent
    for token, ids in by_token([*kept, *rest]).items():
        assert other.ack(token, strict=True) == (ids, [])


def test_cohorts_of_one_transaction_that_rolls_back_strand_nothing(scene: Scene) -> None:
    consumer = scene.session("consumer")
    sent = [consumer.send() for _ in range(6)]
    consumer.begin()
    first, second = consumer.claim_cohort([1, 1]), consumer.claim_cohort([1, 1])
    consumer.rollback()

    assert [delivery.id for delivery in [*first, *second]] == sent[:4]
    assert scene.drain() == sent


def test_an_open_cohort_keeps_its_shares_to_itself(scene: Scene) -> None:
    scene.patient()
    consumer, other = scene.sessions("consumer", 2)
    sent = [consumer.send() for _ in range(5)]
    consumer.begin()
    mine = consumer.claim_cohort([2, 2])

    waiting = other.start(lambda: other.claim_cohort([2, 2])).blocked_by(consumer)
    assert scene.watcher.execute("select * from holdfast.holders('q', %s)", [sent]) == []
    consumer.commit()

    assert [delivery.id for delivery in mine] == sent[:4]
    assert [delivery.id for delivery in waiting.result()] == sent[4:]
    assert len(scene.watcher.execute("select * from holdfast.holders('q', %s)", [sent])) == 5


def test_a_late_message_in_the_middle_of_a_cohort_falls_to_the_next(scene: Scene) -> None:
    sender, consumer = scene.session("sender"), scene.session("consumer")
    scene.clock()
    first = consumer.send()
    sender.begin()
    late = sender.send()
    second = consumer.send()
    scene.clock("1 s")

    shares = by_token(consumer.claim_cohort([1, 1, 1]))
    sender.commit()
    found = consumer.claim_cohort([1, 1])

    assert list(shares.values()) == [[first], [second]]
    assert [delivery.id for delivery in found] == [late]
    for token, ids in {**shares, found[0].token: [late]}.items():
        assert consumer.ack(token, strict=True) == (ids, [])
    assert consumer.claim_cohort([1, 1]) == []


def test_a_hole_behind_the_last_share_is_passed_once(scene: Scene) -> None:
    scene.clock()
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sent = [consumer.send() for _ in range(2)]
    sender.begin()
    late = sender.send()
    consumer.send(delay="1 day")
    scene.clock("1 s")

    shares = by_token(consumer.claim_cohort([2, 2]))
    sender.commit()
    found = [*consumer.take(), *consumer.take()]

    assert list(shares.values()) == [[sent[0]], [sent[1]]]
    assert found == [late]


def test_a_hole_in_a_lane_that_gives_nothing_is_passed_once(scene: Scene) -> None:
    scene.clock()
    sender, consumer = scene.session("sender"), scene.session("consumer")
    sent = [consumer.send() for _ in range(2)]
    consumer.send(priority=9, delay="1 day")
    sender.begin()
    late = sender.send(priority=9)
    consumer.send(priority=9, delay="1 day")
    scene.clock("1 s")

    shares = by_token(consumer.claim_cohort([2, 2]))
    sender.commit()
    found = [*consumer.take(), *consumer.take()]

    assert list(shares.values()) == [[sent[0]], [sent[1]]]
    assert found == [late]


@pytest.mark.parametrize("seed", range(6))
def test_late_commits_around_cohorts_are_delivered_exactly_once(scene: Scene, seed: int) -> None:
    chance = random.Random(seed)
    senders, consumers = scene.sessions("sender", 12), scene.sessions("consumer", 3)
    open_now: set[Session] = set()
    held: list[int] = []

    for _ in range(150):
        sender = chance.choice(senders)
        if sender not in open_now:
            open_now.add(sender.begin())
        for _ in range(chance.randint(1, 3)):
            sender.send()
        if chance.random() < 0.5:
            open_now.discard(sender)
            end(sender, commits=chance.random() < 0.8)
        consumer = chance.choice(consumers).begin()
        taken = consumer.claim_cohort([chance.randint(1, 4) for _ in range(chance.randint(1, 4))])
        commits = chance.random() < 0.8
        end(consumer, commits)
        held += by_token(taken) if commits else []
        while held and chance.random() < 0.6:
            chance.choice(consumers).ack(held.pop(chance.randrange(len(held))), strict=True)
    for sender in open_now:
        sender.commit()
    for token in held:
        consumers[0].ack(token, strict=True)
    scene.drain()

    scene.journal.check_exactly_once()


def test_shares_are_settled_while_others_are_dealt(scene: Scene) -> None:
    sender, *consumers = scene.sessions("session", 7)
    for _ in range(120):
        sender.send()

    def consume(consumer: Session) -> int:
        done = 0
        while taken := consumer.claim_cohort([2, 1, 3]):
            for token in by_token(taken):
                done += len(consumer.ack(token, strict=True).settled)
        return done

    pending = [consumer.start(lambda consumer=consumer: consume(consumer)) for consumer in consumers]  # type: ignore[misc]

    assert sum(one.result() for one in pending) + len(scene.drain()) == 120
    scene.journal.check_exactly_once()


def test_a_held_snapshot_hides_and_doubles_nothing(scene: Scene) -> None:
    reader, consumer = scene.session("reader"), scene.session("consumer")
    reader.begin()
    reader.execute("set transaction isolation level repeatable read")
    reader.execute("select count(*) from holdfast.message")

    sent = []
    for _ in range(30):
        sent += [consumer.send() for _ in range(4)]
        for token, ids in by_token(consumer.claim_cohort([2, 2])).items():
            assert consumer.ack(token, strict=True) == (ids, [])
    reader.rollback()

    assert scene.messages() == 0
    scene.journal.check_exactly_once()
