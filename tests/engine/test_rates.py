"""Rate limiters by name: a bucket that gets rate tokens a second and holds burst of them.

1. A new bucket is full; what was taken comes back at the rate, and never more than burst.
2. All that is wanted or nothing; with partial, as many as there are.
3. A refusal says when to ask again, and that is the very moment from which on it is granted.
4. Rate and burst are those of the call: the bucket is the name's.
5. What was taken stays taken in a rollback, but for one that takes back the name itself; no call writes a row
   version but the first of a name.
6. maintain() frees limiters that were not used for ten minutes; a free one's register is used again, and
   dropped after an hour.
7. After a crash, and after repair(), buckets are full.
8. Whatever is taken when, no more than burst + rate * time is ever granted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.engine.engine import T0, Engine, Row

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def take(engine: Engine, want: int = 1, *, rate: float = 10, limiter: str = "a", **options: Any) -> Row:
    return engine.row("take_rate", limiter=limiter, rate=rate, want=want, **options)


def granted(engine: Engine, want: int = 1, **options: Any) -> int:
    return int(take(engine, want, **options)["granted"])


def test_a_new_bucket_holds_one_seconds_worth(engine: Engine) -> None:
    assert take(engine, 10) == {"granted": 10, "remaining": 0, "retry_after": None}
    assert granted(engine) == 0


def test_burst_is_what_a_bucket_holds(engine: Engine) -> None:
    assert granted(engine, 1000, burst=25, partial=True) == 25


def test_a_rate_below_one_a_second_gives_one_at_a_time(engine: Engine) -> None:
    first, second = take(engine, rate=0.1), take(engine, rate=0.1)
    engine.at(T0 + 10 * SECOND)

    assert (first["granted"], second["granted"], granted(engine, rate=0.1)) == (1, 0, 1)
    assert second["retry_after"] == 10 * SECOND


def test_a_bucket_may_take_ten_years_to_fill(engine: Engine) -> None:
    assert granted(engine, 315, rate=0.000001, burst=315) == 315
    assert take(engine, rate=0.000001, burst=315)["retry_after"] == 1_000_000 * SECOND


def test_tokens_come_back_at_the_rate_and_not_beyond_the_burst(engine: Engine) -> None:
    take(engine, 10)
    engine.at(T0 + 0.35 * SECOND)
    soon = granted(engine, 10, partial=True)
    engine.at(T0 + timedelta(hours=1))

    assert soon == 3
    assert granted(engine, 1000, partial=True) == 10


def test_what_is_wanted_is_granted_as_a_whole_or_not_at_all(engine: Engine) -> None:
    take(engine, 7)

    assert take(engine, 4) == {"granted": 0, "remaining": 3, "retry_after": 0.1 * SECOND}
    assert granted(engine, 4, partial=True) == 3


def test_the_moment_to_ask_again_is_the_first_at_which_it_is_granted(engine: Engine) -> None:
    take(engine, 7, rate=7)
    wait = take(engine, 5, rate=7)["retry_after"]
    engine.at(T0 + wait - timedelta(microseconds=2))
    early = granted(engine, 5, rate=7)
    engine.at(T0 + wait + timedelta(microseconds=2))

    assert (early, granted(engine, 5, rate=7)) == (0, 5)


def test_wanting_nothing_shows_what_is_left(engine: Engine) -> None:
    take(engine, 4)

    assert take(engine, 0) == {"granted": 0, "remaining": 6, "retry_after": None}


def test_limiters_of_different_names_are_apart(engine: Engine) -> None:
    take(engine, 10, limiter="a")

    assert granted(engine, 10, limiter="b") == 10


def test_a_rate_that_was_raised_counts_from_then_on(engine: Engine) -> None:
    take(engine, 1, rate=0.001)
    at_once = granted(engine, 100, rate=100)
    engine.at(T0 + SECOND)

    assert (at_once, granted(engine, 100, rate=100)) == (0, 100)


def test_a_clock_that_was_set_back_empties_a_bucket_for_no_longer_than_it_takes_to_fill(
    engine: Engine,
) -> None:
    take(engine, 10)
    engine.at(T0 - timedelta(days=1))
    at_first = granted(engine)
    engine.at(T0 - timedelta(days=1) + SECOND)

    assert (at_first, granted(engine, 10)) == (0, 10)


def test_what_was_taken_stays_taken_in_a_rollback(engine: Engine) -> None:
    take(engine, 1)
    with engine.conn.transaction(force_rollback=True):
        take(engine, 9)

    assert granted(engine) == 0


def test_a_name_that_was_first_used_in_a_rollback_has_never_been(engine: Engine) -> None:
    with engine.conn.transaction(force_rollback=True):
        take(engine, 10)

    assert granted(engine, 10) == 10


def test_a_take_writes_nothing_and_leaves_no_lock(engine: Engine) -> None:
    take(engine)
    with engine.conn.transaction():
        take(engine)
        written = engine.look("select pg_current_xact_id_if_assigned()")
        locks = engine.look(
            "select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()"
        )

    assert (written, locks) == (None, 0)


def test_an_idle_limiter_is_freed_and_its_register_used_again(engine: Engine) -> None:
    take(engine, 10, limiter="idle")
    register = engine.look("select register::text from holdfast.limiter")
    engine.at(T0 + 9 * MINUTE)
    engine.value("maintain")
    kept = engine.look("select name from holdfast.limiter")
    engine.at(T0 + 11 * MINUTE)
    engine.value("maintain")
    freed = engine.look("select name from holdfast.limiter")
    full = granted(engine, 10, limiter="other")

    assert (kept, freed, full) == ("idle", None, 10)
    assert engine.look("select jsonb_agg(array[name, register::text]) from holdfast.limiter") == [
        ["other", register]
    ]


def test_a_free_limiter_that_gets_a_name_is_full(engine: Engine) -> None:
    take(engine, 10)
    engine.at(T0 + 11 * MINUTE)
    engine.value("maintain")
    with engine.conn.transaction(force_rollback=True):
        undone = granted(engine, 10, limiter="undone", rate=0.01, burst=10)

    assert (undone, granted(engine, 10, limiter="other", rate=0.01, burst=10)) == (10, 10)


def test_a_limiter_that_has_been_free_for_an_hour_is_dropped(engine: Engine) -> None:
    take(engine)
    for passed in (11, 72):
        engine.at(T0 + passed * MINUTE)
        engine.value("maintain")

    assert engine.look("select count(*) from holdfast.limiter") == 0
    assert engine.look("select count(*) from pg_class where relname ~ '^limiter_[0-9]'") == 0
    assert granted(engine, 10) == 10


def test_a_limiter_in_use_is_not_freed(engine: Engine) -> None:
    take(engine, 100, rate=0.01, burst=100)
    engine.at(T0 + timedelta(hours=2))
    engine.value("maintain")

    assert granted(engine, 100, rate=0.01, burst=100, partial=True) == 72


@pytest.mark.parametrize("unreadable_only", [False, True])
def test_repair_fills_buckets_only_where_it_must(engine: Engine, unreadable_only: bool) -> None:
    take(engine, 10)
    engine.value("repair", unreadable_only=unreadable_only)

    assert granted(engine, 10, partial=True) == (0 if unreadable_only else 10)


def test_repair_makes_registers_anew_that_cannot_be_read(engine: Engine) -> None:
    engine.create("q", throughput_limit=5)
    engine.send_numbers(9)
    before = [take(engine, 10)["granted"], len(engine.claim(9))]
    registers = "select array[l.register::oid, q.throttle::oid] from holdfast.limiter l, holdfast.queue q"
    unreadable = engine.look(registers)
    engine.conn.execute(
        "create or replace function holdfast._readable(registers regclass[])"
        " returns boolean language sql volatile"
        f" return not registers::oid[] && '{{{unreadable[0]}, {unreadable[1]}}}'".encode()
    )

    lanes = engine.value("repair", unreadable_only=True)

    assert (before, lanes) == ([10, 5], 0)
    assert not set(engine.look(registers)) & set(unreadable)
    assert (granted(engine, 10), len(engine.claim(9))) == (10, 4)


def test_a_bucket_that_a_crash_has_emptied_of_its_past_is_full(engine: Engine) -> None:
    take(engine, 10)
    engine.conn.execute("alter sequence holdfast.limiter_1 restart")

    assert granted(engine, 10) == 10


def test_no_more_than_burst_and_rate_times_time_is_ever_granted(engine: Engine) -> None:
    calls = st.tuples(st.integers(0, 3_000_000), st.integers(0, 30), st.booleans())

    @settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from((0.7, 3, 10, 333.3)), st.integers(1, 40), st.lists(calls, max_size=12))
    def tell(rate: float, burst: int, takes: list[tuple[int, int, bool]]) -> None:
        engine.conn.execute("delete from holdfast.limiter")
        passed, total = 0, 0
        for step, want, partial in takes:
            passed += step
            engine.at(T0 + timedelta(microseconds=passed))
            row = take(engine, min(want, burst), rate=rate, burst=burst, partial=partial)
            total += row["granted"]

            assert total <= burst + rate * passed / 1e6 + 0.001
            assert 0 <= row["remaining"] <= burst

    tell()
