"""What a log keeps: retention by age and count, deletion, figures.

1. maintain() removes records older than retention.age, and all but the newest retention.count numbers, in
   bounded chunks; without a retention nothing goes.
2. A reader behind what was removed gets one row of kind gap that says which numbers; others get none.
3. What retention removed costs one number, however much it was.
4. log_delete removes records by number, by tag, or all before one; readers see ranges of kind deleted.
5. Tombstones are merged wherever no record is left between them, also over numbers that were never used,
   and go when retention has passed them.
6. log_stats knows the first and last number, counts exactly up to 10,000, and shows what was trimmed.
7. After a crash or a restart all of this holds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, Row, payloads
from tests.engine.test_log import append, ranges, read, refused

HOUR = timedelta(hours=1)
STONES = "select coalesce(jsonb_agg(array[lo, hi] order by lo), '[]') from holdfast.tombstone"


@pytest.fixture
def log(engine: Engine) -> Engine:
    """The engine, with a log `log`."""
    engine.create("log", kind="log")
    return engine


def retain(engine: Engine, **retention: Any) -> None:
    engine.value("configure_queue", queue="log", config={"retention": retention})


def maintain(engine: Engine) -> Row:
    return dict(engine.value("maintain"))


def delete(engine: Engine, **what: Any) -> int:
    return int(engine.value("log_delete", queue="log", **what))


def never(engine: Engine, count: int = 1) -> None:
    """Use up numbers that no record will have."""
    with engine.conn.transaction(force_rollback=True):
        append(engine, *["never"] * count)


def test_records_older_than_the_age_go(log: Engine) -> None:
    retain(log, age="2 hours")
    append(log, 1, 2)
    log.at(T0 + HOUR)
    append(log, 3)
    log.at(T0 + 2 * HOUR)
    append(log, 4)

    assert maintain(log)["trimmed"] == 2
    assert ranges(read(log)) == [("gap", 1, 2), ("record", 3, 3), ("record", 4, 4)]


def test_the_newest_numbers_stay(log: Engine) -> None:
    retain(log, count=3)
    append(log, *range(1, 11))

    assert maintain(log)["trimmed"] == 7
    assert payloads(read(log, 7)) == [8, 9, 10]


def test_whatever_is_over_either_limit_goes(log: Engine) -> None:
    retain(log, count=8, age="1 hour")
    append(log, *range(5))
    log.at(T0 + HOUR)
    append(log, *range(5))
    by_count_and_age = maintain(log)["trimmed"]
    log.at(T0 + 3 * HOUR)

    assert (by_count_and_age, maintain(log)["trimmed"]) == (5, 5)
    assert ranges(read(log)) == [("gap", 1, 10)]


def test_without_a_retention_nothing_goes(log: Engine) -> None:
    append(log, 1)
    log.at(T0 + timedelta(days=10_000))

    assert maintain(log)["trimmed"] == 0
    assert payloads(read(log)) == [1]


def test_a_retention_can_be_taken_back(log: Engine) -> None:
    retain(log, count=1)
    log.value("configure_queue", queue="log", config={"retention": None})
    append(log, 1, 2, 3)
    maintain(log)

    assert payloads(read(log)) == [1, 2, 3]


def test_only_a_reader_behind_the_retention_is_told(log: Engine) -> None:
    retain(log, count=2)
    append(log, *range(1, 7))
    maintain(log)

    assert ranges(read(log, 1, 2)) == [("gap", 2, 4), ("record", 5, 5)]
    assert ranges(read(log, 3, 1)) == [("gap", 4, 4)]
    assert ranges(read(log, 4)) == [("record", 5, 5), ("record", 6, 6)]
    assert read(log, 6) == []


def test_retention_works_in_chunks_and_says_when_there_is_more(log: Engine) -> None:
    retain(log, count=1)
    log.value("send_batch", queue="log", payloads=[Jsonb(1)] * 12_001)

    first, second = maintain(log), maintain(log)

    assert (first["trimmed"], first["done"]) == (10_000, False)
    assert (second["trimmed"], second["done"]) == (2_000, True)
    assert log.look("select count(*) from holdfast.log") == 1
    assert log.look(STONES) == []


def test_records_are_deleted_by_number(log: Engine) -> None:
    append(log, *range(1, 6))

    assert delete(log, seqs=[2, 3, 77]) == 2
    assert delete(log, seqs=[2]) == 0
    assert ranges(read(log)) == [
        ("record", 1, 1),
        ("deleted", 2, 3),
        ("record", 4, 4),
        ("record", 5, 5),
    ]


def test_records_are_deleted_by_tag(log: Engine) -> None:
    append(log, 1, 2, tag="a")
    append(log, 3, tag="b")
    append(log, 4)
    append(log, 5, tag="a")

    assert delete(log, tag="a", limit=2) == 2
    assert delete(log, tag="a") == 1
    assert ranges(read(log)) == [("deleted", 1, 2), ("record", 3, 3), ("record", 4, 4), ("deleted", 5, 5)]


def test_tags_of_other_logs_and_queues_stay(log: Engine) -> None:
    log.create("q")
    log.send(1, queue="q", tag="a")
    append(log, 1, tag="a")

    assert delete(log, tag="a") == 1
    assert log.look("select count(*) from holdfast.message") == 1


def test_all_before_a_number_is_deleted_and_a_tag_narrows_it(log: Engine) -> None:
    for n in range(1, 9):
        append(log, n, tag="even" if n % 2 == 0 else "odd")

    assert delete(log, before=7, tag="even") == 3
    assert delete(log, before=4) == 2
    assert ranges(read(log)) == [
        ("deleted", 1, 4),
        ("record", 5, 5),
        ("deleted", 6, 6),
        ("record", 7, 7),
        ("record", 8, 8),
    ]


@pytest.mark.parametrize("tag", [None, "a"])
@pytest.mark.parametrize("before", [2**40, 2**63 - 1])
def test_a_number_that_is_far_off_is_behind_all_records(log: Engine, before: int, tag: str | None) -> None:
    append(log, 1, tag="a")
    append(log, 2, tag="a")

    assert delete(log, before=-(2**63), tag=tag) == 0
    assert delete(log, before=before, tag=tag) == 2


def test_tombstones_are_merged_whatever_the_order_of_deletion(log: Engine) -> None:
    append(log, *range(1, 11))
    for seqs in ([2], [4], [8], [3], [9, 7], [1], [5, 6], [10]):
        delete(log, seqs=seqs)

    assert log.look(STONES) == [[1, 10]]
    assert ranges(read(log)) == [("deleted", 1, 10)]
    assert ranges(read(log, 5)) == [("deleted", 6, 10)]


def test_tombstones_are_merged_over_numbers_that_nobody_used(log: Engine) -> None:
    for n in range(5):
        append(log, n)
        never(log, 2)
    append(log, 5)

    delete(log, seqs=[4, 10])
    apart = log.look(STONES)
    delete(log, seqs=[7])

    assert (apart, log.look(STONES)) == ([[4, 4], [10, 10]], [[4, 10]])


def test_a_page_ends_within_tombstones_as_anywhere(log: Engine) -> None:
    append(log, *range(1, 8))
    delete(log, seqs=[2, 4, 6])
    seen, after = [], 0
    while page := read(log, after, 2):
        seen += ranges(page)
        after = page[-1]["seq"]

    assert [(lo, hi) for _, lo, hi in seen] == [(n, n) for n in range(1, 8)]
    assert [kind for kind, _, _ in seen] == ["record", "deleted"] * 3 + ["record"]


def test_tombstones_go_with_the_retention(log: Engine) -> None:
    append(log, *range(1, 11))
    delete(log, seqs=[2, 3, 8])
    retain(log, count=5)
    maintain(log)

    assert log.look(STONES) == [[8, 8]]
    assert ranges(read(log))[:3] == [("gap", 1, 5), ("record", 6, 6), ("record", 7, 7)]


def test_a_tombstone_that_retention_has_half_passed_is_shown_from_there_on(log: Engine) -> None:
    append(log, *range(1, 11))
    delete(log, seqs=[1, 3, 4, 5, 6, 7])
    log.conn.execute("delete from holdfast.message where id % 1024 < 3")
    log.conn.execute("update holdfast.log set trimmed = 4")

    assert ranges(read(log))[:3] == [("gap", 1, 4), ("deleted", 5, 7), ("record", 8, 8)]


@pytest.mark.parametrize(
    "what",
    [
        {},
        {"seqs": [1], "tag": "a"},
        {"seqs": [1], "before": 3},
        {"seqs": list(range(10_001))},
    ],
    ids=["nothing", "seqs and tag", "seqs and before", "too many"],
)
def test_an_unclear_deletion_is_refused(log: Engine, what: dict[str, Any]) -> None:
    append(log, 1)

    assert refused(log, "log_delete", queue="log", **what) == "QH605"
    assert payloads(read(log)) == [1]


def test_a_deletion_that_is_rolled_back_leaves_no_trace(log: Engine) -> None:
    append(log, 1, 2, 3)
    with log.conn.transaction(force_rollback=True):
        delete(log, seqs=[2])

    assert payloads(read(log)) == [1, 2, 3]


def test_the_figures_of_an_empty_log(log: Engine) -> None:
    assert log.row("log_stats", queue="log") == {
        "first_seq": None,
        "last_seq": 0,
        "records": 0,
        "trimmed": 0,
        "oldest_age": None,
        "exact": True,
    }


def test_the_figures_of_a_log_with_gaps(log: Engine) -> None:
    append(log, *range(1, 11))
    never(log, 3)
    append(log, 14)
    delete(log, seqs=[4, 5, 9])
    retain(log, count=11)
    maintain(log)
    log.at(T0 + HOUR)

    assert log.row("log_stats", queue="log") == {
        "first_seq": 6,
        "last_seq": 14,
        "records": 5,
        "trimmed": 3,
        "oldest_age": HOUR,
        "exact": True,
    }


def test_many_records_are_estimated(log: Engine) -> None:
    log.value("send_batch", queue="log", payloads=[Jsonb(1)] * 10_500)
    delete(log, seqs=list(range(5, 105)))

    figures = log.row("log_stats", queue="log")

    assert (figures["records"], figures["last_seq"], figures["exact"]) == (10_400, 10_500, False)


def test_a_crash_changes_nothing_for_readers(log: Engine) -> None:
    append(log, *range(1, 5))
    never(log)
    append(log, 6)
    delete(log, seqs=[3])
    log.at(T0 + HOUR)
    before = read(log)
    log.conn.execute("truncate holdfast.boot")
    log.conn.execute(
        "select setval(c.oid::regclass, 0) from pg_class c where relnamespace = 'holdfast'::regnamespace"
        " and relkind = 'S' and relpersistence = 'u'"
    )

    assert read(log) == before
    assert read(log) == before
    append(log, 7)
    assert payloads(read(log, 5)) == [6, 7]


def test_after_a_restore_new_numbers_are_above_those_that_are_there(log: Engine) -> None:
    append(log, 1, 2, 3)
    log.conn.execute("truncate holdfast.boot; select setval('holdfast.booted_1', 0)")
    log.conn.execute("select setval('holdfast.ids_1', (1::bigint << 40) + 1)")
    log.value("maintain")

    assert append(log, 4) == [4]
    assert payloads(read(log)) == [1, 2, 3, 4]


def test_a_reader_without_the_right_may_not_delete(log: Engine) -> None:
    log.conn.execute("set role holdfast_consumer")
    try:
        assert read(log) == []
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            delete(log, seqs=[1])
    finally:
        log.conn.execute("reset role")
