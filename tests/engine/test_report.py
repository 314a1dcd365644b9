"""queue_stats, leases, held and holders: who has what, and how much there is.

1. queue_stats counts what is ready, scheduled, in flight and dead; depth is all but the dead.
2. The figures follow every verb, and are exact up to 10,000.
3. Holes of rolled-back sends are not counted.
4. Above 10,000 the figures are estimates that say so, and maintain makes them good.
5. leases shows who holds how many until when, the first to run out first, and no token.
6. held shows what is under a token; holders shows under which token ids are, however they were claimed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine, ids

SECOND = timedelta(seconds=1)
COUNTERS = ("sent", "ended", "done", "nacked", "lapsed", "dead", "failed", "expired", "discarded", "moved")
FIGURES = ("ready", "scheduled", "blocked", "in_flight", "dead", "depth")


def figures(engine: Engine, queue: str = "q") -> tuple[Any, ...]:
    row = engine.stats(queue)
    return tuple(row[name] for name in FIGURES)


def test_an_empty_queue_has_zeros(queue: Engine) -> None:
    row = queue.stats()

    assert row == {
        "queue": "q",
        "ready": 0,
        "scheduled": 0,
        "blocked": 0,
        "in_flight": 0,
        "dead": 0,
        "depth": 0,
        "oldest_age": None,
        "exact": True,
        "paused": False,
        "counters": dict.fromkeys(COUNTERS, 0),
    }


def test_every_state_is_counted(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.kill(engine.send("dead"))
    engine.send_numbers(7)
    engine.send(1, priority=5)
    engine.claim(3)
    engine.send(1, delay="1 h")
    engine.send(1, delay="1 h", priority=2)

    assert figures(engine) == (5, 2, 0, 3, 1, 10)
    assert engine.stats()["exact"] is True


def test_figures_follow_every_verb(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    token = queue.claim(5)[0]["token"]
    seen = [figures(queue)]

    queue.settle("ack", token, sent[:1])
    seen.append(figures(queue))
    queue.settle("release", token, sent[1:2])
    seen.append(figures(queue))
    queue.settle("nack", token, sent[2:3], delay="1 s")
    seen.append(figures(queue))
    queue.settle("extend", token, sent[3:4], lease="1 h")
    seen.append(figures(queue))
    queue.at(T0 + SECOND)
    seen.append(figures(queue))

    assert seen == [
        (1, 0, 0, 5, 0, 6),
        (1, 0, 0, 4, 0, 5),
        (2, 0, 0, 3, 0, 5),
        (2, 1, 0, 2, 0, 5),
        (2, 1, 0, 2, 0, 5),
        (3, 0, 0, 2, 0, 5),
    ]


def test_counters_tell_what_was_sent_and_what_ended(queue: Engine) -> None:
    queue.send_numbers(5)
    queue.settle("ack", queue.claim(2)[0]["token"])

    assert queue.stats()["counters"] == dict.fromkeys(COUNTERS, 0) | {"sent": 5, "ended": 2, "done": 2}


def test_the_oldest_age_is_that_of_the_oldest_ready_message(queue: Engine) -> None:
    queue.send("first")
    queue.send("tomorrow", delay="1 day")
    queue.at(T0 + 5 * SECOND)
    queue.send("second")
    before = queue.stats()["oldest_age"]

    queue.at(T0 + 7 * SECOND)
    queue.settle("ack", queue.claim_one()["token"])

    assert before == 5 * SECOND
    assert queue.stats()["oldest_age"] == 2 * SECOND


def test_a_message_given_back_keeps_its_age(queue: Engine) -> None:
    queue.send("old")
    queue.at(T0 + 5 * SECOND)
    queue.settle("release", queue.claim_one()["token"])

    assert queue.stats()["oldest_age"] == 5 * SECOND


def test_holes_of_rolled_back_sends_are_not_counted(queue: Engine) -> None:
    with queue.conn.transaction(force_rollback=True):
        queue.send_numbers(50)
    queue.send(1)

    assert figures(queue) == (1, 0, 0, 0, 0, 1)


def test_ready_above_ten_thousand_is_an_estimate_that_says_so(queue: Engine) -> None:
    queue.send_numbers(10_000)
    exact = queue.stats()
    queue.send_numbers(5_000)

    rough = queue.stats()

    assert (exact["ready"], exact["exact"]) == (10_000, True)
    assert (rough["ready"], rough["exact"]) == (15_000, False)


def test_sends_that_rolled_back_are_not_counted_where_nothing_follows(queue: Engine) -> None:
    queue.send(1)
    queue.settle("ack", queue.claim_one()["token"])

    with queue.conn.transaction(force_rollback=True):
        queue.send_numbers(20_000)

    assert figures(queue) == (0, 0, 0, 0, 0, 0)
    assert queue.stats()["exact"]


def test_scheduled_above_ten_thousand_is_made_good_by_maintain(queue: Engine) -> None:
    queue.send_numbers(12_000, delay="1 day")
    rough = queue.stats()

    queue.value("maintain")

    assert (rough["scheduled"], rough["exact"]) == (10_001, False)
    assert (queue.stats()["scheduled"], queue.stats()["exact"]) == (12_000, False)


def test_leases_come_in_the_order_they_run_out(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.send(1, priority=4)
    queue.claim(2, lease="20 s", consumer="slow")
    queue.claim(1, lease="10 s")
    queue.claim(1, lease="1 h", consumer="idle")

    rows = queue.rows("leases", queue="q")

    shown = [(row["deadline"], row["consumer"] or "", row["priority"], row["messages"]) for row in rows]
    assert shown[0] == (T0 + 10 * SECOND, "", 0, 1)
    assert sorted(shown[1:3]) == [(T0 + 20 * SECOND, "slow", 0, 1), (T0 + 20 * SECOND, "slow", 4, 1)]
    assert shown[3] == (T0 + timedelta(hours=1), "idle", 0, 1)
    assert "token" not in rows[0]
    assert len(queue.rows("leases", queue="q", limit=2)) == 2


def test_no_token_can_be_read_from_leases(queue: Engine) -> None:
    queue.send(1)
    token = queue.claim_one()["token"]

    (row,) = queue.rows("leases", queue="q")

    assert str(token) not in str(row)


def test_settled_leases_are_not_shown(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.settle("ack", queue.claim(3)[0]["token"])

    assert queue.rows("leases", queue="q") == []


def test_held_shows_the_messages_as_they_were_claimed(queue: Engine) -> None:
    queue.send({"a": 1}, tag="g", priority=2)
    queue.value("send", queue="q", body=b"x")

    claimed = queue.claim(2, lease="10 s", consumer="c")

    assert queue.rows("held", queue="q", token=claimed[0]["token"]) == claimed


def test_held_of_a_stale_token_is_empty(queue: Engine) -> None:
    queue.send(1)
    token = queue.claim_one()["token"]
    queue.settle("ack", token)

    assert queue.rows("held", queue="q", token=token) == []
    assert queue.rows("held", queue="q", token=0) == []


def test_holders_finds_ids_however_they_were_claimed(queue: Engine) -> None:
    fresh = queue.send_numbers(4)
    late = queue.send(1, delay="1 s")
    queue.at(T0 + SECOND)
    due = queue.claim(1, consumer="due")
    by_cursor = queue.claim(3, consumer="cursor", lease="5 s")
    split = by_cursor[0]["id"]
    queue.settle("extend", by_cursor[0]["token"], [split], lease="50 s")

    rows = queue.rows("holders", queue="q", ids=[*fresh, late, 42])

    assert [(row["id"], row["consumer"], row["token"]) for row in rows] == sorted(
        [(late, "due", due[0]["token"])] + [(i, "cursor", by_cursor[0]["token"]) for i in fresh[:3]]
    )
    deadlines = {row["id"]: row["deadline"] for row in rows}
    assert deadlines[split] == T0 + 51 * SECOND
    assert deadlines[fresh[1]] == T0 + 6 * SECOND


def test_holders_leaves_out_what_was_settled(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    first, second = queue.claim(3)[0]["token"], queue.claim(3)[0]["token"]
    queue.settle("ack", first, sent[:2])
    queue.settle("release", second, sent[4:5])

    rows = queue.rows("holders", queue="q", ids=sent)

    assert [(row["id"], row["token"]) for row in rows] == [
        (sent[2], first),
        (sent[3], second),
        (sent[5], second),
    ]


def test_holders_does_not_tell_about_other_queues(queue: Engine) -> None:
    queue.create("other")
    sent = queue.send(1)
    queue.claim_one()

    assert queue.rows("holders", queue="other", ids=[sent]) == []
    assert ids(queue.rows("holders", queue="q", ids=[sent, sent])) == [sent]


@pytest.mark.parametrize("nothing", [[], None])
def test_holders_of_nothing_is_nothing(queue: Engine, nothing: list[int] | None) -> None:
    assert queue.rows("holders", queue="q", ids=nothing) == []


def test_reports_change_nothing(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    token = queue.claim(2, lease="1 s")[0]["token"]
    queue.at(T0 + 10 * SECOND)
    before = queue.state()

    with queue.conn.transaction():
        queue.conn.execute("set transaction read only")
        queue.stats()
        queue.rows("queues")
        queue.rows("leases", queue="q")
        queue.rows("held", queue="q", token=token)
        queue.rows("holders", queue="q", ids=sent)
        queue.rows("browse", queue="q", state="in_flight")
        queue.rows("message", queue="q", id=sent[0])

    assert queue.state() == before


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("queue_stats", {}),
        ("leases", {}),
        ("holders", {"ids": []}),
        ("held", {"token": 1}),
        ("browse", {}),
        ("message", {"id": 1}),
    ],
)
def test_a_report_on_a_queue_that_is_not_there_is_an_error(
    refusing: Engine, verb: str, more: dict[str, Any]
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.rows(verb, queue="nowhere", **more)

    assert caught.value.sqlstate == "QH101"
