"""whereabouts: where messages are that are known by their first ids.

1. A message is found by its own id as long as it never moved, in whatever queue and state.
2. Once it has moved it is found by its first id, and by no other.
3. One that has ended is found with how it ended, if it was kept.
4. A living one wins over those that have ended, one in flight over others; of several of a kind the latest.
"""

from __future__ import annotations

from datetime import timedelta

from tests.engine.engine import T0, Engine

SECOND = timedelta(seconds=1)


def found(engine: Engine, *roots: int) -> list[tuple[int, str, int, str]]:
    """The rows for these ids."""
    rows = engine.rows("whereabouts", ids=list(roots))
    return [(row["root_id"], row["queue"], row["id"], row["state"]) for row in rows]


def place(engine: Engine, root: int) -> tuple[str, int, str]:
    """The queue, id and state for one id."""
    ((_, queue, id, state),) = found(engine, root)
    return queue, id, state


def test_living_messages_are_found_in_every_queue_and_state(engine: Engine) -> None:
    engine.create("q")
    engine.create("lines", ordering="key")
    ready = engine.send(1)
    scheduled = engine.send(1, delay="1 h")
    held = engine.send(1, queue="lines", ordering_key="k")
    blocked = engine.send(1, queue="lines", ordering_key="k")
    assert len(engine.claim(10, queue="lines")) == 1

    rows = found(engine, blocked, held, scheduled, ready, ready, 1)

    assert rows == [
        (ready, "q", ready, "ready"),
        (scheduled, "q", scheduled, "scheduled"),
        (held, "lines", held, "in_flight"),
        (blocked, "lines", blocked, "blocked"),
    ]


def test_a_message_that_moved_is_found_by_its_first_id_alone(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.create("other")
    root = engine.send(1)
    dead = engine.kill(root)

    assert place(engine, root) == ("q.dlq", dead, "dead")
    assert found(engine, dead) == []
    token = engine.claim_one(queue="q.dlq")["token"]
    assert place(engine, root) == ("q.dlq", dead, "in_flight")
    engine.settle("release", token, queue="q.dlq")

    (back,) = engine.rows("redrive", queue="q", target="other")

    assert found(engine, root, dead, back["new_id"]) == [(root, "other", back["new_id"], "ready")]


def test_what_has_ended_is_found_with_how_it_ended_if_it_was_kept(engine: Engine) -> None:
    engine.create("kept", keep=["done", "discarded"])
    engine.create("q")
    done, other = engine.send(1, queue="kept"), engine.send(1)
    for queue in ("kept", "q"):
        engine.settle("ack", engine.claim_one(queue=queue)["token"], queue=queue)
    discarded = engine.send(2, queue="kept")
    engine.value("discard", queue="kept", ids=[discarded])

    assert found(engine, done, other, discarded) == [
        (done, "kept", done, "done"),
        (discarded, "kept", discarded, "discarded"),
    ]


def test_a_living_one_wins_and_of_several_the_latest(engine: Engine) -> None:
    engine.create("q", keep=["done"])
    root = engine.send(1)
    engine.settle("ack", engine.claim_one()["token"])
    copies: list[int] = []
    for _ in range(2):
        engine.at(T0 + len(copies) * SECOND)
        copies.append(engine.rows("replay", queue="q", limit=1)[0]["new_id"])

    assert place(engine, root) == ("q", copies[1], "ready")
    (row,) = engine.claim(1)
    assert (row["id"], place(engine, root)) == (copies[0], ("q", copies[0], "in_flight"))
    token = engine.claim_one()["token"]
    assert place(engine, root) == ("q", copies[1], "in_flight")
    engine.settle("ack", token)
    assert place(engine, root) == ("q", copies[0], "in_flight")
    engine.at(T0 + 9 * SECOND)
    engine.settle("ack", row["token"])

    assert place(engine, root) == ("q", copies[0], "done")


def test_an_origin_without_a_number_does_not_hide_a_message(queue: Engine) -> None:
    stage = queue.value("open_stage", queue="q", write_id="w", run="a", part=0)
    queue.conn.execute(
        "insert into holdfast.staged (stage, n, payload, origin) values"
        " (%s, 1, '1', '{\"root_id\": \"abc\"}'), (%s, 2, '1', '{\"root_id\": 17}')",
        [stage, stage],
    )
    assert queue.row("replay_staged", queue="q", write_id="w", stages=[stage], messages=2)["sent"] == 2

    (row,) = queue.rows("browse", queue="q", limit=1)
    assert found(queue, 17) == [(17, "q", row["id"] + 1, "ready")]
    assert found(queue, row["id"]) == [(row["id"], "q", row["id"], "ready")]
    queue.conn.execute("select holdfast.configure_queue('q', '{\"max_deliveries\": 1}')")
    for delivery in queue.claim(2):
        queue.settle("nack", delivery["token"], [delivery["id"]])  # it moves all the same
    assert [place(queue, root)[2] for root in (17, row["id"])] == ["dead", "dead"]
    assert queue.rows("whereabouts", ids=[]) == queue.rows("whereabouts", ids=None) == []
