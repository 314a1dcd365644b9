"""The archive: what ended and is kept.

1. keep is a set of outcomes; each outcome is kept if it is in the set, and only then. Moves are no end.
2. A kept message has all it had, with outcome, time and deliveries; acks count the last delivery.
3. The queue in which a message lies when it ends decides.
4. Partitions are days, made ahead; a day without one is kept in the default partition, and moved when it
   gets its own. A day with too much there stays there.
5. Retention: partitions that no queue needs are dropped, rows of queues with less are deleted, in chunks.
6. browse pages through the archive, message finds one in it; both only of this queue.
   forget deletes what has ended in some way, before some time; bounded, of this queue alone.
7. replay sends copies under new ids, in the order of their end, and can be continued; the archive stays.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, Row, ids, payloads

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
OUTCOMES = ["done", "expired", "failed", "discarded"]


def done(engine: Engine, payload: Any = "done", queue: str = "q", **options: Any) -> int:
    """Send a message and ack it; its id."""
    id = engine.send(payload, queue=queue, **options)
    engine.settle("ack", engine.claim_one(queue=queue)["token"], queue=queue)
    return id


def expire(engine: Engine) -> int:
    id = engine.send("expired", ttl="1 s")
    engine.at(T0 + 2 * SECOND)
    assert engine.claim(1) == []
    return id


def fail(engine: Engine) -> int:
    id = engine.send("failed")
    for _ in range(2):
        engine.settle("nack", engine.claim_one()["token"], error="no luck")
    return id


def discard(engine: Engine) -> int:
    id = engine.send("discarded")
    engine.value("discard", queue="q", ids=[id])
    return id


ENDS: dict[str, Callable[[Engine], int]] = {
    "done": done,
    "expired": expire,
    "failed": fail,
    "discarded": discard,
}


@pytest.fixture
def kept(engine: Engine) -> Engine:
    """A queue that keeps everything, with a partition for today."""
    engine.create("q", keep=OUTCOMES, dead_letter=False, max_deliveries=2)
    engine.value("maintain")
    return engine


def archive(engine: Engine, queue: str = "q", **options: Any) -> list[Row]:
    return engine.rows("browse", queue=queue, state="archive", **options)


def partitions(engine: Engine) -> list[str]:
    """The names of the partitions, but for the default one."""
    rows = engine.conn.execute(
        "select c.relname::text from pg_inherits i join pg_class c on c.oid = i.inhrelid"
        " where i.inhparent = 'holdfast.archive'::regclass and c.relname <> 'archive_default' order by 1"
    ).fetchall()
    return [name for (name,) in rows]


def counted(engine: Engine, table: str) -> int:
    """How many rows a partition has."""
    return int(engine.look("select count(*) from holdfast.archive where tableoid = %s::regclass", table))


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_each_outcome_is_kept_if_the_queue_keeps_it(engine: Engine, outcome: str) -> None:
    engine.create("q", keep=[outcome], dead_letter=False, max_deliveries=2)

    ended = {name: end(engine) for name, end in ENDS.items()}

    assert [(row["id"], row["state"]) for row in archive(engine)] == [(ended[outcome], outcome)]
    assert engine.look("select count(*) from holdfast.message") == 0


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_nothing_is_kept_by_default(engine: Engine, outcome: str) -> None:
    engine.create("q", dead_letter=False, max_deliveries=2)

    ENDS[outcome](engine)

    assert engine.look("select count(*) from holdfast.archive") == 0


def test_a_kept_message_has_all_that_it_had(kept: Engine) -> None:
    id = kept.send(
        {"a": 1}, headers={"h": "x"}, priority=3, tag="t", max_deliveries=9, content_type="c", ttl="1 h"
    )
    kept.settle("nack", kept.claim_one()["token"], error="once")
    kept.at(T0 + 10 * SECOND)
    token = kept.claim_one(consumer="w")["token"]
    kept.at(T0 + 15 * SECOND)

    kept.settle("ack", token)

    (row,) = kept.rows("message", queue="q", id=id)
    assert row == {
        "id": id,
        "queue": "q",
        "state": "done",
        "payload": {"a": 1},
        "body": None,
        "content_type": "c",
        "headers": {"h": "x"},
        "priority": 3,
        "key": None,
        "ordering_key": None,
        "correlation_id": None,
        "tag": "t",
        "deliveries": 2,
        "failures": 1,
        "max_deliveries": 9,
        "enqueued_at": T0,
        "due_at": None,
        "expires_at": T0 + timedelta(hours=1),
        "last_error": "once",
        "origin": None,
        "ended_at": T0 + 15 * SECOND,
        "consumer": "w",
        "claimed_at": T0 + 10 * SECOND,
    }


def test_an_extend_or_a_split_does_not_change_since_when_it_was_held(kept: Engine) -> None:
    kept.send_numbers(3)
    deliveries = kept.claim(3, consumer="w")
    token, ids = deliveries[0]["token"], [row["id"] for row in deliveries]
    kept.at(T0 + 5 * SECOND)
    kept.settle("extend", token, ids[:1])
    kept.settle("extend", token)

    kept.settle("ack", token)

    rows = kept.rows("browse", queue="q", state="archive")
    assert [(row["consumer"], row["claimed_at"]) for row in rows] == [("w", T0)] * 3


@pytest.mark.parametrize("outcome", [name for name in OUTCOMES if name != "done"])
def test_only_what_is_done_was_done_by_somebody(kept: Engine, outcome: str) -> None:
    id = ENDS[outcome](kept)

    (row,) = kept.rows("message", queue="q", id=id)
    assert (row["consumer"], row["claimed_at"]) == (None, None)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_deliveries_are_those_that_are_over(kept: Engine, outcome: str) -> None:
    id = ENDS[outcome](kept)

    (row,) = kept.rows("message", queue="q", id=id)

    assert row["deliveries"] == {"done": 1, "expired": 0, "failed": 2, "discarded": 0}[outcome]
    assert row["last_error"] == ("no luck" if outcome == "failed" else None)


def test_a_large_payload_is_kept_whole(kept: Engine) -> None:
    large = [str(n) * 50 for n in range(4000)]  # out of line, whether it is compressed or not
    id = done(kept, large)

    (row,) = kept.rows("message", queue="q", id=id)
    kept.rows("replay", queue="q")

    assert row["payload"] == large
    assert kept.claim_one()["payload"] == large


def test_next_keeps_what_it_acks(kept: Engine) -> None:
    kept.send_numbers(2)
    token = kept.claim_one()["token"]

    kept.rows("next", queue="q", token=token)

    assert payloads(archive(kept)) == [0]


def test_an_ack_that_rolls_back_keeps_nothing(kept: Engine) -> None:
    kept.send("back")
    token = kept.claim_one()["token"]
    with kept.conn.transaction(force_rollback=True):
        kept.settle("ack", token)

    assert archive(kept) == []


def test_a_move_to_the_dead_letters_is_no_end(engine: Engine) -> None:
    engine.create("q", keep=OUTCOMES, max_deliveries=1)

    engine.kill(engine.send("dead"))

    assert archive(engine) == []


def test_a_dead_letter_ends_in_the_queue_where_it_lies(engine: Engine) -> None:
    engine.create("grave", keep=["discarded"])
    engine.create("q", dead_letter="grave", max_deliveries=1)
    letter = engine.kill(engine.send("dead"))

    assert engine.value("discard", queue="q", ids=[letter]) == [letter]

    assert ids(archive(engine, "grave")) == [letter]
    assert [row["state"] for row in engine.rows("message", queue="q", id=letter)] == ["discarded"]


def test_another_queues_archive_is_not_shown(kept: Engine) -> None:
    kept.create("other", keep=["done"])
    id = done(kept)

    assert archive(kept, "other") == []
    assert kept.rows("message", queue="other", id=id) == []


def test_the_archive_is_paged_by_priority_and_id(kept: Engine) -> None:
    for priority in (0, 5, 0, 5):
        done(kept, priority, priority=priority)

    pages: list[list[Any]] = []
    after = None
    while rows := archive(kept, limit=3, after=after):
        pages.append(payloads(rows))
        after = rows[-1]["id"]

    assert pages == [[5, 5, 0], [0]]


def test_partitions_are_made_ahead(kept: Engine) -> None:
    assert partitions(kept) == [
        "archive_20300101",
        "archive_20300102",
        "archive_20300103",
        "archive_20300104",
    ]

    done(kept)

    assert counted(kept, "holdfast.archive_20300101") == 1


def test_installing_makes_the_partitions_of_today(engine: Engine) -> None:
    today = engine.look("select to_char(clock_timestamp() at time zone 'UTC', 'YYYYMMDD')")

    assert len(partitions(engine)) == 4
    assert f"archive_{today}" in partitions(engine)


def test_a_day_without_a_partition_is_kept_and_gets_one(kept: Engine) -> None:
    kept.at(T0 + 5 * DAY)
    id = done(kept)
    before = counted(kept, "holdfast.archive_default")

    kept.value("maintain")

    assert (before, counted(kept, "holdfast.archive_default")) == (1, 0)
    assert counted(kept, "holdfast.archive_20300106") == 1
    assert ids(archive(kept)) == [id]


def test_partitions_are_days_of_utc_however_a_session_writes_its_times(kept: Engine) -> None:
    kept.at(T0 + 5 * DAY + 23 * HOUR)
    done(kept)

    kept.conn.execute("set datestyle = 'SQL, DMY'; set timezone = 'Asia/Kolkata'")
    kept.value("maintain")

    assert partitions(kept)[-4:] == [f"archive_203001{day:02}" for day in range(6, 10)]
    assert counted(kept, "holdfast.archive_20300106") == 1
    kept.conn.execute("set datestyle = 'ISO'; set timezone = 'UTC'")
    bounds = "select pg_get_expr(c.relpartbound, c.oid) from pg_class c where c.relname = 'archive_20300106'"
    assert kept.look(bounds) == "FOR VALUES FROM ('2030-01-06 00:00:00+00') TO ('2030-01-07 00:00:00+00')"
    assert kept.look("select obj_description('holdfast.archive_20300106'::regclass)") == (
        "Messages that ended on 2030-01-06 and are kept"
    )


def test_a_log_keeps_no_partition(kept: Engine) -> None:
    kept.create("log", kind="log")
    kept.value("configure_queue", queue="q", config={"keep_for": "1 day"})
    done(kept)
    kept.at(T0 + 2 * DAY)

    did = kept.value("maintain")

    assert did["partitions_dropped"] == 1


def test_a_day_with_too_much_in_the_default_partition_stays_there(kept: Engine) -> None:
    kept.at(T0 + 5 * DAY)
    kept.send_numbers(10_001)
    for _ in range(2):
        kept.settle("ack", kept.claim(10_000)[0]["token"])

    did = kept.value("maintain")

    assert did["partitions_made"] == 3
    assert counted(kept, "holdfast.archive_default") == 10_001
    assert done(kept) in ids(archive(kept, limit=10_000, after=ids(archive(kept, limit=9_999))[-1]))


def test_partitions_are_dropped_when_no_queue_needs_them(kept: Engine) -> None:
    kept.create("longer", keep_for="9 days")
    done(kept)
    kept.at(T0 + 9 * DAY)
    kept.value("maintain")
    before = counted(kept, "holdfast.archive_20300101")
    kept.at(T0 + 10 * DAY)

    did = kept.value("maintain")

    assert before == 0  # its own queue keeps for seven days
    assert did["partitions_dropped"] == 1
    assert "archive_20300101" not in partitions(kept)


def test_a_whole_partition_goes_at_once(kept: Engine) -> None:
    done(kept)
    kept.at(T0 + 8 * DAY - SECOND)
    kept.value("maintain")
    assert len(archive(kept)) == 1
    kept.at(T0 + 8 * DAY)

    did = kept.value("maintain")

    assert (did["partitions_dropped"], did["forgotten"]) == (1, 0)
    assert archive(kept) == []


def test_rows_of_a_queue_with_less_retention_are_deleted_in_chunks(kept: Engine) -> None:
    kept.create("brief", keep=["done"], keep_for="1 h")
    kept.send_numbers(6000, queue="brief")
    kept.settle("ack", kept.claim(6000, queue="brief")[0]["token"], queue="brief")
    done(kept)
    kept.at(T0 + timedelta(hours=2))

    rounds = [kept.value("maintain") for _ in range(2)]

    assert [(did["forgotten"], did["done"]) for did in rounds] == [(5000, False), (1000, True)]
    assert archive(kept, "brief") == []
    assert len(archive(kept)) == 1


def test_old_rows_in_the_default_partition_are_deleted(kept: Engine) -> None:
    kept.at(T0 + 5 * DAY)
    done(kept)
    kept.at(T0 + 12 * DAY + SECOND)

    did = kept.value("maintain")

    assert did["forgotten"] == 1
    assert archive(kept) == []


def forget(engine: Engine, **options: Any) -> tuple[int, bool]:
    row = engine.row("forget", queue="q", **options)
    return row["forgotten"], row["more"]


def test_forget_deletes_by_outcome_and_time_and_in_this_queue_alone(kept: Engine) -> None:
    kept.create("other", keep=OUTCOMES)
    other = done(kept, queue="other")
    kept.at(T0 + SECOND)
    ended = {name: end(kept) for name, end in ENDS.items()}
    kept.at(T0 + DAY)
    late = done(kept)

    assert forget(kept, outcomes=["expired", "done"], before=T0 + HOUR) == (2, False)
    assert ids(archive(kept)) == [ended["failed"], ended["discarded"], late]
    assert forget(kept, before=T0) == (0, False)
    assert forget(kept, outcomes=["failed", "failed"], limit=1) == (1, True)
    assert forget(kept) == (2, False)
    assert ids(archive(kept, "other")) == [other]


@pytest.mark.parametrize("outcomes", [["done"], ["failed"], None])
def test_forget_is_bounded_and_takes_the_first_to_end(kept: Engine, outcomes: list[str] | None) -> None:
    _, _, third = (fail(kept) if outcomes == ["failed"] else done(kept) for _ in range(3))

    assert forget(kept, outcomes=outcomes, limit=2) == (2, True)
    assert ids(archive(kept)) == [third]
    assert forget(kept, outcomes=outcomes, limit=2) == (1, False)


@pytest.mark.parametrize(
    ("given", "code"),
    [({"outcomes": []}, "QH410"), ({"outcomes": ["ready"]}, "QH410"), ({"limit": 0}, "QH402")],
)
def test_forget_refuses_what_it_does_not_know(kept: Engine, given: dict[str, Any], code: str) -> None:
    done(kept)

    with pytest.raises(psycopg.Error) as caught:
        forget(kept, **given)

    assert caught.value.sqlstate == code
    assert len(archive(kept)) == 1


def test_replay_sends_what_ended_in_a_period(kept: Engine) -> None:
    old = []
    for n in range(4):
        kept.at(T0 + n * SECOND)
        old.append(done(kept, n, tag="t", priority=n % 2, headers={"n": str(n)}))
    kept.at(T0 + 10 * SECOND)

    sent = kept.rows("replay", queue="q", **{"from": T0 + SECOND, "to": T0 + 3 * SECOND})

    assert ids(sent) == old[1:3]
    rows = kept.claim(10)
    assert [(row["payload"], row["tag"], row["headers"], row["deliveries"]) for row in rows] == [
        (1, "t", {"n": "1"}, 1),
        (2, "t", {"n": "2"}, 1),
    ]
    assert ids(rows) == [row["new_id"] for row in sent]
    assert {name: rows[0]["origin"][name] for name in ("id", "root_id", "queue", "outcome", "replays")} == {
        "id": old[1],
        "root_id": old[1],
        "queue": "q",
        "outcome": "done",
        "replays": 1,
    }
    assert datetime.fromisoformat(rows[0]["origin"]["replayed_at"]) == T0 + 10 * SECOND
    assert ids(archive(kept)) == sorted(old, key=lambda id: (-(id >> 40), id))


def test_replay_goes_on_where_it_stopped(kept: Engine) -> None:
    kept.send_numbers(5)
    kept.settle("ack", kept.claim(5)[0]["token"])  # all of them ended at the same moment

    pages: list[int] = []
    last: dict[str, Any] = {}
    while rows := kept.rows("replay", queue="q", limit=2, **last):
        pages.append(len(rows))
        last = {"from": rows[-1]["ended_at"], "after": rows[-1]["id"]}

    assert pages == [2, 2, 1]
    assert payloads(kept.claim(10)) == [0, 1, 2, 3, 4]


def test_replay_keeps_the_first_id_as_root(kept: Engine) -> None:
    root = done(kept)
    kept.rows("replay", queue="q")
    again = kept.claim_one()
    kept.settle("ack", again["token"])

    kept.rows("replay", queue="q", **{"from": T0, "after": root})

    origin = kept.claim_one()["origin"]
    assert (origin["root_id"], origin["id"], origin["replays"]) == (root, again["id"], 2)


def test_replay_takes_outcomes_and_a_target(kept: Engine) -> None:
    kept.create("elsewhere", ttl="1 h")
    done(kept)
    id = discard(kept)

    sent = kept.rows("replay", queue="q", outcomes=["discarded"], target="elsewhere")

    assert ids(sent) == [id]
    (row,) = kept.rows("browse", queue="elsewhere")
    assert (row["payload"], row["expires_at"]) == ("discarded", T0 + timedelta(hours=1))
    assert kept.stats()["ready"] == 0


def test_a_body_is_replayed_byte_for_byte(kept: Engine) -> None:
    kept.value("send", queue="q", body=b"\x00\xff")
    kept.settle("ack", kept.claim_one()["token"])

    kept.rows("replay", queue="q")

    assert bytes(kept.claim_one()["body"]) == b"\x00\xff"


def test_the_archive_of_a_dropped_queue_is_out_of_reach(kept: Engine) -> None:
    id = done(kept)
    kept.value("drop_queue", queue="q")
    kept.value("create_queue", queue="q", config=Jsonb({"keep": ["done"]}))

    assert archive(kept) == []
    assert kept.rows("message", queue="q", id=id) == []
    assert kept.rows("replay", queue="q") == []
