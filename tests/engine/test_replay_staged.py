"""Replays of what was staged: messages of an archive, wherever that is, sent once more with their origins.

1. They are new messages with what their rows say, the target's ttl, and an origin that counts the replay.
2. A line is theirs only in a queue with lines; a strict queue takes them at the end of its one line.
3. A write is replayed once, whoever asks again. max_depth and sizes hold nothing up, as in replay.
4. A send takes no origin from a row.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, payloads
from tests.engine.test_stage import payload, stage


def replay(engine: Engine, *stages: int, messages: int, queue: str = "q") -> tuple[int, bool]:
    row = engine.row("replay_staged", queue=queue, write_id="w", stages=list(stages), messages=messages)
    return row["sent"], row["repeated"]


def came_from(**fields: Any) -> Jsonb:
    return Jsonb({"queue": "old", "id": 7, "root_id": 3, "outcome": "done", **fields})


def test_a_replayed_message_is_new_and_knows_where_it_came_from(engine: Engine) -> None:
    engine.create("q", ttl="1 hour")
    options: dict[str, Any] = {"headers": Jsonb({"h": 1}), "tag": "t", "priority": 4, "max_deliveries": 2}
    number = stage(engine, payload({"a": 1}, origin=came_from(replays=1), **options))

    sent = replay(engine, number, messages=1)

    row = engine.claim_one()
    assert sent == (1, False)
    assert (row["payload"], row["headers"], row["tag"]) == ({"a": 1}, {"h": 1}, "t")
    assert (row["priority"], row["max_deliveries"], row["deliveries"]) == (4, 2, 1)
    assert row["enqueued_at"] == T0
    assert engine.look("select expires_at - enqueued_at = '1 hour' from holdfast.message")
    origin = row["origin"]
    assert (origin["queue"], origin["id"], origin["root_id"], origin["outcome"]) == ("old", 7, 3, "done")
    assert (origin["replays"], origin["replayed_at"]) == (2, "2030-01-01T00:00:00+00:00")


def test_bodies_are_replayed_and_rows_without_an_origin_have_a_small_one(queue: Engine) -> None:
    number = stage(queue, {"body": b"\x00\x01", "content_type": "c"})

    replay(queue, number, messages=1)

    row = queue.claim_one()
    assert (row["body"], row["content_type"], row["origin"]["replays"]) == (b"\x00\x01", "c", 1)


def test_messages_of_a_line_stand_in_it_in_the_order_of_their_rows(engine: Engine) -> None:
    engine.create("q", ordering="key")
    engine.send("before", ordering_key="a")
    rows = [payload(n, ordering_key="a", priority=9 - n) for n in range(3)]

    replay(engine, stage(engine, *rows), messages=3)

    found = []
    while claimed := engine.claim(10):
        found += payloads(claimed)
        engine.settle("ack", claimed[0]["token"])
    assert found == ["before", 0, 1, 2]


def test_a_queue_without_lines_takes_them_without(queue: Engine) -> None:
    number = stage(queue, payload(1, ordering_key="a"), payload(2, ordering_key="a"))

    replay(queue, number, messages=2)

    rows = queue.claim(10)
    assert payloads(rows) == [1, 2]
    assert {row["ordering_key"] for row in rows} == {None}


def test_a_strict_queue_takes_them_at_the_end_of_its_line(engine: Engine) -> None:
    engine.create("q", ordering="strict")
    engine.send("before")
    number = stage(engine, payload(1, priority=2, ordering_key="a"), payload(2, priority=9))

    replay(engine, number, messages=2)

    found = []
    while claimed := engine.claim(10):
        found += payloads(claimed)
        engine.settle("ack", claimed[0]["token"])
    assert found == ["before", 1, 2]


def test_a_write_is_replayed_once(queue: Engine) -> None:
    replay(queue, stage(queue, payload(1)), messages=1)
    late = queue.value("open_stage", queue="q", write_id="w", run="a", part=0)

    again = replay(queue, messages=1)

    assert (late, again) == (None, (1, True))
    assert payloads(queue.claim(10)) == [1]
    assert queue.look("select count(*) from holdfast.staged") == 0


def test_neither_depth_nor_size_holds_them_up(engine: Engine) -> None:
    engine.create("q", max_depth=1, max_payload=1024)
    number = stage(engine, payload("x" * 2000), payload(2))

    assert replay(engine, number, messages=2) == (2, False)


def test_a_log_takes_none(engine: Engine) -> None:
    engine.create("log", kind="log")

    with pytest.raises(psycopg.Error) as refused:
        replay(engine, messages=0, queue="log")

    assert refused.value.sqlstate == "QH602"


def test_a_send_takes_no_origin_from_a_row(queue: Engine) -> None:
    number = stage(queue, payload(1, origin=came_from()))

    queue.row("send_staged", queue="q", write_id="w", stages=[number], messages=1)

    assert queue.claim_one()["origin"] is None
