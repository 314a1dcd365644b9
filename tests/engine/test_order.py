"""Order: lines of messages that are handed out one after the other.

1. Of an ordering key one message is in flight at a time, in the order of the sends, across priorities;
   messages of other keys, and those without a key, go on meanwhile.
2. What is blocked is parked, counted as blocked and shown as such; the end of a head makes the next one due.
3. A head that is nacked, released or whose lease runs out keeps its place: its line waits for it.
4. However a head ends, its line goes on: acked, dead, discarded, expired, failed.
5. A dead letter that is sent back goes to the end of its line.
6. on_dead = block: a dead head blocks its line until it is retried, in its place, or skipped, or discarded.
   Meanwhile its time to live stands still.
7. A strict queue is one line; it hands out one message at a time, whatever is asked for, and however
   messages come in. It takes no dead letters of other queues.
8. An audit finds what is parked behind nobody, and leaves alone what is parked behind a head.
9. Lines outlive a crash, and a queue whose ordering was taken back.
10. A claim that meets a long line does bounded work; a hundred thousand keys fit into one call.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, payloads

SECOND = timedelta(seconds=1)
LEASE = timedelta(seconds=30)


@pytest.fixture
def ordered(engine: Engine) -> Engine:
    """The engine, with a queue `q` whose messages are ordered by key."""
    engine.create("q", ordering="key")
    return engine


@pytest.fixture
def strict(engine: Engine) -> Engine:
    """The engine, with a strict queue `q`."""
    engine.create("q", ordering="strict", max_deliveries=2)
    return engine


def line(engine: Engine, *values: Any, key: str = "a", **options: Any) -> list[int]:
    """Send these payloads with one ordering key."""
    return [engine.send(value, ordering_key=key, **options) for value in values]


def work(engine: Engine, max: int = 10) -> list[Any]:
    """Claim and ack until nothing comes; the payloads of each claim."""
    done = []
    while rows := engine.claim(max):
        done.append(payloads(rows))
        engine.settle("ack", rows[0]["token"])
    return done


# --- 1, 2: one at a time ---------------------------------------------------------------------------------


def test_a_line_is_handed_out_one_by_one_in_order(ordered: Engine) -> None:
    line(ordered, 1, 2, 3)

    assert work(ordered) == [[1], [2], [3]]


def test_lines_do_not_wait_for_each_other(ordered: Engine) -> None:
    line(ordered, 1, 2)
    line(ordered, 3, 4, key="b")
    ordered.send(5)
    ordered.send(6)

    assert work(ordered) == [[1, 3, 5, 6], [2, 4]]


def test_order_holds_across_priorities(ordered: Engine) -> None:
    line(ordered, 1)
    line(ordered, 2, priority=9)
    line(ordered, 3, priority=5)

    assert work(ordered) == [[1], [2], [3]]


def test_order_holds_across_shards_and_batches(engine: Engine) -> None:
    engine.create("q", ordering="key", shards=3)
    engine.send_numbers(3, ordering_key="a")
    messages = [{"payload": n, "ordering_key": "a"} for n in (3, 4)]
    engine.value("send_many", queue="q", messages=Jsonb(messages))
    engine.conn.execute("insert into holdfast.inbox (queue, payload, ordering_key) values ('q', '5', 'a')")

    assert work(engine) == [[0], [1], [2], [3], [4], [5]]


def test_a_delivery_and_an_entry_name_the_key(ordered: Engine) -> None:
    (id,) = line(ordered, 1)

    assert ordered.claim_one()["ordering_key"] == "a"
    assert ordered.row("message", queue="q", id=id)["ordering_key"] == "a"


def test_what_is_parked_is_counted_and_shown_as_blocked(ordered: Engine) -> None:
    ids = line(ordered, 1, 2, 3)
    ordered.claim(10)

    stats = ordered.stats()
    browsed = ordered.rows("browse", queue="q", state="blocked")

    assert (stats["ready"], stats["blocked"], stats["in_flight"], stats["depth"]) == (0, 2, 1, 3)
    assert [row["id"] for row in browsed] == ids[1:]
    assert ordered.row("message", queue="q", id=ids[1])["state"] == "blocked"


def test_blocked_keys_names_the_head_and_counts_who_waits(ordered: Engine) -> None:
    first, *_ = line(ordered, 1, 2, 3)
    line(ordered, 4, key="b")
    ordered.claim(10)

    (row,) = ordered.rows("blocked_keys", queue="q")

    assert row == {"key": "a", "head": first, "since": T0, "waiting": 2, "reason": "in_flight"}


def test_next_goes_on_with_the_line(ordered: Engine) -> None:
    line(ordered, 1, 2)
    token = ordered.claim(5)[0]["token"]

    assert payloads(ordered.rows("next", queue="q", token=token, max=5)) == [2]


# --- 3: a head keeps its place ---------------------------------------------------------------------------


def test_a_nacked_head_holds_its_line_up(ordered: Engine) -> None:
    line(ordered, 1, 2)
    ordered.settle("nack", ordered.claim_one()["token"], delay="5 s")
    before = ordered.claim(10)
    reason = ordered.rows("blocked_keys", queue="q")[0]["reason"]
    ordered.at(T0 + 5 * SECOND)

    assert (before, reason) == ([], "scheduled")
    assert work(ordered) == [[1], [2]]


def test_a_released_head_comes_again_first(ordered: Engine) -> None:
    line(ordered, 1, 2)
    ordered.settle("release", ordered.claim(5)[0]["token"])

    assert work(ordered) == [[1], [2]]


def test_a_head_whose_lease_ran_out_comes_again_first(ordered: Engine) -> None:
    line(ordered, 1, 2)
    ordered.claim(5)
    ordered.at(T0 + LEASE)

    assert work(ordered) == [[1], [2]]


def test_a_delayed_head_holds_its_line_up(ordered: Engine) -> None:
    line(ordered, 1, delay="5 s")
    line(ordered, 2)
    before = ordered.claim(5)
    ordered.at(T0 + 5 * SECOND)

    assert before == []
    assert work(ordered) == [[1], [2]]


def test_a_delayed_message_waits_for_its_time_and_its_turn(ordered: Engine) -> None:
    line(ordered, 1)
    line(ordered, 2, delay="5 s")
    line(ordered, 3)
    first = ordered.claim_one()
    ordered.at(T0 + 5 * SECOND)
    blocked = ordered.claim(5)
    ordered.settle("ack", first["token"])

    assert blocked == []
    assert work(ordered) == [[2], [3]]


# --- 4: however a head ends --------------------------------------------------------------------------------


def test_a_dead_head_lets_its_line_go_on(ordered: Engine) -> None:
    (first, _) = line(ordered, 1, 2, max_deliveries=1)

    dead = ordered.kill(first)

    assert ordered.row("message", queue="q", id=dead)["origin"]["ordering_key"] == "a"
    assert work(ordered) == [[2]]


def test_a_head_that_dies_in_the_sweep_lets_its_line_go_on(ordered: Engine) -> None:
    line(ordered, 1, max_deliveries=1)
    line(ordered, 2)
    ordered.claim(5)
    ordered.at(T0 + LEASE)

    assert work(ordered) == [[2]]
    assert ordered.stats()["dead"] == 1


def test_a_head_that_fails_without_dead_letters_lets_its_line_go_on(engine: Engine) -> None:
    engine.create("q", ordering="key", dead_letter=False, max_deliveries=1)
    line(engine, 1, 2)
    engine.settle("nack", engine.claim(5)[0]["token"])

    assert work(engine) == [[2]]


@pytest.mark.parametrize("held", [True, False])
def test_a_discarded_head_lets_its_line_go_on(ordered: Engine, held: bool) -> None:
    first, _ = line(ordered, 1, 2)
    token = ordered.claim(5)[0]["token"]
    if not held:
        ordered.settle("nack", token, delay="1 h")

    ordered.value("discard", queue="q", ids=[first])

    assert work(ordered) == [[2]]


def test_discarding_in_the_middle_of_a_line_closes_the_gap(ordered: Engine) -> None:
    _, second, third, _ = line(ordered, 1, 2, 3, 4)
    token = ordered.claim(5)[0]["token"]

    ordered.value("discard", queue="q", ids=[third, second])
    early = ordered.claim(5)
    ordered.settle("ack", token)

    assert early == []
    assert work(ordered) == [[4]]


@pytest.mark.parametrize("met", [True, False])
def test_an_expired_head_lets_its_line_go_on(ordered: Engine, met: bool) -> None:
    line(ordered, 1)
    line(ordered, 2, ttl="1 s")
    line(ordered, 3)
    token = ordered.claim(5 if met else 1)[0]["token"]
    ordered.at(T0 + SECOND)
    ordered.settle("ack", token)

    assert work(ordered) == [[3]]


# --- 5: sent back --------------------------------------------------------------------------------------


def test_a_dead_letter_that_is_sent_back_goes_to_the_end_of_its_line(ordered: Engine) -> None:
    first, _ = line(ordered, 1, 2, max_deliveries=1)
    ordered.kill(first)

    ordered.rows("redrive", queue="q")

    assert work(ordered) == [[2], [1]]


def test_sent_back_to_a_queue_without_order_it_has_no_key(ordered: Engine) -> None:
    first, _ = line(ordered, 1, 2, max_deliveries=1)
    ordered.create("other")
    ordered.kill(first)

    ordered.rows("redrive", queue="q", target="other")

    assert ordered.claim_one(queue="other")["ordering_key"] is None


# --- 6: on_dead = block --------------------------------------------------------------------------------


@pytest.fixture
def blocked(engine: Engine) -> Engine:
    """A line of three whose head is dead and blocks it; and a message of another key."""
    engine.create("q", ordering="key", on_dead="block", max_deliveries=1)
    line(engine, 1, 2, 3)
    line(engine, 4, key="b")
    row = engine.claim(1)[0]
    engine.settle("nack", row["token"], [row["id"]], error="boom")
    return engine


def test_a_dead_head_blocks_its_line_and_no_other(blocked: Engine) -> None:
    assert work(blocked) == [[4]]
    assert [(r["key"], r["waiting"], r["reason"]) for r in blocked.rows("blocked_keys", queue="q")] == [
        ("a", 2, "dead")
    ]
    assert blocked.stats()["dead"] == 0


def test_a_retry_delivers_the_dead_head_first(blocked: Engine) -> None:
    blocked.value("unblock", queue="q", key="a")

    assert work(blocked) == [[1, 4], [2], [3]]


def dead_head(engine: Engine, *, dies_after: timedelta, **config: Any) -> int:
    """A line whose head has 10 s to live, is dead, and blocks; its id."""
    engine.create("q", ordering="key", on_dead="block", max_deliveries=1, **config)
    (id,) = line(engine, 1, ttl="10 s")
    token = engine.claim_one(lease="1 h")["token"]
    engine.at(T0 + dies_after)
    engine.settle("nack", token)
    return id


@pytest.mark.parametrize("in_flight", [True, False])
def test_a_dead_head_does_not_expire_while_it_blocks(engine: Engine, in_flight: bool) -> None:
    id = dead_head(engine, dies_after=4 * SECOND, expire_in_flight=in_flight)
    engine.at(T0 + 60 * SECOND)

    engine.value("maintain")
    engine.claim(10)

    assert engine.row("message", queue="q", id=id)["state"] == "blocked"


def test_a_retry_gives_the_dead_head_the_time_to_live_that_was_left(engine: Engine) -> None:
    id = dead_head(engine, dies_after=4 * SECOND)
    engine.at(T0 + 60 * SECOND)
    engine.value("unblock", queue="q", key="a")

    assert engine.row("message", queue="q", id=id)["expires_at"] == T0 + 66 * SECOND
    engine.at(T0 + 66 * SECOND)
    assert engine.claim(10) == []


@pytest.mark.parametrize(("ttl", "expires_at"), [(None, None), ("5 s", T0 + 65 * SECOND)])
def test_a_retry_delivers_a_head_that_had_no_time_left_when_it_died(
    engine: Engine, ttl: str | None, expires_at: datetime | None
) -> None:
    id = dead_head(engine, dies_after=11 * SECOND, ttl=ttl)
    engine.at(T0 + 60 * SECOND)
    engine.value("unblock", queue="q", key="a")

    assert engine.row("message", queue="q", id=id)["expires_at"] == expires_at
    assert payloads(engine.claim(10)) == [1]


def test_a_skip_moves_the_dead_head_to_the_dead_letters(blocked: Engine) -> None:
    blocked.value("unblock", queue="q", key="a", how="skip")

    assert work(blocked, 1) == [[2], [3], [4]]
    assert blocked.stats()["dead"] == 1


def test_a_blocking_head_that_is_discarded_lets_its_line_go_on(blocked: Engine) -> None:
    (row,) = blocked.rows("blocked_keys", queue="q")

    blocked.value("discard", queue="q", ids=[row["head"]])

    assert sorted(payload for taken in work(blocked) for payload in taken) == [2, 3, 4]


def test_a_blocking_head_is_blocked_and_not_dead(blocked: Engine) -> None:
    head = blocked.look("select id from holdfast.message where blocks_since is not null")
    purged = [blocked.row("purge", queue="q", states=[state])["purged"] for state in ("dead", "blocked")]

    assert purged[0] == 0
    assert purged[1] >= 1
    assert blocked.rows("redrive", queue="q") == []
    assert blocked.look("select count(*) from holdfast.message where id = %s", head) == 0


def test_the_audit_leaves_a_blocking_head_alone(blocked: Engine) -> None:
    work(blocked)

    assert blocked.value("maintain")["found"] == 0
    assert blocked.claim(5) == []


# --- 7: strict -----------------------------------------------------------------------------------------


def test_a_strict_queue_hands_out_one_at_a_time(strict: Engine) -> None:
    strict.send_numbers(3)
    first = strict.claim(10)
    meanwhile = strict.claim(10)
    strict.settle("ack", first[0]["token"])

    assert (payloads(first), meanwhile) == ([0], [])
    assert work(strict) == [[1], [2]]


def test_a_strict_queue_has_one_lane_whatever_the_defaults_say(strict: Engine) -> None:
    strict.create("other")
    strict.value("configure_defaults", config={"shards": 4, "priorities": [1, 2], "priority_default": 3})
    strict.create("later", ordering="strict")
    lanes = (
        "select jsonb_object_agg(q.name, array(select array[l.priority, l.shard] from holdfast.lane l"
        " where l.queue_id = q.id order by 1)) from holdfast.queue q where q.name <> 'other'"
    )
    effective = {row["queue"]: row["effective"] for row in strict.rows("queues")}

    assert strict.look(lanes) == {"q": [[0, 0], [3, 0]], "later": [[3, 0]]}
    assert [effective["later"][field] for field in ("shards", "priorities")] == [1, [3]]
    assert [effective["other"][field] for field in ("shards", "priorities")] == [4, [1, 2]]


@pytest.mark.parametrize("config", [{"shards": 2}, {"priorities": [0, 1]}])
def test_a_strict_queue_takes_no_lanes_of_its_own(strict: Engine, config: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error, match="QH104"):
        strict.value("configure_queue", queue="q", config=config)
    with pytest.raises(psycopg.Error, match="QH104"):
        strict.create("other", ordering="strict", **config)


def test_a_nacked_message_holds_a_strict_queue_up(strict: Engine) -> None:
    strict.send_numbers(2)
    strict.settle("nack", strict.claim_one()["token"], delay="5 s")
    before = strict.claim(5)
    strict.at(T0 + 5 * SECOND)

    assert before == []
    assert work(strict) == [[0], [1]]


def test_the_deliveries_of_a_strict_queue_have_no_key(strict: Engine) -> None:
    id = strict.send(1)
    dead = strict.kill(id)

    assert "ordering_key" not in strict.row("message", queue="q", id=dead)["origin"]
    strict.rows("redrive", queue="q")
    assert strict.claim_one()["ordering_key"] is None


def test_what_is_replayed_into_a_strict_queue_stands_in_its_line(engine: Engine) -> None:
    engine.create("q", ordering="strict", keep=["done"], priority_default=3)
    engine.send_numbers(3)
    work(engine)
    engine.rows("replay", queue="q", limit=2)
    engine.send("new")

    (first,) = engine.claim(10)
    assert engine.claim(10) == []
    engine.settle("ack", first["token"])
    assert (first["payload"], work(engine)) == (0, [[1], ["new"]])


def test_what_is_replayed_from_any_priority_into_a_strict_queue_is_one_line(engine: Engine) -> None:
    engine.create("q", keep=["done"])
    engine.create("line", ordering="strict")
    for priority in (0, 7, 3):
        engine.send(priority, priority=priority)
    for row in engine.claim(3):
        engine.settle("ack", row["token"], [row["id"]])

    engine.rows("replay", queue="q", target="line")
    first = engine.claim(10, queue="line")

    assert len(first) == 1
    assert engine.claim(10, queue="line") == []
    assert engine.look("select count(*) from holdfast.lane where queue_name = 'line'") == 1


@pytest.mark.parametrize("named", [{"dead_letter": "line"}, {}])
def test_a_strict_queue_takes_no_dead_letters(engine: Engine, named: dict[str, str]) -> None:
    name = "line" if named else "orders.dlq"
    engine.create(name, ordering="strict")
    before = engine.state()

    with pytest.raises(psycopg.Error, match="bad value for dead_letter") as caught:
        engine.create("orders", **named)

    assert caught.value.sqlstate == "QH104"
    assert engine.state() == before


def test_a_queue_can_not_be_told_to_bury_in_a_strict_one(engine: Engine) -> None:
    engine.create("line", ordering="strict")
    engine.create("orders")

    with pytest.raises(psycopg.Error, match="bad value for dead_letter") as caught:
        engine.value("configure_queue", queue="orders", config={"dead_letter": "line"})

    assert caught.value.sqlstate == "QH104"


@pytest.mark.parametrize("there", [True, False])
def test_a_queue_that_takes_dead_letters_can_not_become_strict(engine: Engine, there: bool) -> None:
    engine.create("orders", dead_letter="line")
    if there:
        engine.create("line")
    verb = "configure_queue" if there else "create_queue"

    with pytest.raises(psycopg.Error, match="bad value for ordering") as caught:
        engine.value(verb, queue="line", config={"ordering": "strict"})

    assert caught.value.sqlstate == "QH104"


def test_a_strict_queue_can_be_freed_of_dead_letters(engine: Engine) -> None:
    engine.create("orders", dead_letter="line")
    engine.value("configure_queue", queue="orders", config={"dead_letter": False})

    engine.create("line", ordering="strict")

    assert engine.look("select ordering from holdfast.queue where name = 'line'") == "strict"


def test_a_dead_message_blocks_a_strict_queue_until_it_is_skipped(engine: Engine) -> None:
    engine.create("q", ordering="strict", on_dead="block", max_deliveries=1)
    engine.send_numbers(2)
    engine.settle("nack", engine.claim_one()["token"])
    blocked = engine.claim(5)

    engine.value("unblock", queue="q", how="skip")

    assert blocked == []
    assert work(engine) == [[1]]


# --- 8, 9: faults --------------------------------------------------------------------------------------


def test_the_audit_frees_what_is_parked_behind_nobody(ordered: Engine) -> None:
    first, *_ = line(ordered, 1, 2, 3)
    ordered.claim(5)
    ordered.conn.execute("delete from holdfast.message where id = %s", [first])
    stuck = ordered.claim(5)

    assert stuck == []
    assert ordered.value("maintain")["found"] == 1
    assert work(ordered) == [[2], [3]]


def test_the_audit_leaves_what_is_parked_behind_a_head(ordered: Engine) -> None:
    line(ordered, 1, 2, 3)
    ordered.claim(5)

    assert ordered.value("maintain")["found"] == 0
    assert ordered.stats()["blocked"] == 2


def test_lines_outlive_a_crash(ordered: Engine) -> None:
    line(ordered, 1, 2, 3)
    ordered.claim(5)

    ordered.value("repair")

    assert work(ordered) == [[1], [2], [3]]


def test_what_is_sent_after_a_restore_comes_after_what_it_brought(ordered: Engine) -> None:
    line(ordered, 1, 2)
    ordered.conn.execute("select setval('holdfast.order_no', 1, false)")  # a dump that read it too early

    ordered.value("repair")
    line(ordered, 3)

    assert work(ordered) == [[1], [2], [3]]


def test_lines_outlive_an_ordering_that_was_taken_back(ordered: Engine) -> None:
    line(ordered, 1, 2)
    ordered.claim(1)

    ordered.value("configure_queue", queue="q", config={"ordering": None})

    assert ordered.claim(5) == []


# --- 10: bounds ----------------------------------------------------------------------------------------


def test_a_claim_parks_a_long_line_in_steps(ordered: Engine) -> None:
    ordered.send_numbers(20_000, ordering_key="a")
    ordered.claim(1)

    ordered.claim(1)

    assert 0 < ordered.look("select count(*) from holdfast.message where due_at = 'infinity'") < 12_000


def test_a_hundred_thousand_keys_fit_into_one_call(ordered: Engine) -> None:
    messages = Jsonb([{"payload": n, "ordering_key": f"k{n}"} for n in range(100_000)])
    with ordered.conn.transaction():
        ordered.value("send_many", queue="q", messages=messages)
        locks = ordered.look("select count(*) from pg_locks where locktype = 'advisory'")

    assert locks == 1024
    assert len(ordered.claim(1000)) == 1000
