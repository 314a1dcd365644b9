"""Keys: messages that replace each other, and messages that are sent once.

1. Of a replaceable key one message waits: sending again replaces all that the sender said, and keeps the
   id and the place; another queue's message of the same key is another one.
2. A message that was handed out is not replaced: while it is held, and after a nack, a new one comes
   beside it. Where replaces is waiting, one that came back is replaced: it is the same message, with
   what its deliveries have left. One in flight still is not.
3. A released message was not worked on: it can be replaced.
4. Of an idempotency key one message lives: the same payload answers with its id, another is an error.
   Once it has ended, in whatever way but death, the key is free; so too once its time to live is over,
   unless it is in flight.
5. A dead letter keeps its keys in origin, and gets them back when it is sent back, an idempotency key
   only if it is free. Where a message of its key lives it is not sent back; of several, the first is.
6. Batches treat keys as single sends do, one after the other.
7. discard_key ends the messages of a key.
8. A key goes with an ordering key: what replaces a message has its place in the line, and its own delay.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, payloads

SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)


# --- 1 - 3: replaceable ------------------------------------------------------------------------------------


def test_sending_again_replaces_the_message_and_keeps_its_id(queue: Engine) -> None:
    first = queue.send("old", key="k", tag="red", headers={"a": 1}, ttl="1 h", max_deliveries=9)
    queue.at(T0 + SECOND)
    second = queue.value("send", queue="q", body=b"new", key="k", content_type="text/plain")

    (row,) = queue.claim(10)

    assert first == second == row["id"]
    assert (row["payload"], row["body"], row["content_type"]) == (None, b"new", "text/plain")
    assert (row["tag"], row["headers"], row["max_deliveries"], row["key"]) == (None, None, 5, "k")
    assert row["enqueued_at"] == T0 + SECOND
    assert queue.look("select expires_at is null from holdfast.message")


def test_a_replaced_message_keeps_its_place(queue: Engine) -> None:
    queue.send("old", key="k")
    queue.at(T0 + SECOND)
    queue.send("other", key="l")
    queue.at(T0 + 2 * SECOND)
    queue.send("new", key="k")

    assert payloads(queue.claim(10)) == ["new", "other"]


def test_a_new_delay_starts_the_wait_over(queue: Engine) -> None:
    queue.send("old", key="k", delay="10 s")
    queue.at(T0 + 5 * SECOND)
    queue.send("new", key="k", delay="10 s")
    queue.at(T0 + 10 * SECOND)
    early = queue.claim(10)
    queue.at(T0 + 15 * SECOND)

    assert early == []
    assert payloads(queue.claim(10)) == ["new"]


def test_without_a_delay_a_delayed_message_is_replaced_and_due_at_once(queue: Engine) -> None:
    queue.send("old", key="k", delay="10 s")
    queue.send("new", key="k")

    assert payloads(queue.claim(10)) == ["new"]


def test_keys_of_two_queues_have_nothing_to_do_with_each_other(queue: Engine) -> None:
    queue.create("other")

    assert queue.send(1, key="k") != queue.send(2, key="k", queue="other")


def test_a_message_in_flight_is_not_replaced(queue: Engine) -> None:
    first = queue.send("old", key="k")
    held = queue.claim_one()
    second = queue.send("new", key="k")
    third = queue.send("newer", key="k")

    assert first != second == third
    assert held["payload"] == "old"
    assert payloads(queue.claim(10)) == ["newer"]


@pytest.mark.parametrize("how", ["nack", "lease"])
def test_a_message_that_came_back_stays_beside_a_newer_one(queue: Engine, how: str) -> None:
    first = queue.send("old", key="k")
    token = queue.claim_one()["token"]
    if how == "nack":
        queue.settle("nack", token)
    else:
        queue.at(T0 + LEASE)
        queue.value("sweep", queue="q")

    second = queue.send("new", key="k")

    assert first != second
    assert payloads(queue.claim(10)) == ["old", "new"]


def test_a_released_message_can_be_replaced(queue: Engine) -> None:
    first = queue.send("old", key="k")
    queue.settle("release", queue.claim_one()["token"])

    assert queue.send("new", key="k") == first
    assert payloads(queue.claim(10)) == ["new"]


def test_a_released_message_that_meets_a_newer_one_stays(queue: Engine) -> None:
    queue.send("old", key="k")
    token = queue.claim_one()["token"]
    queue.send("new", key="k")
    queue.settle("release", token)

    assert sorted(payloads(queue.claim(10))) == ["new", "old"]


# --- 2: replaces = waiting


@pytest.fixture
def replacing(engine: Engine) -> Engine:
    """A queue in which a send replaces whatever waits."""
    engine.create("q", replaces="waiting")
    return engine


@pytest.mark.parametrize("how", ["nack", "lease"])
def test_a_message_that_came_back_is_replaced_and_keeps_its_history(replacing: Engine, how: str) -> None:
    first = replacing.send("old", key="k", ttl="1 h", tag="red")
    token = replacing.claim_one()["token"]
    if how == "nack":
        replacing.settle("nack", token, delay="10 s", error="no luck")
    else:
        replacing.at(T0 + LEASE)
        replacing.value("sweep", queue="q")

    assert replacing.send("new", key="k", ttl="2 h") == first

    (row,) = replacing.claim(10)
    assert (row["id"], row["payload"], row["tag"], row["deliveries"]) == (first, "new", None, 2)
    assert row["last_error"] == ("no luck" if how == "nack" else None)
    expires_at = T0 + (timedelta(0) if how == "nack" else LEASE) + timedelta(hours=2)
    assert replacing.look("select expires_at from holdfast.message") == expires_at
    assert replacing.settle("ack", token, [first]) == ([], [first])


def test_what_is_replaced_was_sent_when_it_was_sent_first(replacing: Engine) -> None:
    first = replacing.send(1, key="k", max_deliveries=1)
    for seconds in (10, 20):
        replacing.at(T0 + timedelta(seconds=seconds))
        replacing.send(2, key="k", max_deliveries=1)

    (row,) = replacing.claim(1)
    sent_at = datetime.fromisoformat(row["origin"]["sent_at"])
    assert (row["enqueued_at"], sent_at) == (T0 + timedelta(seconds=20), T0)
    replacing.settle("nack", row["token"])
    (dead,) = replacing.rows("browse", queue="q", state="dead")
    assert (dead["origin"]["root_id"], datetime.fromisoformat(dead["origin"]["sent_at"])) == (first, T0)


def test_one_in_flight_is_not_replaced_until_its_lease_was_taken_back(replacing: Engine) -> None:
    first = replacing.send("old", key="k")
    replacing.settle("nack", replacing.claim_one()["token"])
    held = replacing.claim_one()
    second = replacing.send("new", key="k")
    replacing.at(T0 + LEASE)

    assert second != first
    assert replacing.send("newer", key="k") == second
    assert replacing.settle("ack", held["token"]) == ([first], [])
    assert payloads(replacing.claim(10)) == ["newer"]


def test_of_two_that_wait_the_newer_is_replaced(replacing: Engine) -> None:
    replacing.send("old", key="k")
    token = replacing.claim_one()["token"]
    second = replacing.send("new", key="k")
    replacing.settle("nack", token)

    assert replacing.send("newer", key="k") == second
    assert sorted(payloads(replacing.claim(10))) == ["newer", "old"]


def test_what_replaces_a_message_that_was_sent_back_keeps_its_origin(replacing: Engine) -> None:
    root = replacing.send(1, key="k", max_deliveries=1)
    replacing.kill(root)
    assert redrive(replacing) == [1]
    again = replacing.send(2, key="k")

    (where,) = replacing.rows("whereabouts", ids=[root])

    assert (where["id"], replacing.claim_one()["payload"]) == (again, 2)


def test_a_dead_head_that_blocks_its_line_is_not_replaced(engine: Engine) -> None:
    engine.create("q", replaces="waiting", ordering="key", on_dead="block", max_deliveries=1)
    head = engine.send("dead", key="k", ordering_key="a")
    engine.settle("nack", engine.claim_one()["token"])

    assert engine.send("new", key="k", ordering_key="a") != head
    assert engine.claim(10) == []


# --- 4: idempotent -------------------------------------------------------------------------------------


def test_the_same_message_sent_again_is_the_first(queue: Engine) -> None:
    first = queue.send({"a": 1, "b": 2}, idempotency_key="k")
    again = queue.send({"b": 2, "a": 1}, idempotency_key="k")
    held = queue.claim(10)
    while_held = queue.send({"a": 1, "b": 2}, idempotency_key="k")

    assert first == again == while_held
    assert len(held) == 1


@pytest.mark.parametrize(
    ("options", "other"),
    [
        ({"payload": Jsonb(1)}, {"payload": Jsonb(2)}),
        ({"payload": Jsonb("a")}, {"body": b"a"}),
        ({}, {"payload": Jsonb(None)}),
        ({"body": b""}, {}),
    ],
)
def test_another_payload_is_an_error(queue: Engine, options: dict[str, Any], other: dict[str, Any]) -> None:
    queue.value("send", queue="q", idempotency_key="k", **options)

    with pytest.raises(psycopg.Error) as refused:
        queue.value("send", queue="q", idempotency_key="k", **other)

    assert refused.value.sqlstate == "QH222"
    assert queue.stats()["depth"] == 1


@pytest.mark.parametrize("end", ["ack", "discard", "expire"])
def test_once_the_message_has_ended_its_key_is_free(queue: Engine, end: str) -> None:
    first = queue.send(1, idempotency_key="k", ttl="1 s")
    if end == "ack":
        queue.settle("ack", queue.claim_one()["token"])
    elif end == "discard":
        queue.value("discard", queue="q", ids=[first])
    else:
        queue.at(T0 + SECOND)
        queue.claim(1)

    assert queue.send(2, idempotency_key="k") != first


# --- 5: dead letters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [1, 2])
@pytest.mark.parametrize("options", [{}, {"delay": "1 s"}])
def test_a_message_that_has_expired_has_given_its_key_up(
    queue: Engine, options: dict[str, Any], payload: int
) -> None:
    queue.value("configure_queue", queue="q", config={"keep": ["expired"]})
    first = queue.send(1, idempotency_key="k", ttl="10 s", **options)
    queue.at(T0 + 10 * SECOND)

    second = queue.send(payload, idempotency_key="k", ttl="1 h")

    assert second != first
    assert queue.row("message", queue="q", id=first)["state"] == "expired"
    assert [row["id"] for row in queue.claim(10)] == [second]


def test_a_message_in_flight_keeps_its_key_over_its_time_to_live(queue: Engine) -> None:
    first = queue.send(1, idempotency_key="k", ttl="10 s")
    token = queue.claim_one()["token"]
    queue.at(T0 + 11 * SECOND)

    assert queue.send(1, idempotency_key="k") == first
    assert queue.settle("ack", token) == ([first], [])


def test_the_line_of_an_expired_message_goes_on_when_its_key_is_used_again(engine: Engine) -> None:
    engine.create("q", ordering="key")
    engine.send(1, idempotency_key="k", ordering_key="a", ttl="10 s", delay="5 s")
    engine.send(2, ordering_key="a")
    assert engine.claim(10) == []
    engine.at(T0 + 11 * SECOND)

    engine.send(3, idempotency_key="k", ordering_key="a")

    (row,) = engine.claim(10)
    engine.settle("ack", row["token"])
    assert [row["payload"], *payloads(engine.claim(10))] == [2, 3]


def test_a_dead_letter_keeps_its_keys_in_its_origin_and_gets_them_back(queue: Engine) -> None:
    queue.create("p")
    for name, options in (("q", {"idempotency_key": "i"}), ("p", {"key": "k"})):
        id = queue.send(1, queue=name, max_deliveries=1, **options)
        dead = queue.kill(id, queue=name)
        origin = queue.row("message", queue=name, id=dead)["origin"]
        (moved,) = queue.rows("redrive", queue=name)

        assert {k: v for k, v in origin.items() if "key" in k} == options
        assert queue.send(1, queue=name, **options) == moved["new_id"]


def test_an_idempotency_key_that_is_taken_is_not_given_back(queue: Engine) -> None:
    queue.kill(queue.send(1, idempotency_key="k", max_deliveries=1))
    newer = queue.send(2, idempotency_key="k")

    queue.rows("redrive", queue="q")

    assert queue.send(2, idempotency_key="k") == newer
    assert sorted(payloads(queue.claim(10))) == [1, 2]


def test_two_deaths_of_one_key_are_two_dead_letters(queue: Engine) -> None:
    for n in (1, 2):
        queue.kill(queue.send(n, idempotency_key="k", max_deliveries=1))

    moved = queue.rows("redrive", queue="q")

    assert len(moved) == 2
    assert sorted(payloads(queue.claim(10))) == [1, 2]


def redrive(engine: Engine, **options: Any) -> list[Any]:
    """Send dead letters back; their payloads."""
    moved = [row["new_id"] for row in engine.rows("redrive", queue="q", **options)]
    return [engine.row("message", queue=options.get("target", "q"), id=id)["payload"] for id in moved]


@pytest.mark.parametrize("held", [True, False])
def test_a_dead_letter_stays_where_it_is_while_a_newer_message_of_its_key_lives(
    queue: Engine, held: bool
) -> None:
    grave = queue.kill(queue.send(1, key="k", max_deliveries=1))
    newer = queue.send(2, key="k")
    token = queue.claim_one()["token"] if held else None

    assert redrive(queue) == []
    assert [row["id"] for row in queue.rows("browse", queue="q", state="dead")] == [grave]

    queue.settle("ack", token or queue.claim_one()["token"], [newer])
    assert redrive(queue) == [1]


def test_those_that_stay_do_not_keep_others_from_being_sent_back(queue: Engine) -> None:
    for n in range(5):
        queue.kill(queue.send(n, key="k", max_deliveries=1))
    queue.kill(queue.send("other", max_deliveries=1))
    queue.send(5, key="k")

    assert redrive(queue, limit=2) == ["other"]


def test_of_several_dead_letters_of_a_key_the_first_is_sent_back(queue: Engine) -> None:
    for n in (1, 2):
        queue.kill(queue.send(n, key="k", max_deliveries=1))
    queue.kill(queue.send(3, key="l", max_deliveries=1))

    assert redrive(queue) == [1, 3]
    assert redrive(queue) == []
    assert payloads(queue.claim(10)) == [1, 3]


def test_in_another_line_or_queue_a_message_of_the_same_key_is_another(engine: Engine) -> None:
    engine.create("q", ordering="key")
    engine.create("elsewhere")
    for n in (1, 2):
        engine.kill(engine.send(n, key="k", ordering_key="a", max_deliveries=1))
    engine.send(3, key="k", ordering_key="b")

    assert redrive(engine, limit=1) == [1]
    assert redrive(engine, target="elsewhere") == [2]


def test_what_replaces_a_message_that_was_dead_has_no_origin(queue: Engine) -> None:
    queue.kill(queue.send(1, key="k", max_deliveries=1))
    redrive(queue)
    queue.send(2, key="k")

    row = queue.claim_one()

    assert (row["payload"], row["origin"], row["last_error"]) == (2, None, None)


# --- 6, 7: batches, discard ---------------------------------------------------------------------------------


def test_in_a_batch_the_last_of_a_key_stays_and_an_idempotent_one_comes_once(queue: Engine) -> None:
    messages = [
        {"payload": 1, "key": "k"},
        {"payload": 2},
        {"payload": 3, "key": "k"},
        {"payload": 4, "idempotency_key": "i"},
        {"payload": 4, "idempotency_key": "i"},
    ]

    ids = queue.value("send_many", queue="q", messages=Jsonb(messages))

    assert ids[0] == ids[2]
    assert ids[3] == ids[4]
    assert sorted(payloads(queue.claim(10))) == [2, 3, 4]


def test_the_inbox_and_send_batch_take_keys(queue: Engine) -> None:
    queue.conn.execute(
        "insert into holdfast.inbox (queue, payload, key, idempotency_key) values"
        " ('q', '1', 'k', null), ('q', '2', null, 'i')"
    )
    ids = queue.send_numbers(3, key="k")
    again = queue.send(2, idempotency_key="i")

    assert len(set(ids)) == 1
    assert sorted((row["id"] in {*ids, again}, row["payload"]) for row in queue.claim(10)) == [
        (True, 2),
        (True, 2),
    ]


def test_discard_key_ends_what_has_the_key(queue: Engine) -> None:
    held = queue.send(1, key="k")
    token = queue.claim_one()["token"]
    waiting = queue.send(2, key="k")
    queue.send(3, key="l")

    assert queue.value("discard_key", queue="q", key="k") == [held, waiting]
    assert queue.settle("ack", token, [held]) == ([], [held])
    assert payloads(queue.claim(10)) == [3]


# --- 8: with order -------------------------------------------------------------------------------------


def test_what_replaces_a_message_has_its_place_in_the_line(engine: Engine) -> None:
    engine.create("q", ordering="key")
    engine.send(1, ordering_key="a")
    parked = engine.send("old", ordering_key="a", key="k")
    engine.send(3, ordering_key="a")
    token = engine.claim(10)[0]["token"]

    again = engine.send("new", ordering_key="a", key="k")
    early = engine.claim(10)
    engine.settle("ack", token)

    assert (parked, early) == (again, [])
    assert payloads(engine.claim(10)) == ["new"]


def test_the_same_key_in_another_line_is_another_message(engine: Engine) -> None:
    engine.create("q", ordering="key")

    assert engine.send(1, ordering_key="a", key="k") != engine.send(2, ordering_key="b", key="k")


def parked(engine: Engine) -> tuple[int, int]:
    """A line of three: the first in flight, the second, with a key, parked; its id and the first's token."""
    engine.create("q", ordering="key")
    engine.send(1, ordering_key="a")
    second = engine.send(2, ordering_key="a", key="k")
    engine.send(3, ordering_key="a")
    (head,) = engine.claim(10)
    assert engine.stats()["blocked"] == 2
    return second, head["token"]


def test_the_delay_of_what_replaces_a_parked_message_counts(engine: Engine) -> None:
    second, token = parked(engine)

    assert engine.send("late", ordering_key="a", key="k", delay="10 s") == second

    engine.settle("ack", token)
    assert engine.claim(10) == []
    engine.at(T0 + 10 * SECOND)
    (row,) = engine.claim(10)
    engine.settle("ack", row["token"])
    assert [row["payload"], *payloads(engine.claim(10))] == ["late", 3]


def test_a_delay_that_is_over_before_the_head_ends_parks_the_message_again(engine: Engine) -> None:
    _, token = parked(engine)
    engine.send("late", ordering_key="a", key="k", delay="10 s")
    engine.at(T0 + 10 * SECOND)

    assert engine.claim(10) == []
    assert engine.stats()["blocked"] == 2
    engine.settle("ack", token)

    (row,) = engine.claim(10)
    engine.settle("ack", row["token"])
    assert [row["payload"], *payloads(engine.claim(10))] == ["late", 3]


def test_without_a_delay_what_replaces_a_parked_message_stays_parked(engine: Engine) -> None:
    _, token = parked(engine)
    engine.send("late", ordering_key="a", key="k", delay="10 s")
    engine.send("now", ordering_key="a", key="k")

    assert engine.claim(10) == []
    engine.settle("ack", token)

    assert payloads(engine.claim(10)) == ["now"]
