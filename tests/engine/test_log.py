"""Logs: queues of kind log are appended to, and read by sequence number.

1. The kind is chosen when the queue is made, and stays.
2. send, send_batch, send_many and the inbox append; the sequence number is the id within the lane, from 1 on.
3. Options that only mean something to a delivery are refused, and so is every verb that claims or settles.
4. read() shows records after a number, in order, a page at a time; the last row's seq leads to the next page.
5. Numbers of rolled-back appends are passed silently.
6. A reader sees what its own transaction appended; nobody else does.
7. An answer has at most 16 MiB, but always a row if there is one.
8. A log has one lane whatever the defaults say; a global ttl does not touch it.
9. A queue with one lane can be read like a log: what waits, is held or was nacked, until it is acked.
10. A log can be the dead-letter queue of another queue; redrive and discard leave tombstones in it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row, payloads

LANE = 2**40


@pytest.fixture
def log(engine: Engine) -> Engine:
    """The engine, with a log `log`."""
    engine.create("log", kind="log")
    return engine


def append(engine: Engine, *values: Any, **options: Any) -> list[int]:
    return [engine.send(value, queue="log", **options) % LANE for value in values]


def read(engine: Engine, after: int = 0, limit: int = 100, queue: str = "log") -> list[Row]:
    return engine.rows("read", queue=queue, after=after, limit=limit)


def ranges(rows: list[Row]) -> list[tuple[str, int, int]]:
    return [(row["kind"], row["from_seq"], row["to_seq"]) for row in rows]


def refused(engine: Engine, verb: str, **arguments: Any) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        engine.rows(verb, **arguments)
    return caught.value.sqlstate


def test_records_come_in_the_order_of_their_numbers(log: Engine) -> None:
    seqs = append(log, "a", "b", "c")

    rows = read(log)

    assert seqs == [1, 2, 3]
    assert [row["seq"] for row in rows] == seqs
    assert ranges(rows) == [("record", 1, 1), ("record", 2, 2), ("record", 3, 3)]
    assert payloads(rows) == ["a", "b", "c"]


def test_a_record_has_all_that_was_sent_with_it(log: Engine) -> None:
    correlation = "0b7d7e9c-54b5-4a86-a1c7-cb3a5a0a3b5d"
    id = log.value(
        "send",
        queue="log",
        body=b"\x00\x01",
        content_type="image/png",
        headers={"a": 1},
        tag="t",
        correlation_id=correlation,
    )

    (row,) = read(log)

    assert row["id"] == id
    assert (row["payload"], row["body"], row["content_type"], row["headers"]) == (
        None,
        b"\x00\x01",
        "image/png",
        {"a": 1},
    )
    assert (row["tag"], str(row["correlation_id"]), row["enqueued_at"]) == ("t", correlation, T0)
    assert (row["last_error"], row["origin"]) == (None, None)


def test_every_way_of_sending_appends(log: Engine) -> None:
    append(log, 1)
    log.value("send_batch", queue="log", payloads=[Jsonb(2), Jsonb(3)], tag="t")
    log.value("send_many", queue="log", messages=Jsonb([{"payload": 4}, {"payload": 5, "tag": "t"}]))
    log.conn.execute("insert into holdfast.inbox (queue, payload) values ('log', '6')")

    assert payloads(read(log)) == [1, 2, 3, 4, 5, 6]


def test_pages_lead_to_one_another(log: Engine) -> None:
    append(log, *range(10))
    pages, after = [], 0
    while page := read(log, after, 4):
        pages.append(payloads(page))
        after = page[-1]["seq"]

    assert pages == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert read(log, 2**40 - 1) == []


def test_reading_changes_nothing_for_the_next_reader(log: Engine) -> None:
    append(log, 1, 2)

    assert payloads(read(log)) == payloads(read(log)) == [1, 2]


def test_numbers_of_appends_that_were_rolled_back_are_passed_silently(log: Engine, open_engine: Open) -> None:
    other = open_engine()
    append(log, 1)
    with other.conn.transaction(force_rollback=True):
        append(other, "never", "never")
    append(log, 4)
    first = read(log, 1)

    assert ranges(first) == [("record", 4, 4)]
    assert payloads(read(log)) == [1, 4]


def test_a_record_is_read_by_others_when_it_is_committed(log: Engine, open_engine: Open) -> None:
    other = open_engine()
    with log.conn.transaction():
        append(log, 1, 2)
        own, others = payloads(read(log)), read(other)

    assert (own, others, payloads(read(other))) == ([1, 2], [], [1, 2])


@pytest.mark.parametrize(
    "options",
    [
        {"priority": 0},
        {"delay": "1 s"},
        {"deliver_at": T0},
        {"ttl": "1 day"},
        {"expires_at": T0},
        {"max_deliveries": 3},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_of_a_delivery_are_refused(log: Engine, options: dict[str, Any]) -> None:
    field, value = next(iter(options.items()))
    json = value.isoformat() if value is T0 else value

    assert refused(log, "send", queue="log", **options) == "QH604"
    assert refused(log, "send_batch", queue="log", payloads=[Jsonb(1)], **options) == "QH604"
    if field not in ("deliver_at",):  # in the past, which means now
        assert refused(log, "send_many", queue="log", messages=Jsonb([{}, {field: json}])) == "QH604"
    assert read(log) == []


@pytest.mark.parametrize(
    ("verb", "arguments", "named"),
    [
        ("send", {"priority": 1, "ttl": "1 day", "tag": "x"}, "priority, ttl"),
        ("send_batch", {"payloads": [Jsonb(1)], "key": "k", "delay": "1 s"}, "delay, key"),
        (
            "send_many",
            {"messages": Jsonb([{"delay": 1, "expires_at": "2031-01-01", "key": "x"}])},
            "delay or deliver_at, ttl or expires_at, key",
        ),
    ],
)
def test_the_refused_options_are_named(log: Engine, verb: str, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        log.rows(verb, queue="log", **arguments)

    assert caught.value.sqlstate == "QH604"
    detail = f'"log" is a log, whose records are not delivered; got {named}.'
    assert caught.value.diag.message_detail == detail


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("claim", {}),
        ("next", {"token": 1}),
        ("ack", {"token": 1}),
        ("nack", {"token": 1}),
        ("release", {"token": 1}),
        ("extend", {"token": 1}),
        ("held", {"token": 1}),
        ("holders", {"ids": [1]}),
        ("leases", {}),
        ("sweep", {}),
        ("discard", {"ids": [1]}),
        ("purge", {"states": ["ready"]}),
        ("pause_queue", {}),
        ("resume_queue", {}),
    ],
)
def test_what_claims_or_settles_is_refused(log: Engine, verb: str, arguments: dict[str, Any]) -> None:
    append(log, 1)

    assert refused(log, verb, queue="log", **arguments) == "QH602"


def test_the_kind_stays(log: Engine) -> None:
    log.create("q")

    assert refused(log, "configure_queue", queue="log", config={"kind": "queue"}) == "QH601"
    assert refused(log, "configure_queue", queue="log", config={"kind": None}) == "QH601"
    assert refused(log, "configure_queue", queue="q", config={"kind": "log"}) == "QH601"
    assert refused(log, "create_queue", queue="q", config={"kind": "log"}) == "QH102"
    assert log.value("configure_queue", queue="log", config={"kind": "log"})["kind"] == "log"


@pytest.mark.parametrize("field", ["lease", "ttl", "dead_letter", "max_deliveries", "shards", "priorities"])
def test_a_log_has_no_settings_of_a_queue(engine: Engine, field: str) -> None:
    values = {"dead_letter": "x", "priorities": [1]}
    config = {"kind": "log", field: values.get(field, 1)}

    assert refused(engine, "create_queue", queue="log", config=config) == "QH104"


def test_a_log_has_one_lane_whatever_the_defaults_are(engine: Engine) -> None:
    defaults = {
        "shards": 4,
        "priority_default": 3,
        "priorities": [1, 2],
        "ttl": "1 ms",
        "throughput_limit": 1,
    }
    engine.value("configure_defaults", config=defaults)
    engine.create("log", kind="log")
    append(engine, *range(5))

    assert engine.look("select count(*) from holdfast.lane") == 1
    assert engine.look("select count(expires_at) from holdfast.message") == 0
    assert payloads(read(engine)) == [0, 1, 2, 3, 4]


def test_defaults_for_what_a_log_does_not_take_are_not_for_it(engine: Engine) -> None:
    engine.create("log", kind="log")
    before = engine.look("select effective from holdfast.queues() where queue = 'log'")
    taken = {"max_payload": 1000, "notify": False, "max_depth": 10}
    others = {
        "durability": "fast",
        "keep": ["done"],
        "keep_for": "1 day",
        "lease": "7 s",
        "max_deliveries": 9,
        "backoff": {"base": "1 s"},
        "budget": "failures",
        "expire_in_flight": True,
    }

    engine.value("configure_defaults", config=others | taken)

    after = engine.look("select effective from holdfast.queues() where queue = 'log'")
    assert after == before | taken
    assert engine.look("select fast from holdfast.queue") is None


def test_an_answer_is_bounded_in_bytes(log: Engine) -> None:
    log.value("configure_queue", queue="log", config={"max_payload": 67_108_864})
    for size in (6, 6, 6, 20, 1):
        log.value("send", queue="log", body=os.urandom(size * 1024 * 1024))
    sizes, after = [], 0
    while page := read(log, after):
        sizes.append([len(row["body"]) // 1024 // 1024 for row in page])
        after = page[-1]["seq"]

    assert [size for page in sizes for size in page] == [6, 6, 6, 20, 1]
    assert len(sizes) > 1


def test_max_depth_bounds_a_log(engine: Engine) -> None:
    engine.create("log", kind="log", max_depth=3)
    append(engine, 1, 2, 3)

    assert refused(engine, "send", queue="log") == "QH209"


def test_a_sleeping_reader_is_woken_by_an_append(log: Engine) -> None:
    log.conn.execute("listen holdfast")
    log.value("listen", queue="log")
    append(log, 1)

    assert [notice.payload for notice in log.conn.notifies(timeout=5, stop_after=1)] == ["log"]


def test_a_queue_with_one_lane_can_be_read(queue: Engine) -> None:
    queue.send_numbers(4)
    held = queue.claim(2)
    queue.settle("ack", held[0]["token"], [held[0]["id"]])
    queue.send("last", delay="1 hour")

    assert payloads(read(queue, queue="q")) == [1, 2, 3, "last"]
    assert refused(queue, "log_stats", queue="q") == "QH603"


def test_a_queue_with_several_lanes_cannot_be_read(queue: Engine) -> None:
    queue.send(1, priority=3)

    assert refused(queue, "read", queue="q") == "QH603"


def test_dead_letters_can_go_to_a_log(log: Engine) -> None:
    log.create("q", dead_letter="log", max_deliveries=1)
    messages = log.send_numbers(4)
    log.settle("nack", log.claim(4)[0]["token"], error="broken")
    rows = read(log)
    redriven = log.rows("redrive", queue="q", ids=[rows[1]["id"]])
    log.value("discard", queue="q", ids=[rows[2]["id"]])

    assert [(row["payload"], row["last_error"], row["origin"]["id"]) for row in rows] == [
        (n, "broken", id) for n, id in enumerate(messages)
    ]
    assert [row["id"] for row in redriven] == [rows[1]["id"]]
    assert ranges(read(log)) == [("record", 1, 1), ("deleted", 2, 3), ("record", 4, 4)]
    assert refused(log, "redrive", queue="q", target="log") == "QH602"


@pytest.mark.parametrize("priority", [0, 4])
def test_dead_letters_of_any_priority_leave_a_log_one_lane(log: Engine, priority: int) -> None:
    log.create("q", dead_letter="log", max_deliveries=1)
    log.kill(log.send("dead", priority=priority))

    assert payloads(read(log)) == ["dead"]


def test_nothing_is_replayed_into_a_log(log: Engine) -> None:
    log.create("q", keep=["done"])
    log.send(1, priority=4)
    log.settle("ack", log.claim_one()["token"])
    append(log, "record")

    assert refused(log, "replay", queue="q", target="log") == "QH602"
    assert payloads(read(log)) == ["record"]


def test_dropping_a_log_leaves_nothing(log: Engine) -> None:
    append(log, 1, 2, 3)
    log.value("log_delete", queue="log", seqs=[2])
    log.value("drop_queue", queue="log")

    left = "select count(*) from (select from holdfast.message union all select from holdfast.log union all"
    assert log.look(left + " select from holdfast.tombstone union all select from holdfast.lane) l") == 0
    assert refused(log, "read", queue="log") == "QH101"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("verb", ["read", "log_stats"])
def test_an_old_snapshot_is_refused(log: Engine, verb: str, level: str) -> None:
    log.conn.execute(f"begin isolation level {level}".encode())

    assert refused(log, verb, queue="log") == "QH303"
    log.conn.execute("rollback")


def test_a_log_can_be_read_where_nothing_may_be_written(log: Engine) -> None:
    append(log, 1)
    with log.conn.transaction(force_rollback=True):
        append(log, 2)
    append(log, 3)
    log.at(T0 + timedelta(seconds=1))

    with log.conn.transaction():
        log.conn.execute("set transaction read only")
        seen = [row["payload"] for row in read(log)]
        figures = log.row("log_stats", queue="log")

    assert seen == [1, 3]
    assert figures["last_seq"] == 3
