"""Keys, with several sessions at the same moment.

1. A message that somebody is replacing is not handed out: then the new one is, or the old one after a
   rollback.
2. A message that is being claimed is not waited for: a new one is sent beside it; so too, where replaces is
   waiting, one that came back, while it is claimed once more, and one that is coming back.
3. Of several who replace a message, the last to commit is delivered; they wait for each other.
4. Of two who send with one idempotency key, the second waits for the first, and gets its id, or its
   own if the first rolls back; so too within a long transaction, after a savepoint, and as long as its
   lock_timeout allows.
   A message that is past its time to live gives its key up: whoever is ending it is waited for, and so is
   a claim that may have it. One that somebody holds still answers.
5. discard_key waits for whoever is sending with the key.
6. redrive waits for whoever is sending with the key of a dead letter, and leaves that where it is.
"""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.isolation.scene import Scene, Session
from tests.waiting import eventually


def payload(scene: Scene, id: int) -> object:
    return scene.watcher.value("select payload from holdfast.message where id = %s", [id])


def end(session: Session, commits: bool) -> None:
    if commits:
        session.commit()
    else:
        session.rollback()


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_is_being_replaced_is_not_handed_out(scene: Scene, commits: bool) -> None:
    sender, worker = scene.session("sender"), scene.session("worker")
    id = worker.send(payload=Jsonb("old"), key="k")
    again = sender.begin().send(payload=Jsonb("new"), key="k")
    meanwhile = worker.take()
    sender.execute("commit" if commits else "rollback")

    taken = eventually(worker.take, what="it is handed out")

    assert (again, meanwhile, taken) == (id, [], [id])
    assert payload(scene, id) == ("new" if commits else "old")


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_is_being_claimed_gets_a_newer_one_beside_it(scene: Scene, commits: bool) -> None:
    sender, worker = scene.session("sender"), scene.session("worker")
    old = sender.send(payload=Jsonb("old"), key="k")
    worker.begin().take()
    new = sender.start(lambda: sender.send(payload=Jsonb("new"), key="k")).result()

    end(worker, commits)

    assert new != old
    assert sorted(eventually(worker.take, what="the newer one comes")) == ([new] if commits else [old, new])


def replacing(scene: Scene) -> tuple[Session, Session, int]:
    """A sender and a worker of a queue that replaces what waits; a message of key k that came back once."""
    sender, worker = scene.session("sender"), scene.session("worker")
    sender.execute("select holdfast.configure_queue('q', '{\"replaces\": \"waiting\"}')")
    old = sender.send(payload=Jsonb("old"), key="k")
    (delivery,) = worker.claim()
    worker.nack(delivery.token)
    return sender, worker, old


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_came_back_is_not_replaced_while_it_is_claimed(scene: Scene, commits: bool) -> None:
    sender, worker, old = replacing(scene)
    worker.begin().take()
    new = sender.start(lambda: sender.send(payload=Jsonb("new"), key="k")).result()

    end(worker, commits)

    assert new != old
    assert payload(scene, old) == "old"
    assert sorted(eventually(worker.take, what="the newer one comes")) == ([new] if commits else [old, new])


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_that_came_back_is_not_claimed_while_it_is_replaced(scene: Scene, commits: bool) -> None:
    sender, worker, old = replacing(scene)
    again = sender.begin().send(payload=Jsonb("new"), key="k")
    meanwhile = worker.take()
    sender.execute("commit" if commits else "rollback")

    taken = eventually(worker.take, what="it is handed out")

    assert (again, meanwhile, taken) == (old, [], [old])
    assert payload(scene, old) == ("new" if commits else "old")


def test_a_message_that_is_coming_back_gets_a_newer_one_beside_it(scene: Scene) -> None:
    sender, worker, old = replacing(scene)
    (delivery,) = worker.claim()
    worker.begin().nack(delivery.token)
    new = sender.start(lambda: sender.send(payload=Jsonb("new"), key="k")).result()
    worker.commit()

    assert new != old
    assert sorted(eventually(worker.take, what="both come")) == [old, new]


def test_whoever_replaces_a_message_waits_for_the_one_before(scene: Scene) -> None:
    one, two, worker = scene.session("one"), scene.session("two"), scene.session("worker")
    id = worker.send(payload=Jsonb(0), key="k")
    one.begin().send(payload=Jsonb(1), key="k")
    waiting = two.start(lambda: two.send(payload=Jsonb(2), key="k")).blocked_by(one)
    one.commit()

    assert waiting.result() == id
    assert worker.take() == [id]
    assert payload(scene, id) == 2


@pytest.mark.parametrize("commits", [True, False])
def test_two_first_senders_of_a_key_send_one_message(scene: Scene, commits: bool) -> None:
    one, two = scene.sessions("sender", 2)
    first = one.begin().send(payload=Jsonb(1), key="k")
    waiting = two.start(lambda: two.send(payload=Jsonb(2), key="k")).blocked_by(one)

    end(one, commits)

    assert (waiting.result() == first) is commits
    assert scene.messages() == 1


@pytest.mark.parametrize("commits", [True, False])
def test_of_two_idempotent_senders_the_second_gets_the_id_of_the_first(scene: Scene, commits: bool) -> None:
    one, two = scene.sessions("sender", 2)
    first = one.begin().send(payload=Jsonb(1), idempotency_key="k")
    waiting = two.start(lambda: two.send(payload=Jsonb(1), idempotency_key="k")).blocked_by(one)

    end(one, commits)

    assert (waiting.result() == first) is commits
    assert scene.messages() == 1


def test_an_idempotent_sender_with_another_payload_is_refused_after_the_commit(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    one.begin().send(payload=Jsonb(1), idempotency_key="k")
    waiting = two.start(lambda: two.send(payload=Jsonb(2), idempotency_key="k")).blocked_by(one)

    one.commit()

    error = waiting.error()
    assert isinstance(error, psycopg.Error)
    assert error.sqlstate == "QH222"


def test_a_savepoint_that_is_rolled_back_frees_the_key(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    one.begin().savepoint("s")
    first = one.send(payload=Jsonb(1), idempotency_key="k")
    one.rollback_to("s")
    second = one.send(payload=Jsonb(2), idempotency_key="k")
    one.commit()

    assert first != second == two.send(payload=Jsonb(2), idempotency_key="k")


def test_a_sender_waits_as_long_as_its_lock_timeout_allows(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    one.begin().send(payload=Jsonb(1), idempotency_key="k")
    two.execute("set lock_timeout = '50ms'")

    with pytest.raises(psycopg.errors.LockNotAvailable):
        two.send(payload=Jsonb(1), idempotency_key="k")

    one.rollback()


def test_in_repeatable_read_an_idempotent_sender_is_told_to_try_again(scene: Scene) -> None:
    one, two = scene.sessions("sender", 2)
    two.begin("isolation level repeatable read").execute("select count(*) from holdfast.message")
    one.send(payload=Jsonb(1), idempotency_key="k")

    with pytest.raises(psycopg.errors.SerializationFailure):
        two.send(payload=Jsonb(1), idempotency_key="k")

    two.rollback()
    assert scene.messages() == 1


def test_discard_key_waits_for_whoever_is_sending_with_it(scene: Scene) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    id = sender.begin().send(payload=Jsonb(1), key="k")
    discarding = admin.start(lambda: admin.value("select holdfast.discard_key('q', 'k')")).blocked_by(sender)

    sender.commit()

    assert discarding.result() == [id]
    assert scene.messages() == 0


@pytest.mark.parametrize("locked", ["first", "behind"])
def test_a_sender_waits_to_end_what_is_past_its_time_to_live(scene: Scene, locked: str) -> None:
    scene.clock()
    scene.watcher.execute("select holdfast.configure_queue('q', %s)", [Jsonb({"ordering": "key"})])
    sender, admin = scene.session("sender"), scene.session("admin")
    ids = {
        "first": sender.send(ordering_key="a", idempotency_key="i", ttl="1 s"),
        "behind": sender.send(ordering_key="a"),
    }
    scene.clock("2 s")
    admin.begin().execute("select from holdfast.message where id = %s for update", [ids[locked]])
    again = sender.start(lambda: sender.send(ordering_key="a", idempotency_key="i")).blocked_by(admin)

    admin.rollback()

    assert again.result() not in ids.values()
    assert scene.messages() == 2


@pytest.mark.parametrize("payload", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
def test_no_message_is_swallowed_by_one_that_a_claim_is_ending(
    scene: Scene, commits: bool, payload: int
) -> None:
    scene.clock()
    sender, worker = scene.session("sender"), scene.session("worker")
    first = sender.send(payload=Jsonb(1), idempotency_key="i", ttl="1 s")
    scene.clock("2 s")
    assert worker.begin().take() == []
    again = sender.start(lambda: sender.send(payload=Jsonb(payload), idempotency_key="i")).blocked_by(worker)

    end(worker, commits)

    assert again.result() != first
    assert worker.take() == [again.result()]


@pytest.mark.parametrize("commits", [True, False])
def test_a_message_in_an_open_claim_has_its_idempotency_key_if_that_commits(
    scene: Scene, commits: bool
) -> None:
    scene.clock()
    sender, worker = scene.session("sender"), scene.session("worker")
    first = sender.send(payload=Jsonb(1), idempotency_key="i", ttl="1 s")
    assert worker.begin().take(lease="30 s") == [first]
    scene.clock("2 s")
    again = sender.start(lambda: sender.send(payload=Jsonb(1), idempotency_key="i")).blocked_by(worker)

    end(worker, commits)

    assert (again.result() == first) is commits
    assert worker.take() == ([] if commits else [again.result()])


def test_a_fixed_snapshot_cannot_tell_who_holds_what_is_past_its_time_to_live(scene: Scene) -> None:
    scene.clock()
    sender, worker = scene.session("sender"), scene.session("worker")
    worker.send(payload=Jsonb(1), idempotency_key="i", ttl="1 s")
    sender.begin("isolation level repeatable read").execute("select count(*) from holdfast.message")
    held = worker.claim(lease="30 s")
    scene.clock("2 s")

    with pytest.raises(psycopg.Error) as error:
        sender.send(payload=Jsonb(1), idempotency_key="i")

    assert error.value.sqlstate == "QH303"
    assert worker.ack(held[0].token, strict=True).settled == [held[0].id]


@pytest.mark.parametrize("commits", [True, False])
def test_redrive_waits_for_whoever_sends_with_the_key_of_a_dead_letter(scene: Scene, commits: bool) -> None:
    sender, admin = scene.session("sender"), scene.session("admin")
    sender.send(key="k", max_deliveries=1)
    ((token, _, _),) = sender.claim()
    sender.nack(token)
    sender.begin().send(key="k")
    moving = admin.start(lambda: admin.execute("select * from holdfast.redrive('q')")).blocked_by(sender)

    end(sender, commits)

    assert len(moving.result()) == (0 if commits else 1)
    assert scene.watcher.value("select count(*) from holdfast.message where key = 'k'") == 1
