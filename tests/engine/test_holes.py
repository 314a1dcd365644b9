"""Ways in that once were open. Claims pinned here:

1. A payload that is small as it is stored and endless as text is refused, however it comes.
2. Configuring a queue again uses up no lane ids, and finding it there no queue ids.
3. drop_queue with an old snapshot is refused: it would leave behind what it cannot see.
4. A queue is not its own dead-letter queue; one that is called "false" is one.
5. Whole numbers may be written with a fraction of nothing; delays beyond all time are refused as such.
6. A claim that does not say whether it is alone holds its lane with limits, and so do sweep and maintain.
7. The verbs work for whoever has set plpgsql.extra_errors.
8. No shard is left waiting while a session finds enough in its own, not even one that was configured away.
9. A claim that meets expired retries passes thousands of them, as it does with fresh messages.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.engine import T0, Engine, ids


def code_of(conn: psycopg.Connection[Any], statement: str) -> str | None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute(statement.encode())
    return caught.value.sqlstate


@pytest.mark.parametrize(
    "statement",
    [
        "select holdfast.send('q', j) from t",
        "select holdfast.send_batch('q', array[j]) from t",
        "insert into holdfast.inbox (queue, payload) select 'q', j from t",
    ],
)
def test_a_payload_that_is_endless_as_text_is_refused(queue: Engine, statement: str) -> None:
    queue.conn.execute(
        "create temp table t as select ('[' || string_agg('1e131071', ',') || ']')::jsonb j"
        " from generate_series(1, 12000)"
    )

    assert code_of(queue.conn, statement) == "QH201"


def test_configuring_again_uses_up_no_ids(queue: Engine) -> None:
    queue.value("configure_queue", queue="q", config={"shards": 4})
    before = ids_drawn(queue)

    queue.value("configure_queue", queue="q", config={"shards": 4})
    queue.value("configure_defaults", config={"lease": "20 s"})
    queue.value("create_queue", queue="q", config={})

    assert ids_drawn(queue) == before


def ids_drawn(queue: Engine) -> Any:
    return queue.conn.execute(
        "select (select last_value from holdfast.lane_id_seq), (select last_value from holdfast.queue_id_seq)"
    ).fetchone()


def test_drop_queue_with_an_old_snapshot_is_refused(queue: Engine) -> None:
    queue.conn.execute("begin isolation level repeatable read")

    assert code_of(queue.conn, "select holdfast.drop_queue('q')") == "QH303"
    queue.conn.execute("rollback")


@pytest.mark.parametrize("verb", ["create_queue", "configure_queue"])
def test_a_queue_is_not_its_own_dead_letter_queue(queue: Engine, verb: str) -> None:
    name = "q" if verb == "configure_queue" else "other"
    statement = f"select holdfast.{verb}('{name}', '{{\"dead_letter\": \"{name}\"}}')"

    assert code_of(queue.conn, statement) == "QH104"


def test_a_dead_letter_queue_may_be_called_false(engine: Engine) -> None:
    engine.create("q", dead_letter="false", max_deliveries=1)
    engine.conn.execute("select holdfast.send('q', '1')")
    token = engine.row("claim", queue="q")["token"]

    engine.row("nack", queue="q", token=token)

    assert engine.row("queue_stats", queue="false")["ready"] == 1


def test_whole_numbers_may_have_a_fraction_of_nothing(engine: Engine) -> None:
    engine.conn.execute(
        """select holdfast.create_queue('q', '{"max_deliveries": 7.0, "max_depth": 5.00, "shards": 2.0,
           "priorities": [1.0], "priority_default": 1.0, "max_payload": 1000.0}')"""
    )

    columns = "max_deliveries, max_depth, shards, priorities"
    row = engine.conn.execute(f"select {columns} from holdfast.queue".encode()).fetchone()
    assert row == (7, 5, 2, [1])


@pytest.mark.parametrize("delay", ["-290000 years", "290000 years", "-1 ms"])
def test_delays_beyond_all_time_are_refused_as_such(queue: Engine, delay: str) -> None:
    assert code_of(queue.conn, f"select holdfast.send('q', '1', delay => '{delay}')") == "QH205"


def test_a_claim_that_does_not_say_whether_it_is_alone_has_limits(queue: Engine) -> None:
    queue.conn.execute("begin")

    queue.conn.execute("select holdfast.claim('q', alone => null)")

    assert queue.conn.execute("show idle_in_transaction_session_timeout").fetchone() == ("1min",)
    queue.conn.execute("rollback")


def test_verbs_work_under_extra_errors(queue: Engine) -> None:
    queue.conn.execute("set plpgsql.extra_errors = 'all'")
    queue.value("configure_queue", queue="q", config={"priorities": [0, 5]})
    sent = [queue.send(1), queue.send(2, priority=5)]
    queue.send(3, delay="1 s")

    held = queue.claim(1) + queue.claim(1)
    settled = [queue.settle("ack", row["token"])[0] for row in held]

    assert settled == [[sent[1]], [sent[0]]]


@pytest.mark.parametrize("fewer", [2, 1])
def test_no_shard_waits_while_another_has_enough(queue: Engine, fewer: int) -> None:
    queue.value("configure_queue", queue="q", config={"shards": 2})
    for priority in ("odd", "even"):
        queue.conn.execute(
            "insert into holdfast.message (id, queue_id, enqueued_at, tag)"
            " select nextval(l.ids), l.queue_id, holdfast.now(), %s"
            " from holdfast.lane l, generate_series(1, 300) where l.shard = %s",
            [priority, int(priority == "odd")],
        )
    queue.value("configure_queue", queue="q", config={"shards": fewer})

    tags = {row["tag"] for _ in range(200) for row in queue.claim(1)}

    assert tags == {"odd", "even"}


def test_a_claim_passes_expired_retries_by_the_thousand(queue: Engine) -> None:
    queue.send_numbers(3000, delay="1 s", ttl="2 s")
    good = queue.send("good", delay="2 s")
    queue.at(T0 + timedelta(seconds=10))

    rows = queue.claim(1)

    assert ids(rows) == [good]


@pytest.mark.parametrize("call", ["select holdfast.sweep('q')", "select holdfast.maintain()"])
def test_a_sweep_left_open_holds_its_lanes_with_limits(queue: Engine, call: str) -> None:
    queue.send(1)

    with queue.conn.transaction():
        queue.conn.execute(call.encode())
        limits = queue.conn.execute(
            "select current_setting('idle_in_transaction_session_timeout'),"
            " current_setting('statement_timeout')"
        ).fetchone()

    assert limits == ("1min", "1min")
