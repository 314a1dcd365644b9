"""Stages: messages that many processes bring, and that one transaction sends.

1. What is sent has the order of the stages and of the numbers in them, and all options of a send.
2. A write is sent once, whoever asks again; a write of which a row is missing is not sent at all.
3. What a send would refuse is taken out and named; what slips by is refused by the sending itself.
4. Rows of attempts that do not count are never sent, and go with the write, the run, or after a day.
5. A stage is its opener's, and for one write: nobody else sends, drops, changes or even finds it.
"""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, ids, payloads

MANY = 200_000


def stage(engine: Engine, *rows: dict[str, Any], queue: str = "q", write: str = "w", run: str = "a") -> int:
    """A stage with these rows."""
    number = engine.value("open_stage", queue=queue, write_id=write, run=run, part=0)
    for n, row in enumerate(rows, 1):
        columns = {"stage": number, "n": n, **row}
        comma = sql.SQL(", ")
        statement = sql.SQL("insert into holdfast.staged ({}) values ({})").format(
            comma.join(map(sql.Identifier, columns)), comma.join(map(sql.Placeholder, columns))
        )
        engine.conn.execute(statement, columns)
    return int(number)


def send(engine: Engine, *stages: int, messages: int, queue: str = "q", write: str = "w") -> tuple[int, bool]:
    row = engine.row("send_staged", queue=queue, write_id=write, stages=list(stages), messages=messages)
    return row["sent"], row["repeated"]


def staged(engine: Engine) -> int:
    return int(engine.look("select count(*) from holdfast.staged"))


def payload(value: Any, **options: Any) -> dict[str, Any]:
    return {"payload": Jsonb(value), **options}


def test_messages_are_sent_in_the_order_of_stages_and_numbers(queue: Engine) -> None:
    first = stage(queue, payload(1), payload(2))
    second = stage(queue, payload(3))

    sent = send(queue, second, first, messages=3)

    assert sent == (3, False)
    assert payloads(queue.claim(10)) == [3, 1, 2]
    assert staged(queue) == 0


def test_all_options_of_a_send_arrive(queue: Engine) -> None:
    number = stage(
        queue,
        {
            "body": b"\x00",
            "content_type": "text/plain",
            "headers": Jsonb({"a": 1}),
            "priority": 3,
            "delay": 60.0,
            "ttl": 120.0,
            "correlation_id": "6f9619ff-8b86-d011-b42d-00c04fc964ff",
            "tag": "t",
            "max_deliveries": 4,
        },
        payload(2, deliver_at=T0 + timedelta(minutes=2), expires_at=T0 + timedelta(minutes=3)),
    )

    send(queue, number, messages=2)

    low, high = sorted(queue.rows("browse", queue="q", state="scheduled"), key=lambda row: row["due_at"])
    assert (low["body"], low["content_type"], low["headers"]) == (b"\x00", "text/plain", {"a": 1})
    assert low["priority"] == 3
    assert (low["due_at"], low["expires_at"]) == (T0 + timedelta(minutes=1), T0 + timedelta(minutes=2))
    assert (str(low["correlation_id"]), low["tag"]) == ("6f9619ff-8b86-d011-b42d-00c04fc964ff", "t")
    assert low["max_deliveries"] == 4
    assert (high["due_at"], high["expires_at"]) == (T0 + timedelta(minutes=2), T0 + timedelta(minutes=3))


@pytest.mark.parametrize(
    "config", [{"priority_default": 3, "ttl": "1 h"}, {"ordering": "key"}, {"ordering": "strict"}]
)
def test_payloads_alone_are_stored_as_a_send_stores_them(engine: Engine, config: dict[str, Any]) -> None:
    engine.create("q", **config)
    engine.send(1)

    send(engine, stage(engine, payload(1)), messages=1)

    alike = engine.look(
        "select array_agg(to_jsonb(m) - 'id' - 'order_no' || jsonb_build_object('in_line', order_no > 0)"
        " order by id) from holdfast.message m"
    )
    assert len(alike) == 2
    assert alike[0] == alike[1]


def test_a_payload_that_is_too_large_is_refused_by_the_sending_itself(engine: Engine) -> None:
    engine.create("q", max_payload=2000)
    number = stage(engine, payload(1), payload("x" * 3000))

    with pytest.raises(psycopg.Error, match="QH201"):
        send(engine, number, messages=2)

    assert engine.look("select count(*) from holdfast.message") == 0


def test_the_ttl_of_the_queue_is_the_default(engine: Engine) -> None:
    engine.create("q", ttl="1 min")

    send(engine, stage(engine, payload(1)), messages=1)

    assert engine.rows("browse", queue="q")[0]["expires_at"] == T0 + timedelta(minutes=1)


def test_a_write_is_sent_once(queue: Engine) -> None:
    first = send(queue, stage(queue, payload(1)), messages=1)
    late = queue.value("open_stage", queue="q", write_id="w", run="b", part=0)
    again = send(queue, messages=0)

    assert (first, late, again) == ((1, False), None, (1, True))
    assert len(queue.claim(10)) == 1


def test_the_same_name_is_another_write_in_another_queue(queue: Engine) -> None:
    queue.create("r")
    send(queue, stage(queue, payload(1)), messages=1)

    assert send(queue, stage(queue, payload(2), queue="r"), queue="r", messages=1) == (1, False)


def test_of_two_that_send_the_same_write_at_once_one_sends(queue: Engine, open_engine: Open) -> None:
    other = open_engine()
    first, second = stage(queue, payload(1), run="a"), stage(queue, payload(1), run="b")
    other.conn.execute("set lock_timeout = '100ms'")

    with queue.conn.transaction():
        send(queue, first, messages=1)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            send(other, second, messages=1)
    repeated = send(other, second, messages=1)

    assert repeated == (1, True)
    assert (len(queue.claim(10)), staged(queue)) == (1, 0)


def test_a_write_that_lacks_a_row_is_not_sent(queue: Engine) -> None:
    number = stage(queue, payload(1))

    with pytest.raises(psycopg.Error) as refused:
        send(queue, number, messages=2)

    assert refused.value.sqlstate == "QH231"
    assert (queue.claim(10), staged(queue)) == ([], 1)
    assert send(queue, number, messages=1) == (1, False)


BAD: list[tuple[str, dict[str, Any]]] = [
    ("QH201", payload("x" * 1_100_000)),
    ("QH202", payload(1, headers=Jsonb({"x": "y" * 70_000}))),
    ("QH203", payload(1, body=b"1")),
    ("QH203", payload(1, headers=Jsonb([]))),
    ("QH203", payload(1, correlation_id="no uuid")),
    ("QH204", payload(1, priority=11)),
    ("QH205", payload(1, delay=-1.0)),
    ("QH205", payload(1, delay=1.0, deliver_at=T0)),
    ("QH205", payload(1, deliver_at="infinity")),
    ("QH206", payload(1, ttl=0.0)),
    ("QH206", payload(1, expires_at=T0 + timedelta(days=5000))),
    ("QH207", payload(1, tag="x" * 201)),
    ("QH210", payload(1, max_deliveries=1001)),
    ("QH220", payload(1, key="")),
    ("QH220", payload(1, key="a", idempotency_key="b")),
    ("QH221", payload(1, ordering_key="a")),
]


@pytest.mark.parametrize(("code", "row"), BAD, ids=[f"{code}-{n}" for n, (code, _) in enumerate(BAD)])
def test_what_a_send_refuses_is_taken_out_and_named(queue: Engine, code: str, row: dict[str, Any]) -> None:
    number = stage(queue, payload(1), row, payload(3))

    with pytest.raises(psycopg.Error) as unchecked, queue.conn.transaction():
        send(queue, number, messages=3)
    refused = queue.rows("check_staged", queue="q", stage=number)
    sent = send(queue, number, messages=2)

    assert unchecked.value.sqlstate == code
    assert [(bad["n"], bad["code"]) for bad in refused] == [(2, code)]
    assert (sent, payloads(queue.claim(10))) == ((2, False), [1, 3])


def test_a_log_takes_no_options_of_a_delivery(engine: Engine) -> None:
    engine.create("q", kind="log")
    number = stage(engine, payload(1), payload(2, priority=1), payload(3, delay=1.0))

    refused = engine.rows("check_staged", queue="q", stage=number)
    send(engine, number, messages=1)

    assert [(bad["n"], bad["code"]) for bad in refused] == [(2, "QH604"), (3, "QH604")]
    assert payloads(engine.rows("read", queue="q")) == [1]


def test_a_check_looks_only_behind_the_number_it_is_given(queue: Engine) -> None:
    number = stage(queue, payload(1, priority=11), payload(2, priority=12))

    refused = queue.rows("check_staged", queue="q", stage=number, after=1)

    assert [bad["n"] for bad in refused] == [2]


def test_a_full_queue_takes_no_write(engine: Engine) -> None:
    engine.create("q", max_depth=1)

    with pytest.raises(psycopg.Error) as refused:
        send(engine, stage(engine, payload(1), payload(2)), messages=2)

    assert refused.value.sqlstate == "QH209"


def test_a_full_queue_takes_what_replaces_a_message(engine: Engine) -> None:
    engine.create("q", max_depth=1)
    engine.send(1, key="a")

    sent = send(engine, stage(engine, payload(2, key="a"), payload(3, key="a")), messages=2)

    assert (sent, payloads(engine.claim(10))) == ((2, False), [3])


def test_keys_do_what_they_do_in_a_send(engine: Engine) -> None:
    engine.create("q", ordering="key")
    number = stage(
        engine,
        payload(1, key="a"),
        payload(2, key="a"),
        payload(3, idempotency_key="b"),
        payload(3, idempotency_key="b"),
        payload(4, ordering_key="c"),
        payload(5, ordering_key="c"),
    )

    send(engine, number, messages=6)

    assert sorted(payloads(engine.claim(10))) == [2, 3, 4]


def test_an_idempotency_key_with_another_payload_stops_the_write(queue: Engine) -> None:
    queue.send(1, idempotency_key="a")

    with pytest.raises(psycopg.Error) as refused:
        send(queue, stage(queue, payload(2, idempotency_key="a")), messages=1)

    assert refused.value.sqlstate == "QH222"


def test_rows_of_attempts_that_do_not_count_go_with_the_write(queue: Engine) -> None:
    stage(queue, payload("failed"), run="a")
    stage(queue, payload("other write"), write="v")

    send(queue, stage(queue, payload("counts"), run="b"), messages=1)

    assert (payloads(queue.claim(10)), staged(queue)) == (["counts"], 1)


def test_a_run_that_gives_up_removes_its_own_rows(queue: Engine) -> None:
    stage(queue, payload(1), payload(2), run="a")
    stage(queue, payload(3), run="b")

    assert queue.value("drop_staged", run="a") == 2
    assert staged(queue) == 1


def test_maintain_removes_what_was_left_for_a_day_and_names_of_30_days(queue: Engine) -> None:
    stage(queue, payload(1), write="left")
    send(queue, messages=0, write="sent")
    queue.at(T0 + timedelta(hours=23))
    early = queue.value("maintain")["unstaged"]
    queue.at(T0 + timedelta(hours=25))
    late = queue.value("maintain")["unstaged"]
    queue.at(T0 + timedelta(days=31))
    queue.value("maintain")

    assert (early, late, staged(queue)) == (0, 1, 0)
    assert queue.look("select count(*) from holdfast.stage") == 0
    assert send(queue, messages=0, write="sent") == (0, False)


def test_nobody_touches_the_stage_of_another_user(queue: Engine) -> None:
    number = stage(queue, payload(1), payload(2, priority=99))
    with queue.conn.transaction(force_rollback=True):
        queue.conn.execute("create role stranger login in role holdfast_producer, holdfast_admin")
        queue.conn.execute("set local session authorization stranger")
        dropped = queue.value("drop_staged", run="a")
        refused = queue.rows("check_staged", queue="q", stage=number)
        took = send(queue, messages=0)
        for verb, rest in (("send_staged", {"queue": "q", "write_id": "x"}), ("gather_staged", {})):
            with pytest.raises(psycopg.Error) as unknown, queue.conn.transaction():
                queue.rows(verb, stages=[number], messages=2, **rest)
            assert unknown.value.sqlstate == "QH231"

    assert (dropped, refused, took) == (0, [], (0, False))
    assert staged(queue) == 2


def test_numbers_of_stages_tell_nothing_of_others(queue: Engine) -> None:
    numbers = [stage(queue, run=str(n)) for n in range(5)]

    distances = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    assert min(map(abs, distances)) > 2**32


@pytest.mark.parametrize("other", [{"queue": "q2"}, {"write": "w2"}])
def test_a_stage_is_for_one_write_to_one_queue(queue: Engine, other: dict[str, str]) -> None:
    queue.create("q2")
    number = stage(queue, payload(1))

    with pytest.raises(psycopg.Error) as refused, queue.conn.transaction():
        send(queue, number, messages=1, **other)

    assert refused.value.sqlstate == "QH231"
    assert send(queue, number, messages=1) == (1, False)


def test_a_dropped_queue_takes_its_writes_along(queue: Engine) -> None:
    send(queue, messages=0)
    queue.value("drop_queue", queue="q")
    queue.create("q")

    assert send(queue, stage(queue, payload(1)), messages=1) == (1, False)


def test_texts_that_are_no_json_are_named(engine: Engine) -> None:
    texts = ['{"a": 1}', "{", None, '"\\u0000"', "1"]

    assert [row["n"] for row in engine.rows("json_errors", texts=texts)] == [2, 4]


FILL: LiteralString = """
insert into holdfast.staged (stage, n, payload, ordering_key)
select %s, n, to_jsonb(n), 'key ' || n from generate_series(1, %s) n
"""


def test_as_many_ordered_keys_as_one_likes_are_sent_at_once(engine: Engine) -> None:
    engine.create("q", ordering="key")
    number = stage(engine)
    engine.conn.execute(FILL, [number, MANY])

    sent = send(engine, number, messages=MANY)

    assert sent == (MANY, False)
    assert engine.look("select count(distinct ordering_key) from holdfast.message") == MANY
    found = engine.claim(100)
    assert (payloads(found), ids(found)) == (list(range(1, 101)), sorted(ids(found)))
