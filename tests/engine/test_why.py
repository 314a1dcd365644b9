"""why(): each reason why nothing moves is found, said in words, and comes with what to do.

1. A queue with messages to hand out and nothing in the way gives one finding, ok.
2. paused, empty, scheduled, in_flight, leases_expired, full, dead, line_blocked, keys_parked, limited,
   budget_spent, not_maintained, unreadable, endpoint_disabled, breaker_open: each is found when it is so,
   with its figures, and only then.
3. Findings come with the gravest first.
4. Ids in details are text: they pass 2**53, where readers of JSON lose digits.
5. why changes nothing, and looks at a bounded number of rows: its cost does not grow with the backlog.

Those that are about other sessions are in tests/isolation/test_why.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, Row

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
LEAST_ID = 2**40  # ids of messages are larger


def found(engine: Engine, queue: str = "q") -> dict[str, Row]:
    """The findings by their code; each code once."""
    rows = engine.rows("why", queue=queue)
    assert len({row["finding"] for row in rows}) == len(rows)
    assert all(row["message"] and row["remedy"] and isinstance(row["details"], dict) for row in rows)
    assert [n for row in rows for n in numbers(row["details"]) if n >= LEAST_ID] == []
    return {row["finding"]: row for row in rows}


def numbers(value: Any) -> Iterator[float]:
    """All numbers in a JSON value, however deep."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value


def only(engine: Engine) -> Row:
    (row,) = found(engine).values()
    return row


def test_a_healthy_queue_is_ok(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.claim(1)

    row = only(queue)

    assert (row["finding"], row["severity"]) == ("ok", "ok")
    assert (row["details"]["ready"], row["details"]["in_flight"]) == (2, 1)


def test_a_paused_queue_says_so(queue: Engine) -> None:
    queue.send_numbers(2)
    queue.value("pause_queue", queue="q")

    row = only(queue)

    assert (row["finding"], row["severity"], row["details"]) == ("paused", "blocking", {"ready": 2})
    assert "holdfast.resume_queue('q')" in row["remedy"]


def test_an_endpoint_that_gets_nothing_is_told(engine: Engine) -> None:
    config = {"url": "https://example.com", "breaker": {"threshold": 1}}
    engine.value("create_endpoint", endpoint="shop", config=config)
    engine.send(1, queue="shop")

    well = found(engine, "shop")
    engine.row("record_attempts", endpoint="shop", attempts=Jsonb([{"message": 1, "outcome": "retry"}]))
    broken = found(engine, "shop")
    engine.value("disable_endpoint", endpoint="shop", reason="moving house.")
    disabled = found(engine, "shop")

    assert list(well) == ["ok"]
    assert list(broken) == ["breaker_open"]
    row = broken["breaker_open"]
    assert (row["severity"], row["details"]["state"], row["details"]["failures"]) == ("blocking", "open", 1)
    assert "is open after 1 failure: nothing is delivered until 2030-01-01 00:00:30" in row["message"]
    assert list(disabled) == ["endpoint_disabled"]
    assert disabled["endpoint_disabled"]["message"].endswith(": moving house.")
    assert "holdfast.enable_endpoint('shop')" in disabled["endpoint_disabled"]["remedy"]


def test_an_empty_queue_says_so(queue: Engine) -> None:
    queue.send(1)
    queue.settle("ack", queue.claim_one()["token"])

    row = only(queue)

    assert (row["finding"], row["severity"]) == ("empty", "info")
    assert (row["details"]["counters"]["sent"], row["details"]["counters"]["done"]) == (1, 1)


def test_a_queue_of_which_all_is_scheduled_names_the_next_time(queue: Engine) -> None:
    queue.send(1, delay="2 hours", priority=4)
    queue.send(1, delay="1 hour")

    row = only(queue)

    assert row["finding"] == "scheduled"
    assert row["details"] == {"scheduled": 2, "next_due_at": "2030-01-01T01:00:00+00:00"}
    assert row["message"].startswith("2 messages wait for their time; the next one is due at 2030-01-01 ")


def test_one_scheduled_message_waits_for_its_own_time(queue: Engine) -> None:
    queue.send(1, delay="1 hour")

    assert only(queue)["message"].startswith("1 message waits for its time; it is due at 2030-01-01 ")


def test_a_queue_of_which_all_is_in_flight_names_holders_and_deadlines(queue: Engine) -> None:
    queue.send_numbers(5)
    queue.claim(3, consumer="ann", lease="1 min")
    queue.claim(1, consumer="bob", lease="10 s")
    queue.claim(1, consumer="ann", lease="2 min")

    row = only(queue)

    assert (row["finding"], row["severity"]) == ("in_flight", "info")
    assert row["details"]["next_deadline"] == "2030-01-01T00:00:10+00:00"
    assert row["details"]["last_deadline"] == "2030-01-01T00:02:00+00:00"
    assert [(c["consumer"], c["messages"]) for c in row["details"]["consumers"]] == [("ann", 4), ("bob", 1)]


def test_leases_that_ran_out_are_told_apart_from_live_ones(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.claim(2, lease="1 s", consumer="gone")
    queue.claim(1, lease="1 h")
    queue.at(T0 + SECOND)
    some = found(queue)
    queue.at(T0 + timedelta(hours=1))
    queue.value("maintain", budget="10 s")
    queue.claim(3, lease="1 s")
    queue.at(T0 + timedelta(hours=2) - 57 * MINUTE)

    every = found(queue)

    assert set(some) == {"leases_expired", "in_flight"}
    assert (some["leases_expired"]["details"]["expired"], some["leases_expired"]["details"]["all"]) == (
        2,
        False,
    )
    assert set(every) == {"leases_expired"}
    assert (every["leases_expired"]["details"]["expired"], every["leases_expired"]["details"]["all"]) == (
        3,
        True,
    )
    assert every["leases_expired"]["severity"] == "warning"
    assert [row["leases_expired"]["message"] for row in (some, every)] == [
        "2 messages are in leases that have run out: the consumers are gone, or too slow.",
        "3 messages are in leases that have run out, and no lease still runs:"
        " the consumers are gone, or too slow.",
    ]


def test_a_full_queue_says_so(engine: Engine) -> None:
    engine.create("q", max_depth=2)
    engine.send(1)
    before = set(found(engine))
    engine.send(1)

    row = only(engine)

    assert before == {"ok"}
    assert (row["finding"], row["details"]) == ("full", {"depth": 2, "max_depth": 2})


def test_dead_letters_are_named_with_the_last_error(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.create("other", max_deliveries=1, dead_letter="q.dlq")
    engine.kill(engine.send(1), error="first")
    last = engine.kill(engine.send(1), error="no stock")
    engine.kill(engine.send(1, queue="other"), queue="other", error="not ours")
    engine.send(1)

    row = only(engine)

    assert (row["finding"], row["severity"]) == ("dead", "info")
    assert row["details"]["dead"] == 2
    assert (row["details"]["last_id"], row["details"]["last_error"]) == (str(last), "no stock")
    assert "no stock" in row["message"]


def test_a_pile_of_dead_letters_is_a_warning(engine: Engine) -> None:
    engine.create("q", max_deliveries=1)
    engine.send_numbers(100)
    engine.settle("nack", engine.claim(100)[0]["token"])

    row = found(engine)["dead"]

    assert (row["severity"], row["details"]["dead"]) == ("warning", 100)


def test_parked_keys_are_counted_and_a_few_are_named(queue: Engine) -> None:
    queue.send_numbers(8)
    queue.conn.execute(
        "update holdfast.message set due_at = 'infinity', ordering_key = 'k' || (id % 7), order_no = 2"
    )

    row = found(queue)["keys_parked"]

    assert (row["severity"], row["details"]["blocked"], len(row["details"]["keys"])) == ("warning", 8, 5)


def test_the_heads_of_parked_keys_are_named(engine: Engine) -> None:
    engine.create("lines", ordering="key")
    head = engine.send(1, queue="lines", ordering_key="a")
    engine.send(2, queue="lines", ordering_key="a")
    engine.claim(5, queue="lines")

    row = found(engine, "lines")["keys_parked"]

    assert row["details"]["heads"] == [{"key": "a", "id": str(head), "reason": "in_flight"}]


def test_keys_that_wait_for_a_live_lease_or_their_time_are_as_they_should_be(engine: Engine) -> None:
    engine.create("lines", ordering="key")
    for key in "aabb":
        engine.send(queue="lines", ordering_key=key)
    running, failed = engine.claim(5, queue="lines", lease="1 min")
    engine.settle("nack", failed["token"], [failed["id"]], queue="lines", delay="1 h")
    healthy = found(engine, "lines")["keys_parked"]
    engine.at(T0 + MINUTE)

    late = found(engine, "lines")["keys_parked"]

    assert [(head["key"], head["reason"]) for head in healthy["details"]["heads"]] == [
        (running["ordering_key"], "in_flight"),
        (failed["ordering_key"], "scheduled"),
    ]
    assert late["details"]["heads"][0]["reason"] == "lapsed"
    assert (healthy["severity"], late["severity"]) == ("info", "warning")


def test_lines_that_a_dead_message_blocks_are_not_told_twice(engine: Engine) -> None:
    engine.create("lines", ordering="key", on_dead="block", max_deliveries=1)
    for key in "aaabb":
        engine.send(queue="lines", ordering_key=key)
    first, _ = engine.claim(5, queue="lines")
    engine.settle("nack", first["token"], [first["id"]], queue="lines")
    both = found(engine, "lines")
    live = both["keys_parked"]
    engine.settle("ack", first["token"], queue="lines")
    engine.settle("ack", engine.claim_one(queue="lines")["token"], queue="lines")

    alone = found(engine, "lines")

    assert both["line_blocked"]["details"]["key"] == "a"
    assert (live["details"]["blocked"], live["details"]["keys"]) == (1, ["b"])
    assert set(alone) == {"line_blocked"}


def test_a_line_that_a_dead_message_blocks_is_told_with_its_way_out(engine: Engine) -> None:
    engine.create("lines", ordering="key", on_dead="block", max_deliveries=1)
    head = engine.send(1, queue="lines", ordering_key="a")
    engine.send(2, queue="lines", ordering_key="a")
    engine.settle("nack", engine.claim(2, queue="lines")[0]["token"], queue="lines", error="no stock")

    row = found(engine, "lines")["line_blocked"]

    assert row["severity"] == "blocking"
    assert row["message"].startswith(f"The line of a stands at message {head}, which is dead since ")
    assert row["message"].endswith(": no stock. 1 message behind it.")
    assert "holdfast.unblock('lines', 'a')" in row["remedy"]


def test_a_strict_queue_that_a_dead_message_blocks_is_told(engine: Engine) -> None:
    engine.create("strict", ordering="strict", on_dead="block", max_deliveries=1)
    engine.send_numbers(3, queue="strict")
    engine.settle("nack", engine.claim_one(queue="strict")["token"], queue="strict")

    row = found(engine, "strict")["line_blocked"]

    assert (row["severity"], row["details"]["waiting"]) == ("blocking", 2)
    assert "holdfast.unblock('strict')" in row["remedy"]


def test_a_strict_queue_waits_for_what_is_in_flight(engine: Engine) -> None:
    engine.create("strict", ordering="strict")
    engine.send_numbers(3, queue="strict")
    engine.claim_one(queue="strict")

    assert "in_flight" in found(engine, "strict")


def test_a_log_is_ok_or_empty_in_its_own_words(engine: Engine) -> None:
    engine.create("log", kind="log")
    empty = found(engine, "log")["empty"]

    engine.send(1, queue="log")

    assert empty["message"].startswith("The log is empty")
    assert "records are there to be read" in found(engine, "log")["ok"]["message"]


def test_a_throughput_limit_that_is_reached_is_found(engine: Engine) -> None:
    engine.create("slow", throughput_limit=2)
    engine.send_numbers(5, queue="slow")
    before = set(found(engine, "slow"))

    engine.claim(5, queue="slow")

    row = found(engine, "slow")["limited"]
    assert "limited" not in before
    assert row["details"] == {"throughput_limit": 2, "ready": 3}


@pytest.mark.parametrize("budget", ["deliveries", "failures"])
def test_messages_over_a_lowered_limit_are_found(engine: Engine, budget: str) -> None:
    engine.create("q", max_deliveries=5, budget=budget)
    sent = engine.send_numbers(3)
    for _ in range(2):
        engine.settle("nack", engine.claim(2)[0]["token"], delay="0 s")
    before = set(found(engine))

    engine.value("configure_queue", queue="q", config={"max_deliveries": 2})

    row = found(engine)["budget_spent"]
    assert before == {"ok"}
    assert (row["details"]["messages"], sorted(row["details"]["ids"])) == (2, [str(i) for i in sent[:2]])


def test_deliveries_that_are_not_counted_are_not_held_against_a_message(engine: Engine) -> None:
    engine.create("q", max_deliveries=2, budget="failures")
    engine.send(1)
    for _ in range(3):
        engine.at(engine.claim_one(lease="1 s")["deadline"])
        engine.value("sweep", queue="q")

    assert set(found(engine)) == {"ok"}


def test_a_message_with_a_limit_of_its_own_is_measured_by_that(engine: Engine) -> None:
    engine.create("q", max_deliveries=5)
    engine.send(1, max_deliveries=0)
    for _ in range(6):
        engine.settle("nack", engine.claim_one()["token"], delay="0 s")

    assert set(found(engine)) == {"ok"}


def test_a_database_that_nobody_maintains_is_noticed(queue: Engine) -> None:
    queue.send(1)
    queue.at(T0 + 5 * MINUTE)
    young = set(found(queue))
    queue.at(T0 + 6 * MINUTE)
    never = only(queue)
    queue.value("maintain", budget="10 s")
    just_now = set(found(queue))
    queue.at(T0 + 12 * MINUTE)

    again = only(queue)

    assert young == just_now == {"ok"}
    assert (never["finding"], never["details"]) == ("not_maintained", {"last": None})
    assert again["details"] == {"last": "2030-01-01T00:06:00+00:00"}


def test_unreadable_registers_are_all_that_can_be_said(queue: Engine) -> None:
    queue.send(1)
    queue.value("pause_queue", queue="q")
    queue.conn.execute(
        "create or replace function holdfast._readable(registers regclass[]) returns boolean"
        " language sql as 'select false'"
    )

    row = only(queue)

    assert (row["finding"], row["severity"], row["details"]) == (
        "unreadable",
        "blocking",
        {"priorities": [0]},
    )
    assert "repair(unreadable_only => true)" in row["remedy"]


def test_the_gravest_come_first(engine: Engine) -> None:
    engine.create("q", max_depth=1)
    engine.send(1, delay="1 h")
    engine.value("pause_queue", queue="q")
    engine.at(T0 + 6 * MINUTE)

    rows = engine.rows("why", queue="q")

    assert [(row["severity"], row["finding"]) for row in rows] == [
        ("blocking", "paused"),
        ("warning", "full"),
        ("warning", "not_maintained"),
        ("info", "scheduled"),
    ]


def test_why_of_a_queue_that_is_not_there_is_refused(queue: Engine) -> None:
    with pytest.raises(psycopg.Error) as caught:
        queue.rows("why", queue="nowhere")

    assert caught.value.sqlstate == "QH101"


def test_why_changes_nothing(queue: Engine) -> None:
    queue.send_numbers(3)
    queue.claim(1, lease="1 s")
    queue.at(T0 + SECOND)
    before = queue.state()

    queue.rows("why", queue="q")

    assert queue.state() == before


def reads(engine: Engine) -> int:
    """How many rows of the big tables one call of why reads."""
    query = (
        "select sum(seq_tup_read + idx_tup_fetch)::bigint from pg_stat_xact_user_tables"
        " where schemaname = 'holdfast' and relname in ('message', 'lease', 'gap')"
    )
    with engine.conn.transaction():
        before = engine.look(query)
        engine.rows("why", queue="q")
        return int(engine.look(query)) - int(before)


def test_the_rows_that_why_reads_do_not_grow_with_the_backlog(queue: Engine) -> None:
    fill: Any = queue.conn.execute
    for batch in ("null", "'2031-01-01'", "'2029-01-01'"):
        fill(
            "insert into holdfast.message (id, queue_id, enqueued_at, due_at)"
            " select nextval(l.ids), l.queue_id, '2030-01-01', " + batch + "::timestamptz"
            " from holdfast.lane l, generate_series(1, 12000)"
        )
    small = reads(queue)
    for batch in ("null", "'2031-01-01'", "'2029-01-01'"):
        fill(
            "insert into holdfast.message (id, queue_id, enqueued_at, due_at)"
            " select nextval(l.ids), l.queue_id, '2030-01-01', " + batch + "::timestamptz"
            " from holdfast.lane l, generate_series(1, 60000)"
        )

    large = reads(queue)

    assert small > 0
    assert large <= small + 100
