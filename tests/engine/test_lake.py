"""The way to the lake: batches of the archive are opened, read, and closed by what a file holds.

1. Batches of a queue follow one another by (ended_at, id), each within a day, bounded in messages and bytes.
2. No message is in two open batches; what is on its way to one lake does not go to another.
3. What is closed is removed, if the file has it with the same content; all else stays.
4. What retention or a purge removes meanwhile is not missed; what turns up late stays for another batch.
5. Kept batches leave the rows, and the next batch goes on behind them.
6. A queue that is dropped, or made anew, keeps nothing from being finished.
7. A checksum tells every column from every other, and null from empty.
8. What has left the database can be asked for, by queue, lake and time.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row

DAY = timedelta(days=1)


@pytest.fixture
def kept(engine: Engine) -> Engine:
    """The engine, with a queue `q` that keeps what is done for a month."""
    engine.create("q", keep=["done"], keep_for="30 days")
    return engine


@pytest.fixture
def lake(engine: Engine) -> str:
    return a_lake(engine)


def a_lake(engine: Engine, place: str = "/lake") -> str:
    return str(engine.value("register_lake", place=place))


def end(engine: Engine, count: int, *, queue: str = "q", **options: Any) -> None:
    """Messages that are sent, claimed and acked."""
    engine.send_numbers(count, queue=queue, **options)
    engine.settle("ack", engine.claim(count, queue=queue)[0]["token"], queue=queue)


def opened(engine: Engine, lake: str, **options: Any) -> Row:
    """The next batch: there must be one."""
    (batch,) = more(engine, lake, **options)
    return batch


def more(engine: Engine, lake: str, **options: Any) -> list[Row]:
    """The next batch, if there is one."""
    return engine.rows("open_batch", **{"lake": lake, "queue": "q", **options})


def content(engine: Engine, batch: Row, **options: Any) -> list[Row]:
    return engine.rows("read_batch", batch=batch["id"], **options)


def close(engine: Engine, batch: Row, rows: list[Row], **options: Any) -> int:
    given = {"ids": [row["id"] for row in rows], "checksums": [row["checksum"] for row in rows]}
    return int(engine.value("close_batch", batch=batch["id"], **given, **options))


def archived(engine: Engine) -> list[int]:
    rows = engine.conn.execute("select payload from holdfast.archive order by ended_at, id").fetchall()
    return [payload for (payload,) in rows]


def test_batches_follow_one_another_and_end_with_their_day(kept: Engine, lake: str) -> None:
    for day in range(2):
        kept.at(T0 + day * DAY)
        end(kept, 5)
    kept.at(T0 + 2 * DAY)
    found: list[tuple[date, list[Any]]] = []

    while batches := more(kept, lake, limit=3):
        (batch,) = batches
        rows = content(kept, batch)
        found.append((batch["day"], [int(row["payload"]) for row in rows]))
        close(kept, batch, rows)

    first, second = T0.date(), (T0 + DAY).date()
    assert found == [(first, [0, 1, 2]), (first, [3, 4]), (second, [0, 1, 2]), (second, [3, 4])]
    assert archived(kept) == []


def test_the_days_of_the_archive_are_counted_by_queue(kept: Engine) -> None:
    kept.create("other", keep=["done"])
    end(kept, 2, queue="other")
    end(kept, 3)
    kept.at(T0 + DAY)
    end(kept, 4)

    def days(**options: Any) -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in kept.rows("archive_days", **options)]

    first, second = T0.date(), (T0 + DAY).date()
    assert days() == [("other", first, 2), ("q", first, 3), ("q", second, 4)]
    assert days(queues=["q"], until=T0 + DAY) == [("q", first, 3)]


def test_only_what_ended_before_a_time_is_opened(kept: Engine, lake: str) -> None:
    end(kept, 2)
    kept.at(T0 + timedelta(hours=1))
    end(kept, 3)

    batch = opened(kept, lake, until=T0 + timedelta(minutes=1))

    assert batch["messages"] == len(content(kept, batch)) == 2
    assert more(kept, lake, until=T0 + timedelta(minutes=1)) == []


@pytest.mark.parametrize(("limit", "room", "taken"), [(9, 350, 4), (9, 1, 1), (3, 999, 3), (9, 9999, 6)])
def test_a_stretch_is_bounded_in_messages_and_bytes(kept: Engine, limit: int, room: int, taken: int) -> None:
    for _ in range(6):
        kept.value("send", queue="q", body=b"x" * 96)  # 100 bytes with its length
        kept.settle("ack", kept.claim_one()["token"])

    cut = "select messages from holdfast._cut_batch(%s, '-infinity', 0, 'infinity', %s, %s)"

    assert kept.look(cut, kept.look("select id from holdfast.queue"), limit, room) == taken


def test_pages_of_a_batch_follow_one_another(kept: Engine, lake: str) -> None:
    end(kept, 7)
    batch = opened(kept, lake, limit=6)
    found: list[list[str]] = []
    place: dict[str, Any] = {}

    while rows := content(kept, batch, limit=4, **place):
        found.append([row["payload"] for row in rows])
        place = {"after": rows[-1]["ended_at"], "after_id": rows[-1]["id"]}

    assert found == [["0", "1", "2", "3"], ["4", "5"]]


def test_an_open_batch_is_not_opened_again_and_is_found_again(kept: Engine, lake: str) -> None:
    end(kept, 4)
    first = opened(kept, lake, limit=3)
    second = opened(kept, lake, limit=3)

    assert more(kept, lake) == []
    assert [len(content(kept, batch)) for batch in (first, second)] == [3, 1]
    assert kept.rows("open_batches", lake=lake) == [first, second]


def test_what_is_on_its_way_to_one_lake_does_not_go_to_another(kept: Engine, lake: str) -> None:
    end(kept, 3)
    batch = opened(kept, lake, limit=2)
    other = a_lake(kept, "/other")

    with pytest.raises(psycopg.Error) as refused:
        opened(kept, other)
    close(kept, batch, content(kept, batch))
    free = opened(kept, other)

    assert refused.value.sqlstate == "QH811"
    assert "/lake" in str(refused.value.diag.message_detail)
    assert free["messages"] == 1


def test_only_what_the_file_has_is_removed(kept: Engine, lake: str) -> None:
    end(kept, 4)
    batch = opened(kept, lake)

    removed = close(kept, batch, content(kept, batch)[1:3])

    assert removed == 2
    assert archived(kept) == [0, 3]
    again = opened(kept, lake)
    assert [row["payload"] for row in content(kept, again)] == ["0", "3"]


def test_a_file_with_another_content_removes_nothing(kept: Engine, lake: str) -> None:
    end(kept, 3)
    batch = opened(kept, lake)
    rows = content(kept, batch)
    rows[1]["checksum"] += 1

    with pytest.raises(psycopg.Error) as refused:
        close(kept, batch, rows)

    assert refused.value.sqlstate == "QH811"
    assert str(rows[1]["id"]) in str(refused.value.diag.message_detail)
    assert archived(kept) == [0, 1, 2]
    assert kept.rows("open_batches", lake=lake) == [batch]


def test_a_file_does_not_reach_beyond_its_batch(kept: Engine, lake: str) -> None:
    end(kept, 4)
    first = opened(kept, lake, limit=2)
    kept.create("other", keep=["done"])
    kept.at(T0 + DAY)
    end(kept, 1, queue="other")
    other = opened(kept, lake, queue="other")

    removed = close(kept, first, content(kept, first) + content(kept, other))

    assert removed == 2
    assert kept.look("select count(*) from holdfast.archive") == 3


def test_closing_again_changes_nothing(kept: Engine, lake: str) -> None:
    end(kept, 2)
    batch = opened(kept, lake)
    rows = content(kept, batch)

    removed = [close(kept, batch, rows), close(kept, batch, rows), close(kept, batch, rows, keep=True)]

    assert removed == [2, 0, 0]
    assert kept.look("select state from holdfast.lake_batch") == "done"
    assert kept.look("select messages from holdfast.lake_batch") == 2
    assert kept.look("select checksum from holdfast.lake_batch") == sum(row["checksum"] for row in rows)


def test_what_retention_removes_meanwhile_is_not_missed(kept: Engine, lake: str) -> None:
    end(kept, 3)
    batch = opened(kept, lake)
    rows = content(kept, batch)
    kept.at(T0 + 40 * DAY)
    kept.value("maintain")

    removed = close(kept, batch, rows)

    assert archived(kept) == []
    assert removed == 0
    assert kept.look("select messages from holdfast.lake_batch") == 3


def test_a_purge_before_the_read_leaves_an_empty_batch(kept: Engine, lake: str) -> None:
    end(kept, 3)
    batch = opened(kept, lake)
    kept.rows("purge", queue="q", states=["archive"])

    assert content(kept, batch) == []
    assert close(kept, batch, []) == 0
    assert kept.rows("open_batches", lake=lake) == []


def test_what_turns_up_late_stays_for_another_batch(kept: Engine, lake: str, open_engine: Open) -> None:
    late = open_engine()
    kept.send_numbers(4)
    tokens = [kept.claim_one()["token"] for _ in range(4)]
    kept.settle("ack", tokens[0])
    with late.conn.transaction():
        late.settle("ack", tokens[1])
        kept.settle("ack", tokens[2])
        batch = opened(kept, lake)
        rows = content(kept, batch)
    close(kept, batch, rows)
    kept.settle("ack", tokens[3])

    assert [row["payload"] for row in rows] == ["0", "2"]
    assert archived(kept) == [1, 3]
    again = opened(kept, lake)
    assert [row["payload"] for row in content(kept, again)] == ["1", "3"]


def test_kept_batches_leave_the_rows_and_the_next_goes_on_behind_them(kept: Engine, lake: str) -> None:
    end(kept, 2)
    kept.at(T0 + timedelta(seconds=1))
    first = opened(kept, lake, keep=True)
    rows = content(kept, first)
    close(kept, first, rows, keep=True)
    end(kept, 1)
    kept.at(T0 + timedelta(seconds=2))

    second = opened(kept, lake, keep=True)

    assert [len(content(kept, batch)) for batch in (first, second)] == [2, 1]
    assert archived(kept) == [0, 1, 0]
    assert [batch["state"] for batch in kept.rows("open_batches", lake=lake)] == ["kept", "open"]
    assert close(kept, first, rows) == 2


def test_a_copy_goes_no_further_than_nothing_can_turn_up(kept: Engine, lake: str, open_engine: Open) -> None:
    late = open_engine()
    kept.send_numbers(2)
    first, second = (kept.claim_one()["token"] for _ in range(2))
    with late.conn.transaction():
        late.settle("ack", first)
        kept.settle("ack", second)
        kept.at(T0 + timedelta(seconds=1))
        during = more(kept, lake, keep=True)

    after = opened(kept, lake, keep=True)

    assert during == []
    assert after["messages"] == 2


def test_a_queue_that_is_dropped_can_be_finished(kept: Engine, lake: str) -> None:
    end(kept, 2)
    batch = opened(kept, lake)
    kept.value("drop_queue", queue="q")
    kept.create("q", keep=["done"])
    end(kept, 1)

    rows = content(kept, batch)

    assert [row["payload"] for row in rows] == ["0", "1"]
    assert close(kept, batch, rows) == 2
    assert archived(kept) == [0]


def test_a_message_is_read_as_the_lake_keeps_it(kept: Engine, lake: str) -> None:
    kept.value("configure_queue", queue="q", config={"ordering": "key"})
    kept.send({"n": 1.5}, tag="t", headers={"a": 1}, ordering_key="o", priority=7, ttl="1 h")
    delivered = kept.claim_one(consumer="me")
    kept.settle("ack", delivered["token"])
    batch = opened(kept, lake)

    (row,) = content(kept, batch)

    assert row["id"] == row["root_id"] == delivered["id"]
    assert (row["outcome"], row["deliveries"], row["failures"]) == ("done", 1, 0)
    assert (row["priority"], row["max_deliveries"], row["consumer"]) == (7, None, "me")
    assert (row["payload"], row["headers"], row["body"]) == ('{"n": 1.5}', '{"a": 1}', None)
    assert (row["ordering_key"], row["tag"], row["expires_at"]) == ("o", "t", T0 + timedelta(hours=1))
    assert (row["enqueued_at"], row["claimed_at"], row["ended_at"]) == (T0, T0, T0)


def test_a_replay_has_the_root_of_the_first(kept: Engine, lake: str) -> None:
    end(kept, 1)
    kept.at(T0 + timedelta(seconds=1))
    (again,) = kept.rows("replay", queue="q")
    kept.settle("ack", kept.claim_one()["token"])
    kept.at(T0 + timedelta(seconds=2))
    batch = opened(kept, lake)

    rows = content(kept, batch)

    assert [row["id"] for row in rows] == [again["id"], again["new_id"]]
    assert {row["root_id"] for row in rows} == {again["id"]}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("tag", ""),
        ("tag", "a,1:b"),
        ("key", "1:"),
        ("idempotency_key", "1:"),
        ("consumer", "ü"),
        ("payload", "null"),
        ("body", b""),
        ("body", b"\x00"),
        ("failures", 1),
        ("max_deliveries", 0),
        ("order_no", 0),
        ("expires_at", T0),
        ("claimed_at", T0),
        ("headers", "{}"),
        ("last_error", "x"),
        ("correlation_id", "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_a_checksum_tells_columns_apart(kept: Engine, column: str, value: Any) -> None:
    kept.send()
    kept.settle("ack", kept.claim_one()["token"])
    kept.conn.execute("update holdfast.archive set payload = null, claimed_at = null, consumer = null")
    plain = kept.look("select checksum from holdfast.ended")

    kept.conn.execute(f"update holdfast.archive set {column} = %s".encode(), [value])

    assert kept.look("select checksum from holdfast.ended") != plain


def test_what_is_done_is_forgotten_after_a_while(kept: Engine, lake: str) -> None:
    end(kept, 2)
    batch = opened(kept, lake, limit=1)
    close(kept, batch, content(kept, batch))
    kept.at(T0 + 91 * DAY)
    left = opened(kept, lake)

    assert kept.look("select array_agg(id) from holdfast.lake_batch") == [left["id"]]


def left(engine: Engine, **options: Any) -> list[tuple[Any, ...]]:
    """What has left the database: queue, place and how many."""
    return [(row["queue"], row["place"], row["messages"]) for row in engine.rows("archived", **options)]


def test_what_has_left_is_told_by_queue_lake_and_time(kept: Engine, lake: str) -> None:
    other = a_lake(kept, "/other")
    for day, where in enumerate((lake, lake, other)):
        kept.at(T0 + day * DAY)
        end(kept, day + 1)
        batch = opened(kept, where)
        close(kept, batch, content(kept, batch))
    kept.value("drop_queue", queue="q")

    assert left(kept) == [("q", "/lake", 3), ("q", "/other", 3)]
    assert left(kept, since=T0 + DAY, until=T0 + 2 * DAY) == [("q", "/lake", 2)]
    assert left(kept, until=T0 + timedelta(seconds=1)) == [("q", "/lake", 1)]
    assert left(kept, queues=["none"]) == []
    first = kept.rows("archived", queues=["q"])[0]
    assert (str(first["lake"]), first["first_at"], first["last_at"]) == (lake, T0, T0 + DAY)


def test_what_is_still_in_the_database_has_not_left(kept: Engine, lake: str) -> None:
    end(kept, 2)
    batch = opened(kept, lake, limit=1)
    rows = content(kept, batch)

    assert left(kept) == []  # it is open
    close(kept, batch, rows, keep=True)
    assert left(kept) == []  # it is kept
    close(kept, batch, rows)
    assert left(kept) == [("q", "/lake", 1)]


@pytest.mark.parametrize("role", ["producer", "consumer", "monitor"])
def test_only_an_admin_archives(kept: Engine, lake: str, role: str) -> None:
    end(kept, 1)
    batch = opened(kept, lake)
    kept.conn.execute(f"set role holdfast_{role}".encode())

    for verb, arguments in {
        "close_batch": {"batch": batch["id"], "ids": [], "checksums": []},
        "read_batch": {"batch": batch["id"]},
        "open_batch": {"lake": lake, "queue": "q"},
        "register_lake": {"place": "x"},
    }.items():
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            kept.rows(verb, **arguments)


def test_a_lake_of_another_database_is_refused(kept: Engine) -> None:
    for verb, more in (("open_batches", {}), ("open_batch", {"queue": "q"})):
        with pytest.raises(psycopg.Error) as refused:
            kept.rows(verb, lake=uuid4(), **more)
        assert refused.value.sqlstate == "QH810"
