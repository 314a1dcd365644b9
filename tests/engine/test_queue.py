"""Queues: create, configure, pause, resume, drop, and the global defaults.

1. create_queue makes a queue once; the same call again changes nothing and says so.
2. A queue is made with its registers, its lanes and its boot row; drop_queue removes all of them.
3. configure_queue merges: a field that is not named stays, null takes it back to the default.
4. The effective configuration is built-in < global default < queue, and backoff merges field by field.
5. configure_defaults reaches queues that are there already, except for the fields they set themselves.
6. A paused queue hands out nothing, and takes sends and settlements.
7. pause, resume and drop say whether they changed something.
8. Dropping a queue leaves its dead letters, and a queue of the same name starts empty.
9. if_empty refuses a queue with a message in any lane and state, or a log with a record, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.built_in import BUILT_IN
from tests.engine.engine import T0, Engine, payloads

EFFECTIVE = BUILT_IN | {"dead_letter": "q.dlq"}


def sequences(engine: Engine) -> Any:
    return engine.look(
        "select array_agg(relname::text order by relname) from pg_class"
        " where relkind = 'S' and relnamespace = 'holdfast'::regnamespace"
    )


def test_a_queue_is_created_once(engine: Engine) -> None:
    first = engine.value("create_queue", queue="q")
    second = engine.value("create_queue", queue="q")

    assert (first, second) == (True, False)


def test_creating_with_the_same_configuration_again_changes_nothing(engine: Engine) -> None:
    engine.create("q", lease="5 s", max_deliveries=3)
    before = engine.state()

    again = engine.value("create_queue", queue="q", config={"max_deliveries": 3, "lease": "5 s"})

    assert again is False
    assert engine.state() == before


def test_creating_without_a_configuration_accepts_the_queue_as_it_is(engine: Engine) -> None:
    engine.create("q", lease="5 s")
    before = engine.state()

    again = engine.value("create_queue", queue="q")

    assert again is False
    assert engine.state() == before


def test_a_null_field_in_create_is_the_default(engine: Engine) -> None:
    engine.create("q", lease=None, ttl=None)

    row = engine.row("queues")

    assert row["config"] == {}
    assert row["effective"] == EFFECTIVE


def test_queues_lists_every_queue_by_name_with_its_own_and_the_effective_configuration(
    engine: Engine,
) -> None:
    engine.create("b", shards=2)
    engine.create("a")

    rows = engine.rows("queues")

    assert [row["queue"] for row in rows] == ["a", "b"]
    assert [row["config"] for row in rows] == [{}, {"shards": 2}]
    assert rows[1]["effective"] == EFFECTIVE | {"dead_letter": "b.dlq", "shards": 2}
    assert [row["paused"] for row in rows] == [False, False]
    assert [row["created_at"] for row in rows] == [T0, T0]


def test_configure_merges_and_returns_what_holds(engine: Engine) -> None:
    engine.create("q", lease="5 s", max_deliveries=3)

    effective = engine.value("configure_queue", queue="q", config={"lease": None, "ttl": 60})

    assert effective == EFFECTIVE | {"max_deliveries": 3, "ttl": 60}
    assert engine.row("queues")["config"] == {"max_deliveries": 3, "ttl": 60}


def test_configuring_backoff_changes_only_the_named_parts(engine: Engine) -> None:
    engine.create("q", backoff={"base": "1 s"})

    effective = engine.value("configure_queue", queue="q", config={"backoff": {"cap": 10}})
    back = engine.value("configure_queue", queue="q", config={"backoff": None})

    assert effective["backoff"] == {"base": "1 s", "factor": 2, "cap": 10, "jitter": 0}
    assert back["backoff"] == EFFECTIVE["backoff"]


def test_a_configured_lease_is_what_claim_uses(queue: Engine) -> None:
    queue.value("configure_queue", queue="q", config={"lease": "90 s"})
    queue.send(1)

    assert queue.claim_one()["deadline"] == T0 + timedelta(seconds=90)


def test_priorities_and_shards_make_their_lanes_ahead(engine: Engine) -> None:
    engine.create("q", priorities=[0, 7], priority_default=3, shards=2)

    lanes = engine.conn.execute(
        "select priority, shard from holdfast.lane order by priority desc, shard"
    ).fetchall()

    assert lanes == [(7, 0), (7, 1), (3, 0), (3, 1), (0, 0), (0, 1)]


def test_the_default_priority_is_used_by_a_send_that_names_none(engine: Engine) -> None:
    engine.create("q", priority_default=4)
    engine.send("default")
    engine.send("lower", priority=3)
    engine.send("higher", priority=5)

    rows = engine.claim(3)

    assert [(row["payload"], row["priority"]) for row in rows] == [
        ("higher", 5),
        ("default", 4),
        ("lower", 3),
    ]


def test_defaults_lie_between_the_built_in_and_the_queue(engine: Engine) -> None:
    engine.create("own", lease="5 s")
    engine.create("plain")

    defaults = engine.value(
        "configure_defaults", config={"lease": "7 s", "backoff": {"factor": 3}, "max_deliveries": 9}
    )

    assert defaults == EFFECTIVE | {
        "lease": "7 s",
        "max_deliveries": 9,
        "dead_letter": None,
        "backoff": {"base": "0 s", "factor": 3, "cap": "300 s", "jitter": 0},
    }
    own, plain = engine.rows("queues")
    assert (own["effective"]["lease"], own["effective"]["max_deliveries"]) == ("5 s", 9)
    assert (plain["effective"]["lease"], plain["effective"]["backoff"]["factor"]) == ("7 s", 3)


def test_changed_defaults_hold_for_queues_made_before_and_after(queue: Engine) -> None:
    queue.value("configure_defaults", config={"lease": "7 s"})
    queue.create("later")
    queue.send(1)
    queue.send(1, queue="later")

    deadlines = [queue.claim_one(queue=name)["deadline"] for name in ("q", "later")]

    assert deadlines == [T0 + timedelta(seconds=7)] * 2


def test_null_takes_a_default_back_to_the_built_in(queue: Engine) -> None:
    queue.value("configure_defaults", config={"lease": "7 s", "max_deliveries": 2})

    defaults = queue.value("configure_defaults", config={"lease": None})

    assert (defaults["lease"], defaults["max_deliveries"]) == ("30 s", 2)
    assert queue.row("queues")["effective"]["lease"] == "30 s"


def test_dead_letters_can_be_switched_off_for_all(queue: Engine) -> None:
    queue.value("configure_defaults", config={"dead_letter": False})

    assert queue.row("queues")["effective"]["dead_letter"] is False


def test_a_paused_queue_hands_out_nothing_but_takes_sends_and_settlements(queue: Engine) -> None:
    queue.send("held")
    held = queue.claim_one()

    changed = queue.value("pause_queue", queue="q")
    queue.send("later")

    assert changed is True
    assert queue.claim(10) == []
    assert queue.settle("ack", held["token"]) == ([held["id"]], [])
    assert queue.stats()["paused"] is True
    assert queue.row("queues")["paused"] is True


def test_a_resumed_queue_hands_out_what_waited(queue: Engine) -> None:
    queue.send(1)
    queue.value("pause_queue", queue="q")

    changed = queue.value("resume_queue", queue="q")

    assert changed is True
    assert payloads(queue.claim(10)) == [1]


def test_pausing_and_resuming_twice_says_that_nothing_changed(queue: Engine) -> None:
    answers = [queue.value(verb, queue="q") for verb in ("resume_queue", "pause_queue", "pause_queue")]

    assert answers == [False, True, False]


def test_dropping_removes_messages_leases_lanes_and_every_register(engine: Engine) -> None:
    before = sequences(engine)
    engine.create("q", priorities=[0, 5], shards=2)
    engine.send_numbers(5)
    engine.send(1, delay="1 h")
    engine.claim(2)
    engine.value("maintain")

    dropped = engine.value("drop_queue", queue="q")

    assert dropped is True
    left = engine.conn.execute(
        "select (select count(*) from holdfast.queue), (select count(*) from holdfast.lane),"
        " (select count(*) from holdfast.message), (select count(*) from holdfast.lease),"
        " (select count(*) from holdfast.gap), (select count(*) from holdfast.boot),"
        " (select count(*) from holdfast.tally)"
    ).fetchone()
    assert left == (0, 0, 0, 0, 0, 0, 0)
    assert sequences(engine) == before


def test_dropping_what_is_not_there_says_so(engine: Engine) -> None:
    assert engine.value("drop_queue", queue="nothing") is False


def test_a_queue_made_again_under_the_same_name_starts_empty(queue: Engine) -> None:
    queue.send_numbers(3)
    (held,) = queue.claim(1)
    queue.value("drop_queue", queue="q")

    queue.create("q")

    assert queue.claim(10) == []
    assert queue.settle("ack", held["token"]) == ([], [])
    queue.send("new")
    assert payloads(queue.claim(10)) == ["new"]


def test_dropping_a_queue_leaves_its_dead_letters_where_they_are(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.kill(engine.send("dead"))

    engine.value("drop_queue", queue="q")

    assert payloads(engine.claim(1, queue="q.dlq")) == ["dead"]


STATES: dict[str, Callable[[Engine], Any]] = {
    "ready": lambda engine: engine.send(1),
    "in its last lane": lambda engine: engine.send(1, priority=5),
    "scheduled": lambda engine: engine.send(1, delay="1 h"),
    "in flight": lambda engine: (engine.send(1), engine.claim(1)),
}


@pytest.mark.parametrize("state", STATES)
def test_a_message_in_any_state_keeps_a_queue_from_being_dropped_if_empty(engine: Engine, state: str) -> None:
    engine.create("q", priorities=[0, 5])
    engine.create("beside")
    STATES[state](engine)
    before = sequences(engine)

    with pytest.raises(psycopg.Error, match='queue "q" is not empty') as caught:
        engine.value("drop_queue", queue="q", if_empty=True)

    assert caught.value.sqlstate == "QH109"
    assert sequences(engine) == before
    assert engine.value("drop_queue", queue="beside", if_empty=True) is True
    assert engine.look("select count(*) from holdfast.message") == 1


def test_a_log_counts_as_empty_when_its_records_are_deleted(engine: Engine) -> None:
    engine.create("log", kind="log")
    engine.send(1, queue="log")

    with pytest.raises(psycopg.Error, match="is not empty"):
        engine.value("drop_queue", queue="log", if_empty=True)
    engine.row("log_delete", queue="log", seqs=[1])

    assert engine.value("drop_queue", queue="log", if_empty=True) is True


@pytest.mark.parametrize("name", ["a", "A.b_c:d-9", "x" * 200])
def test_good_names_are_accepted(engine: Engine, name: str) -> None:
    engine.create(name)
    engine.send("in", queue=name)

    assert payloads(engine.claim(1, queue=name)) == ["in"]
