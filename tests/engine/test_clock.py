"""The virtual clock.

1. set_clock stops holdfast.now() at a time, for every session; null lets it run again.
2. Everything the engine stamps or compares follows it, also when it goes back.
3. Stopping it keeps the rights, the comment and the volatility of now().
4. It can be set from 1970 to the end of 2199, UTC, and works there; any other time is refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, ids

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    "when", [T0, datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]
)
def test_a_stopped_clock_shows_its_time_to_the_microsecond(
    open_engine: Open, engine: Engine, when: datetime
) -> None:
    engine.at(when)

    assert open_engine().value("now") == when
    assert engine.value("now") == when


@pytest.mark.parametrize(
    "when", [datetime(1970, 1, 1, tzinfo=UTC), datetime(2199, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
)
def test_the_engine_works_at_both_ends_of_the_clock(queue: Engine, when: datetime) -> None:
    queue.at(when)
    sent = queue.send_numbers(2)
    row = queue.claim_one(lease="24 h")

    assert queue.value("now") == when
    assert queue.settle("nack", row["token"], delay="10 years") == (sent[:1], [])
    assert ids(queue.claim(10)) == sent[1:]
    assert queue.stats()["scheduled"] == 1


@pytest.mark.parametrize(
    "when",
    [
        "infinity",
        "-infinity",
        "1969-12-31 23:59:59.999999Z",
        "0044-03-15 BC",
        "2200-01-01Z",
        "294276-12-31Z",
    ],
)
def test_a_time_that_registers_do_not_hold_is_refused_and_the_clock_stays(engine: Engine, when: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        engine.value("set_clock", at=when)

    assert caught.value.sqlstate == "QH205"
    assert "1970 to the end of 2199" in (caught.value.diag.message_hint or "")
    assert engine.value("now") == T0


def test_the_clock_runs_again_after_null(engine: Engine) -> None:
    engine.at(None)

    low, now, high = engine.conn.execute(
        "select clock_timestamp(), holdfast.now(), clock_timestamp()"
    ).fetchall()[0]

    assert low <= now <= high


def test_a_session_that_claimed_before_sees_the_change(queue: Engine) -> None:
    queue.send(1)
    queue.claim_one()
    queue.at(None)
    queue.send(2)
    queue.at(T0 + SECOND)
    queue.send(3)

    sent = queue.look("select array_agg(enqueued_at order by id) from holdfast.message")
    assert sent[0] == T0
    assert sent[1] < T0
    assert sent[2] == T0 + SECOND


def test_a_clock_that_goes_back_does_not_stop_the_queue(queue: Engine) -> None:
    queue.at(T0 + timedelta(days=365))
    sent = queue.send_numbers(3)
    queue.claim(1, lease="1 s")
    queue.at(T0)

    assert ids(queue.claim(1, lease="1 s")) == sent[1:2]
    queue.at(T0 + timedelta(days=366))
    assert sorted(ids(queue.claim(10))) == sent


def test_stopping_the_clock_changes_nothing_else_about_now(engine: Engine) -> None:
    about = (
        "select proacl::text, obj_description(oid, 'pg_proc'), provolatile from pg_proc"
        " where oid = 'holdfast.now()'::regprocedure"
    )
    stopped = engine.conn.execute(about.encode()).fetchone()

    engine.at(None)

    assert engine.conn.execute(about.encode()).fetchone() == stopped
    assert stopped is not None
    assert stopped[1:] == ("The time, as the engine sees it", "v")
