"""Repairs: dead letters that were mended elsewhere, and are sent back with what their rows say.

1. A dead letter moves with what the named columns of its row say, and keeps all else that redrive keeps.
2. It moves iff it is still dead and in nobody's hands; those that stay are named, and stay as they were.
3. What a row changes must be what a send takes; what it leaves alone passes. What is refused is taken out.
4. They go in the order of their ids, chunk by chunk, whichever stages brought them.
5. A dead letter has one row. Rows that are missing are noticed; a stage that is in use is not tidied away.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, Row, ids, payloads

TRACE = UUID("01234567-89ab-cdef-0123-456789abcdef")
SECOND_TRACE = UUID("11111111-89ab-cdef-0123-456789abcdef")
HOUR = timedelta(hours=1)


@pytest.fixture
def mortal(engine: Engine) -> Engine:
    """A queue `q` whose messages die at the first failure."""
    engine.create("q", max_deliveries=1)
    return engine


def killed(engine: Engine, payload: Any = None, **options: Any) -> int:
    """A dead letter."""
    return engine.kill(engine.send(payload, **options), error="boom")


def stage(engine: Engine, rows: dict[int, dict[str, Any]]) -> int:
    """A stage with a row for each of these dead letters."""
    number = int(engine.value("open_stage", queue="q", write_id="w", run="a", part=0))
    for letter, row in rows.items():
        columns = {"stage": number, "n": letter, **row}
        comma = sql.SQL(", ")
        statement = sql.SQL("insert into holdfast.staged ({}) values ({})").format(
            comma.join(map(sql.Identifier, columns)), comma.join(map(sql.Placeholder, columns))
        )
        engine.conn.execute(statement, columns)
    return number


def redrive(engine: Engine, stage: int, *columns: str, **options: Any) -> list[Row]:
    return engine.rows("redrive_staged", queue="q", stage=stage, columns=list(columns), **options)


def stays(rows: list[Row]) -> dict[int, str | None]:
    return {row["id"]: row["stays"] for row in rows}


def check(engine: Engine, stage: int, *columns: str, **options: Any) -> list[tuple[int, str]]:
    rows = engine.rows("check_redrive", queue="q", stage=stage, columns=list(columns), **options)
    return [(row["n"], row["code"]) for row in rows]


def dead(engine: Engine) -> list[Row]:
    return engine.rows("browse", queue="q", state="dead")


def test_only_the_named_columns_are_replaced(mortal: Engine) -> None:
    others: dict[str, Any] = {"tag": "t", "content_type": "c", "correlation_id": TRACE, "priority": 4}
    root = mortal.send({"a": 1}, headers={"h": 1}, **others)
    letter = mortal.kill(root, error="boom")
    number = stage(mortal, {letter: {"payload": Jsonb({"a": 2}), "tag": "ignored"}})

    (moved,) = redrive(mortal, number, "payload")

    (row,) = mortal.claim(10)
    assert (moved["id"], moved["new_id"], moved["stays"]) == (letter, row["id"], None)
    assert (row["payload"], row["headers"], row["tag"]) == ({"a": 2}, {"h": 1}, "t")
    assert (row["content_type"], row["correlation_id"], row["priority"]) == ("c", TRACE, 4)
    assert (row["deliveries"], row["last_error"]) == (1, "boom")
    origin = row["origin"]
    assert (origin["root_id"], origin["redrives"], origin["repaired"]) == (root, 1, ["payload"])
    assert dead(mortal) == []


def test_all_columns_can_be_replaced(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, ordering="key")
    letter = killed(engine, {"a": 1}, headers={"h": 1}, tag="t", ordering_key="o", idempotency_key="i")
    mended: dict[str, Any] = {
        "body": b"\x00\x01",
        "content_type": "c",
        "headers": Jsonb({"h": 2}),
        "priority": 7,
        "correlation_id": str(SECOND_TRACE).upper(),
        "tag": "u",
        "max_deliveries": 5,
        "ordering_key": "p",
        "key": "k",
    }
    number = stage(engine, {letter: mended})

    redrive(engine, number, "payload", *mended)

    (row,) = engine.claim(10)
    assert (row["payload"], row["body"], row["content_type"]) == (None, b"\x00\x01", "c")
    assert (row["headers"], row["tag"], row["correlation_id"]) == ({"h": 2}, "u", SECOND_TRACE)
    assert (row["priority"], row["max_deliveries"], row["ordering_key"], row["key"]) == (7, 5, "p", "k")
    assert engine.look("select idempotency_key from holdfast.message") is None
    assert sorted(row["origin"]["repaired"]) == sorted({"payload", "idempotency_key", *mended})


def test_columns_can_be_taken_away(mortal: Engine) -> None:
    letter = killed(mortal, 1, headers={"h": 1}, tag="t", priority=4, max_deliveries=1)
    number = stage(mortal, {letter: {}})

    redrive(mortal, number, "headers", "tag", "priority", "max_deliveries")

    (row,) = mortal.claim(10)
    assert (row["payload"], row["headers"], row["tag"], row["priority"]) == (1, None, None, 0)
    assert mortal.look("select max_deliveries from holdfast.message") is None


def test_without_columns_it_is_a_redrive(mortal: Engine) -> None:
    letters = [killed(mortal, n, key=f"k{n}", priority=n) for n in range(3)]
    number = stage(mortal, {letter: {} for letter in letters})

    moved = redrive(mortal, number)

    assert ids(moved) == letters
    rows = mortal.claim(10)
    assert sorted((row["payload"], row["key"], row["priority"]) for row in rows) == [
        (0, "k0", 0),
        (1, "k1", 1),
        (2, "k2", 2),
    ]
    assert all("repaired" not in row["origin"] for row in rows)


def test_a_row_that_changes_nothing_is_no_repair(mortal: Engine) -> None:
    letter = killed(mortal, {"a": 1}, tag="t")
    number = stage(mortal, {letter: {"payload": Jsonb({"a": 1}), "tag": "t"}})

    redrive(mortal, number, "payload", "tag")

    assert "repaired" not in mortal.claim_one()["origin"]


def test_a_repaired_dead_letter_dies_and_comes_back_once_more(mortal: Engine) -> None:
    root = mortal.send(1)
    letter = mortal.kill(root)
    first = stage(mortal, {letter: {"payload": Jsonb(2), "priority": 9}})
    (moved,) = redrive(mortal, first, "payload", "priority")
    second = mortal.kill(moved["new_id"])

    (again,) = redrive(mortal, stage(mortal, {second: {"payload": Jsonb(3)}}), "payload")

    row = mortal.claim_one()
    assert (row["id"], row["payload"], row["priority"]) == (again["new_id"], 3, 9)
    assert (row["origin"]["root_id"], row["origin"]["redrives"]) == (root, 2)


def test_a_dead_letter_that_is_gone_is_named(mortal: Engine) -> None:
    discarded, redriven, still = (killed(mortal, n) for n in range(3))
    number = stage(mortal, {letter: {"payload": Jsonb("x")} for letter in (discarded, redriven, still)})
    mortal.value("discard", queue="q", ids=[discarded])
    mortal.rows("redrive", queue="q", ids=[redriven])

    moved = redrive(mortal, number, "payload")

    assert stays(moved) == {discarded: "gone", redriven: "gone", still: None}
    assert payloads(mortal.claim(10)) == [1, "x"]


def test_the_same_rows_move_nothing_twice(mortal: Engine) -> None:
    letter = killed(mortal, 1)
    number = stage(mortal, {letter: {"payload": Jsonb(2)}})

    first, second = redrive(mortal, number, "payload"), redrive(mortal, number, "payload")

    assert (stays(first), stays(second)) == ({letter: None}, {letter: "gone"})
    assert payloads(mortal.claim(10)) == [2]


def test_dead_letters_of_another_queue_are_not_touched(mortal: Engine) -> None:
    mortal.create("r", max_deliveries=1, dead_letter="q.dlq")
    other = mortal.kill(mortal.send("r", queue="r"), queue="r")
    living = mortal.send("alive")

    moved = redrive(mortal, stage(mortal, {other: {}, living: {}}))

    assert stays(moved) == {other: "gone", living: "gone"}
    assert payloads(mortal.rows("browse", queue="r", state="dead")) == ["r"]


def test_a_dead_letter_in_a_lease_stays_as_it_was(mortal: Engine) -> None:
    letter = killed(mortal, 1)
    held = mortal.claim_one(queue="q.dlq")
    number = stage(mortal, {letter: {"payload": Jsonb(2)}})

    moved = redrive(mortal, number, "payload")
    mortal.settle("release", held["token"], queue="q.dlq")

    assert stays(moved) == {letter: "held"}
    assert payloads(dead(mortal)) == [1]
    assert stays(redrive(mortal, number, "payload")) == {letter: None}


def test_a_dead_letter_whose_key_a_living_message_has_stays_as_it_was(mortal: Engine) -> None:
    letter = killed(mortal, "old", key="k")
    mortal.send("new", key="k")
    number = stage(mortal, {letter: {"payload": Jsonb("x"), "key": "k"}})

    moved = redrive(mortal, number, "payload", "key")

    assert stays(moved) == {letter: "key"}
    assert payloads(dead(mortal)) == ["old"]
    assert payloads(mortal.claim(10)) == ["new"]


def test_the_key_that_a_repair_gives_is_the_one_that_counts(mortal: Engine) -> None:
    freed, caught = killed(mortal, 1, key="k"), killed(mortal, 2, key="free")
    mortal.send("new", key="k")

    moved = redrive(mortal, stage(mortal, {freed: {"key": "other"}, caught: {"key": "k"}}), "key")

    assert stays(moved) == {freed: None, caught: "key"}


def test_of_several_with_one_key_the_first_goes(mortal: Engine) -> None:
    first, second = killed(mortal, 1), killed(mortal, 2)

    moved = redrive(mortal, stage(mortal, {second: {"key": "k"}, first: {"key": "k"}}), "key")

    assert stays(moved) == {first: None, second: "key"}


def test_an_idempotency_key_that_is_taken_is_not_given_back(mortal: Engine) -> None:
    letter = killed(mortal, 1, idempotency_key="i")
    mortal.send(9, idempotency_key="i")

    number = stage(mortal, {letter: {"payload": Jsonb(2), "idempotency_key": "i"}})
    redrive(mortal, number, "payload", "idempotency_key")

    keys = mortal.look("select jsonb_object_agg(payload::text, idempotency_key) from holdfast.message")
    assert keys == {"9": "i", "2": None}


def test_they_go_in_the_order_of_their_ids_chunk_by_chunk(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, ordering="key")
    letters = [killed(engine, n, ordering_key="line") for n in range(5)]
    backwards = reversed(list(enumerate(letters)))
    number = stage(engine, {letter: {"payload": Jsonb(n + 10)} for n, letter in backwards})

    first = redrive(engine, number, "payload", limit=2)
    rest = redrive(engine, number, "payload", limit=10, after=letters[1])

    assert (ids(first), ids(rest)) == (letters[:2], letters[2:])
    found = []
    while rows := engine.claim(1):
        found += payloads(rows)
        engine.settle("ack", rows[0]["token"])
    assert found == [10, 11, 12, 13, 14]


def test_a_strict_target_takes_them_in_one_line(engine: Engine) -> None:
    engine.create("q", max_deliveries=1, ordering="key")
    engine.create("line", ordering="strict")
    letters = [killed(engine, n, ordering_key=f"k{n}", priority=9 - n) for n in range(3)]
    rows = {letter: {"payload": Jsonb(n), "priority": 9 - n} for n, letter in enumerate(letters)}
    number = stage(engine, rows)
    passed = check(engine, number, "payload", "priority", target="line")

    redrive(engine, number, "payload", "priority", target="line")

    assert passed == []
    found = []
    while claimed := engine.claim(10, queue="line"):
        found += payloads(claimed)
        engine.settle("ack", claimed[0]["token"], queue="line")
    assert found == [0, 1, 2]


def test_the_grave_counts_what_was_moved_and_the_target_holds_it(mortal: Engine) -> None:
    mortal.create("other", max_depth=1)
    letters = [killed(mortal, n) for n in range(3)]

    redrive(mortal, stage(mortal, {letter: {} for letter in letters}), target="other")

    assert mortal.stats("q.dlq")["counters"]["moved"] == 3
    assert len(mortal.claim(10, queue="other")) == 3


def test_dead_letters_in_a_log_leave_tombstones(engine: Engine) -> None:
    engine.create("graves", kind="log")
    engine.create("q", max_deliveries=1, dead_letter="graves")
    letter = killed(engine, 1)

    redrive(engine, stage(engine, {letter: {"payload": Jsonb(2)}}), "payload")

    assert [row["kind"] for row in engine.rows("read", queue="graves")] == ["deleted"]
    assert payloads(engine.claim(10)) == [2]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("QH201", {"payload": Jsonb("x" * 1_100_000)}),
    ("QH202", {"headers": Jsonb({"x": "y" * 70_000})}),
    ("QH203", {"payload": Jsonb(2), "body": b"1"}),
    ("QH203", {"payload": None}),
    ("QH203", {"headers": Jsonb([])}),
    ("QH203", {"correlation_id": "no uuid"}),
    ("QH204", {"priority": 11}),
    ("QH207", {"tag": "x" * 201}),
    ("QH210", {"max_deliveries": 1001}),
    ("QH220", {"key": ""}),
    ("QH220", {"key": "a", "idempotency_key": "b"}),
    ("QH221", {"ordering_key": "a"}),
]


@pytest.mark.parametrize(("code", "row"), BAD, ids=[f"{code}-{n}" for n, (code, _) in enumerate(BAD)])
def test_changes_that_a_send_refuses_are_taken_out_and_named(
    mortal: Engine, code: str, row: dict[str, Any]
) -> None:
    good, bad = killed(mortal, 1), killed(mortal, 2)
    same = {"payload": Jsonb(1)} if "payload" in row else {}
    number = stage(mortal, {good: same, bad: row})

    with pytest.raises(psycopg.Error) as unchecked, mortal.conn.transaction():
        redrive(mortal, number, *row)
    refused = check(mortal, number, *row)
    moved = redrive(mortal, number, *row)

    assert unchecked.value.sqlstate == code
    assert refused == [(bad, code)]
    assert stays(moved) == {good: None}
    assert payloads(dead(mortal)) == [2]


def test_what_a_row_leaves_alone_passes_whatever_a_send_would_say(mortal: Engine) -> None:
    large = killed(mortal, "x" * 1000, priority=3)
    mortal.value("configure_queue", queue="q", config={"max_payload": 100})
    number = stage(mortal, {large: {"payload": Jsonb("x" * 1000), "tag": "t", "priority": 3}})

    assert check(mortal, number, "payload", "tag", "priority") == []
    assert stays(redrive(mortal, number, "payload", "tag", "priority")) == {large: None}


def test_a_message_that_never_had_a_payload_needs_none(mortal: Engine) -> None:
    mortal.value("send", queue="q", tag="tick")
    letter = mortal.kill(mortal.look("select max(id) from holdfast.message"))
    number = stage(mortal, {letter: {"tag": "tock"}})

    assert check(mortal, number, "payload", "tag") == []
    redrive(mortal, number, "payload", "tag")

    assert mortal.claim_one()["tag"] == "tock"


def test_a_check_is_by_the_rules_of_the_target(mortal: Engine) -> None:
    mortal.create("small", max_payload=1024)
    letter = killed(mortal, 1)
    number = stage(mortal, {letter: {"payload": Jsonb("x" * 2000)}})

    assert check(mortal, number, "payload", target="small", after=letter) == []
    assert check(mortal, number, "payload") == []
    assert check(mortal, number, "payload", target="small") == [(letter, "QH201")]


def test_stages_are_gathered_into_the_first(mortal: Engine) -> None:
    letters = [killed(mortal, n) for n in range(4)]
    even, odd = (stage(mortal, {letter: {} for letter in letters[n::2]}) for n in range(2))

    gathered = mortal.value("gather_staged", stages=[odd, even], messages=4)

    assert gathered == odd
    assert ids(redrive(mortal, odd)) == letters


def test_a_dead_letter_that_is_staged_twice_is_refused(mortal: Engine) -> None:
    letter = killed(mortal, 1)
    stages = [stage(mortal, {letter: {"tag": tag}}) for tag in ("a", "b")]

    with pytest.raises(psycopg.Error) as refused:
        mortal.value("gather_staged", stages=stages, messages=2)

    assert refused.value.sqlstate == "QH232"
    assert payloads(dead(mortal)) == [1]


def test_a_stage_in_use_is_kept_and_one_that_is_gone_is_noticed(mortal: Engine) -> None:
    first, second = killed(mortal, 1), killed(mortal, 2)
    number = stage(mortal, {first: {}, second: {}})
    mortal.at(T0 + 23 * HOUR)
    redrive(mortal, number, limit=1)
    mortal.at(T0 + 46 * HOUR)
    mortal.value("maintain")
    late = redrive(mortal, number, after=first)
    mortal.at(T0 + 72 * HOUR)
    mortal.value("maintain")

    with pytest.raises(psycopg.Error) as refused:
        redrive(mortal, number)

    assert stays(late) == {second: None}
    assert refused.value.sqlstate == "QH231"


def test_a_queue_without_dead_letters_has_none_to_repair(mortal: Engine) -> None:
    assert stays(redrive(mortal, stage(mortal, {7: {}}))) == {7: "gone"}


def test_a_row_of_a_message_that_is_not_dead_is_gone_whatever_it_says(mortal: Engine) -> None:
    letter, living = killed(mortal, 1), mortal.send(2)
    number = stage(mortal, {letter: {"priority": 1}, living: {"priority": 99}})

    assert check(mortal, number, "priority") == []
    assert stays(redrive(mortal, number, "priority")) == {letter: None, living: "gone"}
