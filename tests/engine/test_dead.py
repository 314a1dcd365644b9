"""Dead letters: where they go, what they carry, and how they come back.

1. A message that used up its deliveries, by nacks or by expiry, moves to the dead-letter queue in one step.
2. Every move draws a new id; origin tells the queue, the ids, the counts, the error and the times.
3. The dead-letter queue is made on first use, and does not bury in turn.
4. With dead_letter off, a message that used up its deliveries ends.
5. redrive sends dead letters back under new ids, by ids, filter or all, oldest first, with deliveries at
   zero, and leaves those in somebody's lease; it may name another target.
6. A second death keeps the first id, and when it was sent, and counts the redrives.
7. discard ends messages of a queue, or dead letters that came from it, and no others.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.engine.engine import T0, Engine, Row, ids, payloads

SECOND = timedelta(seconds=1)
TRACE = UUID("01234567-89ab-cdef-0123-456789abcdef")


@pytest.fixture
def mortal(engine: Engine) -> Engine:
    """A queue `q` whose messages die at the first failure."""
    engine.create("q", max_deliveries=1)
    return engine


def dead(engine: Engine, queue: str = "q") -> list[Row]:
    return engine.rows("browse", queue=queue, state="dead")


def test_a_dead_letter_carries_all_and_tells_where_it_came_from(mortal: Engine) -> None:
    sent = mortal.send(
        {"a": 1},
        content_type="t",
        headers={"h": 1},
        tag="g",
        correlation_id=TRACE,
        priority=4,
        max_deliveries=2,
    )
    mortal.settle("nack", mortal.claim_one()["token"], error="first", delay="0 s")
    held = mortal.claim_one()
    mortal.at(T0 + SECOND)
    mortal.settle("nack", held["token"], error="boom")

    row = mortal.claim_one(queue="q.dlq")

    origin: dict[str, Any] = row.pop("origin")
    times = {name: datetime.fromisoformat(origin.pop(name)) for name in ("died_at", "enqueued_at", "sent_at")}
    assert origin == {
        "queue": "q",
        "id": sent,
        "root_id": sent,
        "deliveries": 2,
        "failures": 2,
        "error": "boom",
        "priority": 4,
        "max_deliveries": 2,
    }
    assert times == {"died_at": T0 + SECOND, "enqueued_at": T0, "sent_at": T0}
    assert row["id"] != sent
    assert row["id"] >> 40 != sent >> 40
    assert (row["queue"], row["payload"], row["content_type"], row["headers"]) == (
        "q.dlq",
        {"a": 1},
        "t",
        {"h": 1},
    )
    assert (row["tag"], row["correlation_id"], row["last_error"]) == ("g", TRACE, "boom")
    assert (row["deliveries"], row["max_deliveries"], row["enqueued_at"]) == (1, 0, T0 + SECOND)


def test_a_body_survives_death(mortal: Engine) -> None:
    sent = mortal.value("send", queue="q", body=b"\x00\xff")

    mortal.kill(sent)

    assert mortal.claim_one(queue="q.dlq")["body"] == b"\x00\xff"


def test_expiry_of_the_last_lease_buries_too(mortal: Engine) -> None:
    mortal.send("slow")
    mortal.claim_one(lease="1 s")
    mortal.at(T0 + SECOND)

    freed = mortal.value("sweep", queue="q")

    (letter,) = dead(mortal)
    assert freed == 1
    assert (letter["payload"], letter["origin"]["deliveries"], letter["origin"]["failures"]) == ("slow", 1, 0)
    assert mortal.claim(1) == []


def test_dead_letters_can_have_a_queue_of_any_name_and_share_it(engine: Engine) -> None:
    for name in ("a", "b"):
        engine.create(name, max_deliveries=1, dead_letter="graves")
        engine.kill(engine.send(name, queue=name), queue=name)

    assert payloads(dead(engine, "a")) == ["a"]
    assert payloads(dead(engine, "b")) == ["b"]
    assert payloads(engine.claim(10, queue="graves")) == ["a", "b"]


def test_an_existing_queue_is_used_as_it_is(engine: Engine) -> None:
    engine.create("graves", max_deliveries=3, priority_default=2)
    engine.create("q", max_deliveries=1, dead_letter="graves")
    engine.kill(engine.send(1))

    row = engine.claim_one(queue="graves")

    assert (row["max_deliveries"], row["priority"]) == (3, 2)


def test_a_dead_letter_queue_made_on_first_use_does_not_bury(mortal: Engine) -> None:
    mortal.kill(mortal.send(1))

    made = mortal.rows("queues")[1]
    for _ in range(10):
        mortal.settle("nack", mortal.claim_one(queue="q.dlq")["token"], queue="q.dlq")

    assert (made["queue"], made["config"]) == ("q.dlq", {"dead_letter": False, "max_deliveries": 0})
    assert [row["queue"] for row in mortal.rows("queues")] == ["q", "q.dlq"]


def test_the_longest_name_can_have_dead_letters(engine: Engine) -> None:
    name = "x" * 200
    engine.create(name, max_deliveries=1)

    engine.kill(engine.send("dead", queue=name), queue=name)

    assert payloads(engine.claim(1, queue=name + ".dlq")) == ["dead"]
    assert engine.value("drop_queue", queue=name + ".dlq") is True


def test_without_a_dead_letter_queue_the_message_ends(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, dead_letter=False)
    sent = engine.send(1)

    settled = engine.settle("nack", engine.claim_one()["token"])

    assert settled == ([sent], [])
    assert engine.look("select count(*) from holdfast.message") == 0
    assert [row["queue"] for row in engine.rows("queues")] == ["q"]


def test_a_death_that_rolls_back_did_not_happen(mortal: Engine) -> None:
    sent = mortal.send(1)
    token = mortal.claim_one()["token"]

    with mortal.conn.transaction(force_rollback=True):
        mortal.settle("nack", token)

    assert dead(mortal) == []
    assert mortal.settle("ack", token) == ([sent], [])


def test_burial_passes_max_depth_and_max_payload(engine: Engine) -> None:
    engine.create("graves", max_depth=1, max_payload=10)
    engine.create("q", max_deliveries=1, dead_letter="graves")

    for _ in range(3):
        engine.kill(engine.send("a long long payload"))

    assert len(dead(engine)) == 3


def test_redrive_sends_back_under_a_new_id_with_deliveries_at_zero(mortal: Engine) -> None:
    sent = mortal.send("x", priority=3, tag="g", headers={"h": 1}, max_deliveries=1)
    letter = mortal.kill(sent, error="boom")
    mortal.at(T0 + SECOND)

    (moved,) = mortal.rows("redrive", queue="q")
    row = mortal.claim_one()

    assert moved == {"id": letter, "new_id": row["id"]}
    assert row["id"] not in (sent, letter)
    assert (row["payload"], row["priority"], row["tag"], row["headers"]) == ("x", 3, "g", {"h": 1})
    assert (row["deliveries"], row["max_deliveries"], row["last_error"]) == (1, 1, "boom")
    assert (row["origin"]["root_id"], row["origin"]["redrives"]) == (sent, 1)
    assert datetime.fromisoformat(row["origin"]["redriven_at"]) == T0 + SECOND
    assert dead(mortal) == []


def test_a_second_death_keeps_the_first_id_and_moment_and_counts_redrives(mortal: Engine) -> None:
    root = mortal.send("x")
    mortal.kill(root)
    mortal.at(T0 + SECOND)
    (again,) = mortal.rows("redrive", queue="q")
    mortal.kill(again["new_id"])
    (third,) = mortal.rows("redrive", queue="q")

    row = mortal.claim_one()

    assert row["id"] == third["new_id"]
    origin = row["origin"]
    assert (origin["root_id"], origin["id"], origin["redrives"]) == (root, again["new_id"], 2)
    times = (datetime.fromisoformat(origin["sent_at"]), datetime.fromisoformat(origin["enqueued_at"]))
    assert times == (T0, T0 + SECOND)


def test_redrive_takes_the_oldest_up_to_its_limit(mortal: Engine) -> None:
    letters = [mortal.kill(mortal.send(n)) for n in range(5)]

    moved = mortal.rows("redrive", queue="q", limit=2)

    assert ids(moved) == letters[:2]
    assert payloads(mortal.claim(10)) == [0, 1]
    assert ids(dead(mortal)) == letters[2:]


def test_redrive_by_ids_takes_those_and_skips_others(mortal: Engine) -> None:
    letters = [mortal.kill(mortal.send(n)) for n in range(3)]
    waiting = mortal.send("waiting")

    moved = mortal.rows("redrive", queue="q", ids=[letters[2], 42, waiting, letters[0]])

    assert ids(moved) == [letters[0], letters[2]]
    assert ids(dead(mortal)) == [letters[1]]
    assert mortal.rows("redrive", queue="q", ids=[]) == []


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({}, [0, 1, 2]),
        ({"error": "time"}, [0, 2]),
        ({"error": "time_ut"}, []),
        ({"error": "%"}, []),
        ({"tag": "b"}, [1, 2]),
        ({"tag": "b", "error": "timeout"}, [2]),
        ({"dead_before": (T0 + 2 * SECOND).isoformat()}, [0, 1]),
        ({"dead_after": (T0 + 1 * SECOND).isoformat()}, [2]),
        ({"dead_after": T0.isoformat(), "dead_before": (T0 + 2 * SECOND).isoformat()}, [1]),
    ],
)
def test_redrive_by_filter_takes_what_matches(
    mortal: Engine, filter: dict[str, str], expected: list[int]
) -> None:
    for n, (tag, error) in enumerate([("a", "timeout"), ("b", "refused"), ("b", "timeout 2")]):
        mortal.at(T0 + n * SECOND)
        mortal.kill(mortal.send(n, tag=tag), error=error)

    mortal.rows("redrive", queue="q", filter=filter)

    assert payloads(mortal.claim(10)) == expected


def test_redrive_can_send_elsewhere(mortal: Engine) -> None:
    mortal.create("elsewhere", ttl="1 h")
    mortal.kill(mortal.send("x", priority=2))

    mortal.rows("redrive", queue="q", target="elsewhere")

    row = mortal.claim_one(queue="elsewhere")
    assert (row["payload"], row["priority"], row["origin"]["queue"]) == ("x", 2, "q")
    assert mortal.look("select expires_at from holdfast.message") == T0 + timedelta(hours=1)
    assert mortal.claim(1) == []


def test_redrive_leaves_what_somebody_holds(mortal: Engine) -> None:
    held_letter, free_letter = (mortal.kill(mortal.send(n)) for n in range(2))
    held = mortal.claim_one(queue="q.dlq")

    moved = mortal.rows("redrive", queue="q")

    assert ids(moved) == [free_letter]
    assert held["id"] == held_letter
    assert mortal.settle("ack", held["token"], queue="q.dlq") == ([held_letter], [])


def test_redrive_before_anything_died_moves_nothing(queue: Engine) -> None:
    assert queue.rows("redrive", queue="q") == []


def test_redrive_takes_only_what_came_from_this_queue(engine: Engine) -> None:
    for name in ("a", "b"):
        engine.create(name, max_deliveries=1, dead_letter="graves")
        engine.kill(engine.send(name, queue=name), queue=name)
    engine.send("sent there", queue="graves")

    engine.rows("redrive", queue="a")

    assert payloads(engine.claim(10, queue="a")) == ["a"]
    assert payloads(engine.claim(10, queue="graves")) == ["b", "sent there"]


def test_a_redriven_message_is_not_claimed_from_its_old_place(mortal: Engine) -> None:
    mortal.kill(mortal.send(1))

    mortal.rows("redrive", queue="q")

    assert mortal.claim(10, queue="q.dlq") == []


@pytest.mark.parametrize("now", [False, "elsewhere"])
def test_redrive_by_ids_finds_what_died_under_another_dead_letter(mortal: Engine, now: bool | str) -> None:
    early = mortal.kill(mortal.send("early"))
    mortal.create("graves", kind="log")
    mortal.value("configure_queue", queue="q", config={"dead_letter": "graves"})
    later = mortal.kill(mortal.send("later"))
    mortal.value("configure_queue", queue="q", config={"dead_letter": now})

    moved = mortal.rows("redrive", queue="q", ids=[later, early])

    assert sorted(ids(moved)) == sorted([early, later])
    assert sorted(payloads(mortal.claim(10))) == ["early", "later"]
    assert mortal.claim(10, queue="q.dlq") == []


def test_redrive_by_ids_leaves_what_was_moved_on_or_came_from_elsewhere(mortal: Engine) -> None:
    mortal.create("other", max_deliveries=1)
    theirs = mortal.kill(mortal.send(1, queue="other"), queue="other")
    mortal.kill(mortal.send(2))
    (moved,) = mortal.rows("redrive", queue="q", target="other")

    assert mortal.rows("redrive", queue="q", ids=[theirs, moved["new_id"]]) == []


@pytest.mark.parametrize("ids", [None, [42]])
def test_redrive_of_a_queue_without_dead_letters_is_refused(engine: Engine, ids: list[int] | None) -> None:
    engine.create("q", dead_letter=False)

    with pytest.raises(psycopg.Error) as caught:
        engine.rows("redrive", queue="q", ids=ids)

    assert caught.value.sqlstate == "QH105"


def test_redrive_to_a_target_that_is_not_there_is_refused_and_moves_nothing(mortal: Engine) -> None:
    mortal.kill(mortal.send(1))
    before = mortal.state()

    with pytest.raises(psycopg.Error) as caught:
        mortal.rows("redrive", queue="q", target="nowhere")

    assert caught.value.sqlstate == "QH105"
    assert mortal.state() == before


@pytest.mark.parametrize(
    "filter", ["[]", '"x"', "5", '{"colour": 1}', '{"dead_before": "soon"}', '{"dead_after": true}']
)
def test_a_bad_filter_is_refused(refusing: Engine, filter: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.rows("redrive", queue="q", filter=filter)

    assert caught.value.sqlstate == "QH403"


def test_discard_ends_messages_in_every_state(mortal: Engine) -> None:
    letter = mortal.kill(mortal.send("dead"))
    held, ready = mortal.send_numbers(2)
    token = mortal.claim_one()["token"]
    scheduled = mortal.send("scheduled", delay="1 h")
    kept = mortal.send("kept")

    gone = mortal.value("discard", queue="q", ids=[scheduled, letter, held, ready, 42, ready])

    assert gone == sorted([letter, held, ready, scheduled])
    assert mortal.settle("ack", token, [held]) == ([], [held])
    assert ids(mortal.claim(10)) == [kept]
    assert mortal.claim(10, queue="q.dlq") == []


def test_a_strict_ack_of_a_discarded_message_is_refused(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]
    queue.value("discard", queue="q", ids=[sent])

    with pytest.raises(psycopg.Error) as caught:
        queue.settle("ack", token, strict=True)

    assert caught.value.sqlstate == "QH304"


def test_a_discarded_message_in_flight_is_not_counted_any_more(queue: Engine) -> None:
    first, second = queue.send_numbers(2)
    queue.claim(2)

    queue.value("discard", queue="q", ids=[first])

    figures = queue.stats()
    assert (figures["in_flight"], figures["depth"], figures["exact"]) == (1, 1, True)
    assert second > first


def test_discard_leaves_messages_of_other_queues(mortal: Engine) -> None:
    mortal.create("other", max_deliveries=1)
    foreign = mortal.send(1, queue="other")
    direct = mortal.send_numbers(1, queue="other")

    gone = mortal.value("discard", queue="q", ids=[foreign, *direct])

    assert gone == []
    assert ids(mortal.claim(10, queue="other")) == [foreign, *direct]


def test_discard_leaves_dead_letters_that_came_from_elsewhere(engine: Engine) -> None:
    for name in ("a", "b"):
        engine.create(name, max_deliveries=1, dead_letter="graves")
    letter = engine.kill(engine.send("a", queue="a"), queue="a")

    assert engine.value("discard", queue="b", ids=[letter]) == []
    assert engine.value("discard", queue="a", ids=[letter]) == [letter]


@pytest.mark.parametrize("nothing", [[], None])
def test_discarding_nothing_is_nothing(queue: Engine, nothing: list[int] | None) -> None:
    assert queue.value("discard", queue="q", ids=nothing) == []
