"""Messages that leave a queue by another door: discarded, buried, redriven, while others are at work on them.

1. discard against claim and ack: a message ends once; who comes second is told so.
2. Two queues that bury at the same moment in one dead-letter queue that is not there yet: both arrive.
3. Dead letters that are buried in open transactions are delivered in their queue once these commit, and once.
4. redrive waits for an open claim of dead letters, but not for ever. It leaves those in a lease, and moves
   every other once.
5. redrive_staged keeps to the same: it mends what it moves, and leaves the rest as it was.
6. No message has more deliveries than max_deliveries, whoever gives it back (G5).
"""

from __future__ import annotations

import pytest

from tests.isolation.scene import Delivery, Scene, Session

MORTAL = '{"max_deliveries": 1, "dead_letter": "grave"}'


def mortal(scene: Scene, *names: str) -> None:
    """Queues whose messages die of their first failure, and are buried in one place."""
    for name in names:
        scene.watcher.execute("select holdfast.create_queue(%s, %s)", [name, MORTAL])


def take_one(session: Session, queue: str) -> Delivery:
    """Claim exactly one message."""
    (delivery,) = session.claim(1, queue)
    return delivery


def bury(scene: Scene, queue: str, count: int) -> list[int]:
    """Dead letters of a queue: their ids in the grave."""
    worker = scene.session("gravedigger")
    for _ in range(count):
        worker.send(queue)
        worker.nack(take_one(worker, queue).token, queue=queue)
    buried = "select id from holdfast.message where origin ->> 'queue' = %s order by id"
    ids = [id for (id,) in scene.watcher.execute(buried, [queue])]
    scene.journal.sent.update(ids)
    return ids


def redrive(session: Session, queue: str, ids: list[int] | None = None) -> dict[int, int]:
    """Redrive; the old ids and the new ones."""
    moved = dict(session.execute("select id, new_id from holdfast.redrive(%s, %s::bigint[])", [queue, ids]))
    session.account_sent(list(moved.values()))
    return moved


@pytest.mark.parametrize("commits", [True, False])
def test_a_fresh_message_claimed_while_it_is_being_discarded_ends_once(scene: Scene, commits: bool) -> None:
    admin, worker = scene.session("admin"), scene.session("worker")
    id = worker.send()
    admin.begin().discard([id])
    (delivery,) = worker.claim()  # not discarded yet, as far as anybody else can see
    acking = worker.start(lambda: worker.ack(delivery.token, [id])).blocked_by(admin)

    if commits:
        admin.commit()
    else:
        admin.rollback()

    assert acking.result() == (([], [id]) if commits else ([id], []))
    assert scene.messages() == 0
    assert worker.take() == []


@pytest.mark.parametrize("commits", [True, False])
def test_a_due_message_that_is_being_discarded_is_skipped(scene: Scene, commits: bool) -> None:
    scene.clock()
    admin, worker = scene.session("admin"), scene.session("worker")
    ids = [worker.send(delay="1 s") for _ in range(2)]
    scene.clock("2 s")
    admin.begin().discard(ids[:1])
    first = worker.take()

    if commits:
        admin.commit()
    else:
        admin.rollback()

    assert first == ids[1:]
    assert worker.take() == ([] if commits else ids[:1])


@pytest.mark.parametrize("commits", [True, False])
def test_discard_waits_for_an_open_ack(scene: Scene, commits: bool) -> None:
    admin, worker = scene.session("admin"), scene.session("worker")
    id = worker.send()
    (delivery,) = worker.claim()
    worker.begin().ack(delivery.token)
    discarding = admin.start(lambda: admin.discard([id])).blocked_by(worker)

    if commits:
        worker.commit()
    else:
        worker.rollback()

    assert discarding.result() == ([] if commits else [id])
    assert scene.messages() == 0


@pytest.mark.parametrize("verb", ["nack", "release"])
def test_a_message_given_back_while_it_is_being_discarded_is_skipped(scene: Scene, verb: str) -> None:
    admin, worker = scene.session("admin"), scene.session("worker")
    ids = [worker.send() for _ in range(2)]
    token = worker.claim()[0].token
    admin.begin().discard(ids[:1])
    returning = worker.start(lambda: getattr(worker, verb)(token, ids)).blocked_by(admin)

    admin.commit()

    assert returning.result() == (ids[1:], ids[:1])
    assert worker.take() == ids[1:]


def test_a_lease_that_runs_out_does_not_bring_a_discarded_message_back(scene: Scene) -> None:
    scene.clock()
    admin, worker = scene.session("admin"), scene.session("worker")
    ids = [worker.send() for _ in range(2)]
    worker.claim(lease="30 s")
    admin.begin().discard(ids[:1])
    scene.clock("31 s")
    scene.journal.expired(ids)
    taken = worker.take()
    admin.commit()
    scene.clock("32 s")
    taken += worker.take()

    assert taken == ids[1:]
    assert worker.take() == []


def test_two_discards_of_one_message_end_it_once(scene: Scene) -> None:
    one, two = scene.sessions("admin", 2)
    ids = [one.send() for _ in range(3)]
    one.begin()
    first = one.discard(ids[:2])
    second = two.start(lambda: two.discard(ids[::-1])).blocked_by(one)

    one.commit()

    assert (first, second.result()) == (ids[:2], ids[2:])


def test_two_queues_that_bury_at_once_share_the_grave_they_make(scene: Scene) -> None:
    mortal(scene, "a", "b")
    one, two = scene.session("one"), scene.session("two")
    roots = {one.send("a"), two.send("b")}
    first, second = take_one(one, "a"), take_one(two, "b")
    one.begin().nack(first.token, queue="a")
    burying = two.start(lambda: two.nack(second.token, queue="b")).blocked_by(one)

    one.commit()

    assert burying.result().settled == [second.id]
    buried = scene.watcher.execute("select (origin ->> 'root_id')::bigint from holdfast.claim('grave', 10)")
    assert {root for (root,) in buried} == roots


def test_the_second_burial_makes_the_grave_if_the_first_rolls_back(scene: Scene) -> None:
    mortal(scene, "a", "b")
    one, two = scene.session("one"), scene.session("two")
    one.send("a")
    root = two.send("b")
    first, second = take_one(one, "a"), take_one(two, "b")
    one.begin().nack(first.token, queue="a")
    burying = two.start(lambda: two.nack(second.token, queue="b")).blocked_by(one)

    one.rollback()

    assert burying.result().settled == [second.id]
    buried = scene.watcher.execute("select (origin ->> 'root_id')::bigint from holdfast.claim('grave', 10)")
    assert buried == [(root,)]
    assert one.ack(first.token, queue="a").settled == [first.id]


def test_sweeps_that_bury_at_once_share_the_grave_they_make(scene: Scene) -> None:
    scene.clock()
    mortal(scene, "a", "b")
    one, two = scene.session("one"), scene.session("two")
    for queue in ("a", "b"):
        scene.watcher.send(queue)
        scene.watcher.claim(queue=queue, lease="30 s")
    scene.clock("31 s")
    one.begin()
    swept = one.sweep("a")
    sweeping = two.start(lambda: two.sweep("b")).blocked_by(one)

    one.commit()

    assert (swept, sweeping.result()) == (1, 1)
    assert scene.watcher.value("select count(*) from holdfast.claim('grave', 10)") == 2


def test_dead_letters_buried_in_open_transactions_arrive_once_in_any_order(scene: Scene) -> None:
    mortal(scene, "a")
    bury(scene, "a", 1)
    workers, reader = scene.sessions("worker", 6), scene.session("reader")
    for worker in workers:
        worker.send("a")
    for worker in workers:
        delivery = take_one(worker, "a")
        worker.begin().nack(delivery.token, queue="a")

    seen: list[int] = []
    for n in (3, 0, 5, 1, 4, 2):
        if n == 4:
            workers[n].rollback()
        else:
            workers[n].commit()
        seen += [id for (id,) in reader.execute("select id from holdfast.claim('grave', 10)")]

    assert len(seen) == len(set(seen)) == 1 + 5
    assert reader.execute("select id from holdfast.claim('grave', 10)") == []


def test_redrive_waits_for_an_open_claim_and_leaves_what_it_took(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 3)
    reader, admin = scene.session("reader"), scene.session("admin")
    reader.begin()
    held = take_one(reader, "grave")
    moving = admin.start(lambda: redrive(admin, "a")).blocked_by(reader)

    reader.commit()
    moved = moving.result()

    assert held.id == dead[0]
    assert sorted(moved) == dead[1:]
    assert reader.ack(held.token, queue="grave").settled == dead[:1]
    assert reader.take(queue="a") == sorted(moved.values())
    assert reader.take(queue="grave") == []


def test_redrive_moves_what_an_open_claim_gave_back(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    reader, admin = scene.session("reader"), scene.session("admin")
    reader.begin().claim(queue="grave")
    moving = admin.start(lambda: redrive(admin, "a")).blocked_by(reader)

    reader.rollback()

    assert sorted(moving.result()) == dead
    assert reader.take(queue="grave") == []


@pytest.mark.parametrize("by_stage", [False, True])
def test_a_claim_of_dead_letters_left_open_holds_up_neither_redrive_nor_senders(
    scene: Scene, by_stage: bool
) -> None:
    mortal(scene, "a")
    scene.watcher.execute("select holdfast.configure_queue('a', '{\"ordering\": \"strict\"}')")
    dead = bury(scene, "a", 2)
    reader, admin, sender = (scene.session(name) for name in ("reader", "admin", "sender"))
    stage = staged(admin, "a", dead)
    reader.begin().claim(queue="grave")

    moving = admin.start(
        lambda: redrive_staged(admin, "a", stage) if by_stage else redrive(admin, "a")
    ).blocked_by(reader)
    sending = sender.start(lambda: sender.send("a"))

    assert moving.result() == (dict.fromkeys(dead, "held") if by_stage else {})
    assert sending.result()
    reader.rollback()
    assert sorted(redrive(admin, "a")) == dead


@pytest.mark.parametrize("commits", [True, False])
def test_a_dead_letter_is_not_claimed_while_it_is_being_moved(scene: Scene, commits: bool) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    reader, admin = scene.session("reader"), scene.session("admin")
    admin.begin()
    moved = redrive(admin, "a", dead[:1])
    claiming = reader.start(lambda: reader.take(queue="grave")).blocked_by(admin)
    meanwhile = claiming.result()

    if commits:
        admin.commit()
    else:
        admin.rollback()

    assert list(moved) == dead[:1]
    assert meanwhile == []
    assert reader.take(queue="grave") == (dead[1:] if commits else dead)
    assert reader.take(queue="a") == (list(moved.values()) if commits else [])


def test_two_redrives_at_once_move_each_dead_letter_once(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 3)
    one, two = scene.sessions("admin", 2)
    one.begin()
    first = redrive(one, "a", dead[:2])
    second = two.start(lambda: redrive(two, "a")).blocked_by(one)

    one.commit()

    assert sorted(first) == dead[:2]
    assert sorted(second.result()) == dead[2:]
    assert len(one.take(queue="a")) == 3


def test_redrive_passes_over_a_dead_letter_that_is_being_discarded(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    one, two = scene.sessions("admin", 2)
    one.begin().discard(dead[:1], "a")

    moved = two.start(lambda: redrive(two, "a")).result()
    one.commit()

    assert sorted(moved) == dead[1:]
    assert scene.messages() == 1


def test_a_late_redrive_is_delivered_though_the_cursor_has_passed_it(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    admin, worker = scene.session("admin"), scene.session("worker")
    admin.begin()
    moved = redrive(admin, "a", dead)
    passing = worker.send("a")
    first = worker.take(queue="a")

    admin.commit()

    assert first == [passing]
    assert worker.take(queue="a") == sorted(moved.values())
    assert worker.take(queue="a") == []


def staged(session: Session, queue: str, ids: list[int]) -> int:
    """A stage that repairs these dead letters."""
    stage = int(session.value("select holdfast.open_stage(%s, 'w', 'a', 0)", [queue]))
    session.execute(
        "insert into holdfast.staged (stage, n, tag) select %s, i, 'mended' from unnest(%s::bigint[]) i",
        [stage, ids],
    )
    return stage


def redrive_staged(session: Session, queue: str, stage: int) -> dict[int, int | str]:
    """Repair and redrive; the old ids, with the new ones, or the reason why they stay."""
    rows = session.execute(
        "select id, new_id, stays from holdfast.redrive_staged(%s, %s, '{tag}')", [queue, stage]
    )
    session.account_sent([new for _, new, _ in rows if new is not None])
    return {id: stays or new for id, new, stays in rows}


@pytest.mark.parametrize("commits", [True, False])
def test_two_repairs_at_once_move_each_dead_letter_once(scene: Scene, commits: bool) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 3)
    one, two = scene.sessions("admin", 2)
    stages = [staged(one, "a", dead[:2]), staged(two, "a", dead)]
    one.begin()
    redrive_staged(one, "a", stages[0])
    second = two.start(lambda: redrive_staged(two, "a", stages[1])).blocked_by(one)

    if commits:
        one.commit()
    else:
        one.rollback()

    gone = [id for id, reason in second.result().items() if reason == "gone"]
    assert gone == (dead[:2] if commits else [])
    assert len(one.take(queue="a")) == 3
    assert one.take(queue="grave") == []


def test_a_repair_and_a_redrive_at_once_move_each_dead_letter_once(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    one, two = scene.sessions("admin", 2)
    stage = staged(two, "a", dead)
    one.begin()
    first = redrive(one, "a", dead[:1])
    second = two.start(lambda: redrive_staged(two, "a", stage)).blocked_by(one)

    one.commit()

    assert list(first) == dead[:1]
    assert [reason == "gone" for reason in second.result().values()].count(True) == 1
    assert len(one.take(queue="a")) == 2


@pytest.mark.parametrize("commits", [True, False])
def test_a_repair_waits_for_an_open_claim_and_leaves_what_it_took(scene: Scene, commits: bool) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    reader, admin = scene.session("reader"), scene.session("admin")
    stage = staged(admin, "a", dead)
    reader.begin()
    held = take_one(reader, "grave")
    moving = admin.start(lambda: redrive_staged(admin, "a", stage)).blocked_by(reader)

    if commits:
        reader.commit()
    else:
        reader.rollback()

    reasons = moving.result()
    assert (reasons[held.id] == "held") == commits
    assert scene.watcher.value("select count(*) from holdfast.message where tag is null") == commits
    if commits:
        assert reader.ack(held.token, queue="grave").settled == [held.id]
    assert len(reader.take(queue="a")) == (1 if commits else 2)


@pytest.mark.parametrize("commits", [True, False])
def test_a_stage_is_not_dropped_while_its_dead_letters_go_back(scene: Scene, commits: bool) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    one, two = scene.sessions("admin", 2)
    stage = staged(one, "a", dead)
    one.begin()
    redrive_staged(one, "a", stage)
    dropping = two.start(lambda: two.value("select holdfast.drop_staged('a')")).blocked_by(one)

    if commits:
        one.commit()
    else:
        one.rollback()

    assert dropping.result() == 2
    assert len(two.take(queue="a")) == (2 if commits else 0)
    assert redrive_staged(two, "a", stage) == {}


def test_nothing_goes_back_unmended_when_its_row_is_gone_meanwhile(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    one, two = scene.sessions("admin", 2)
    stage = staged(one, "a", dead)
    two.begin().execute("select holdfast.drop_staged('a')")
    moving = one.start(lambda: redrive_staged(one, "a", stage)).blocked_by(two)

    two.commit()

    assert moving.result() == {}
    assert sorted(redrive(one, "a")) == dead


def test_a_repair_passes_over_a_dead_letter_that_is_being_discarded_or_acked(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 3)
    admin, reader, two = scene.session("admin"), scene.session("reader"), scene.session("two")
    stage = staged(two, "a", dead)
    held = take_one(reader, "grave")
    reader.begin().ack(held.token, queue="grave")
    admin.begin().discard(dead[1:2], "a")

    moved = two.start(lambda: redrive_staged(two, "a", stage)).result()
    reader.commit()
    admin.commit()

    assert {id: reason for id, reason in moved.items() if isinstance(reason, str)} == {
        dead[0]: "held",
        dead[1]: "held",
    }
    assert scene.messages() == 1
    assert len(two.take(queue="a")) == 1


def test_a_repair_waits_for_an_open_send_with_the_key_that_it_gives(scene: Scene) -> None:
    mortal(scene, "a")
    (dead,) = bury(scene, "a", 1)
    producer, admin = scene.session("producer"), scene.session("admin")
    stage = staged(admin, "a", [dead])
    admin.execute("update holdfast.staged set key = 'k'")
    statement = "select stays from holdfast.redrive_staged('a', %s, '{key}')"
    producer.begin().send("a", key="k")
    moving = admin.start(lambda: admin.value(statement, [stage])).blocked_by(producer)

    producer.commit()

    assert moving.result() == "key"


def test_a_late_repair_is_delivered_though_the_cursor_has_passed_it(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    admin, worker = scene.session("admin"), scene.session("worker")
    stage = staged(admin, "a", dead)
    admin.begin()
    moved = redrive_staged(admin, "a", stage)
    passing = worker.send("a")
    first = worker.take(queue="a")

    admin.commit()

    assert first == [passing]
    assert worker.take(queue="a") == sorted(id for id in moved.values() if isinstance(id, int))
    assert worker.take(queue="a") == []


def test_a_session_that_is_killed_in_a_repair_leaves_all_as_it_was(scene: Scene) -> None:
    mortal(scene, "a")
    dead = bury(scene, "a", 2)
    doomed, admin = scene.session("doomed"), scene.session("admin")
    stage = staged(doomed, "a", dead)
    doomed.begin()
    doomed.execute("select * from holdfast.redrive_staged('a', %s, '{tag}')", [stage])
    waiting = admin.start(lambda: redrive_staged(admin, "a", stage)).blocked_by(doomed)

    scene.watcher.execute("select pg_terminate_backend(%s)", [doomed.pid])

    moved = waiting.result()
    assert sorted(moved) == dead
    assert all(isinstance(new, int) for new in moved.values())
    assert len(admin.take(queue="a")) == 2


def test_nobody_is_given_more_deliveries_than_allowed(scene: Scene) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.create_queue('a', '{\"max_deliveries\": 3}')")
    one, two = scene.sessions("worker", 2)
    root = one.send("a")
    seen = []
    for n in range(5):
        taken = one.claim(queue="a", lease="30 s")
        seen += [(delivery.id, delivery.deliveries) for delivery in taken]
        if n == 0:  # nacked and rolled back, then expired
            one.begin().nack(taken[0].token, queue="a")
            one.rollback()
        scene.clock(f"{40 * (n + 1)} s")
        scene.journal.expired([delivery.id for delivery in taken])
        two.sweep("a")

    assert seen == [(root, 1), (root, 2), (root, 3)]
    assert scene.watcher.value("select dead from holdfast.queue_stats('a')") == 1
