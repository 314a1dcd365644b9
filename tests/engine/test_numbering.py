"""Sequence numbers, for queues as for logs.

1. They count from 1 in a log and in a queue, and from 1 again in one that is made again.
2. extent says from where to where: what has ended at the end is counted, what may still come is not.
3. Messages of other lanes have numbers of their own.
4. A reader goes on past what has ended, up to the next message, never past one that may still come.
5. find_tagged finds by tag, by prefix, and before a number.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import Engine


def extent(engine: Engine, queue: str = "q") -> tuple[int | None, int]:
    row = engine.row("extent", queue=queue)
    return row["first_seq"], row["last_seq"]


def seqs(engine: Engine, queue: str, ids: list[int]) -> list[int]:
    base: int = engine.value("base_id", queue=queue)
    return [id - base for id in ids]


@pytest.mark.parametrize("kind", ["queue", "log"])
def test_numbers_count_from_one_also_when_the_queue_is_made_again(engine: Engine, kind: str) -> None:
    for _ in range(2):
        engine.create("q", kind=kind)
        ids = [engine.value("send", queue="q", payload={"n": n}) for n in range(3)]

        assert seqs(engine, "q", ids) == [1, 2, 3]
        assert engine.row("extent", queue="q") == {
            "kind": kind,
            "base": ids[0] - 1,
            "first_seq": 1,
            "last_seq": 3,
            "place": None,
        }
        engine.value("drop_queue", queue="q")


@pytest.mark.parametrize("kind", ["queue", "log"])
def test_an_empty_one_has_no_first_number(engine: Engine, kind: str) -> None:
    engine.create("q", kind=kind)

    assert extent(engine) == (None, 0)


def test_what_has_ended_is_passed_at_both_ends(queue: Engine) -> None:
    ids = [queue.value("send", queue="q", payload={"n": n}) for n in range(4)]

    queue.value("discard", queue="q", ids=[ids[0], ids[3]])

    assert extent(queue) == (2, 4)


def test_what_may_still_come_is_not_passed(queue: Engine, open_engine: Open) -> None:
    other = open_engine()
    queue.value("send", queue="q", payload={"n": 1})
    with other.conn.transaction():
        other.value("send", queue="q", payload={"n": 2})
        queue.value("send", queue="q", payload={"n": 3})

        assert extent(queue) == (1, 1)

    assert extent(queue) == (1, 3)


def place(engine: Engine, after: int) -> int:
    found: int = engine.row("extent", queue="q", after=after)["place"]
    return found


@pytest.mark.parametrize("kind", ["queue", "log"])
def test_a_reader_goes_on_up_to_the_next_message_or_the_end(engine: Engine, kind: str) -> None:
    engine.create("q", kind=kind)
    ids = [engine.value("send", queue="q", payload={"n": n}) for n in range(6)]
    gone = [ids[1], ids[2], ids[5]]
    if kind == "queue":
        engine.value("discard", queue="q", ids=gone)
    else:
        engine.value("log_delete", queue="q", seqs=[2, 3, 6])

    assert [place(engine, after) for after in range(7)] == [0, 3, 3, 3, 4, 6, 6]


def test_a_reader_stays_before_what_may_still_come(queue: Engine, open_engine: Open) -> None:
    other = open_engine()
    ids = [queue.value("send", queue="q", payload={"n": n}) for n in range(2)]
    queue.value("discard", queue="q", ids=ids[1:])
    with other.conn.transaction():
        other.value("send", queue="q", payload={"n": 3})
        queue.value("send", queue="q", payload={"n": 4})

        assert place(queue, 1) == 1

    assert place(queue, 1) == 2


@pytest.mark.parametrize("kind", ["queue", "log"])
def test_a_reader_of_another_queue_of_this_name_begins_anew(
    engine: Engine, open_engine: Open, kind: str
) -> None:
    engine.create("q", kind=kind)
    other = open_engine()
    with other.conn.transaction():
        other.value("send", queue="q", payload={"n": 1})
        engine.value("send", queue="q", payload={"n": 2})

        assert (place(engine, 2), place(engine, 3)) == (2, 0)


def test_what_retention_has_removed_is_for_read_to_tell(engine: Engine) -> None:
    engine.create("q", kind="log", retention={"count": 1})
    for n in range(3):
        engine.value("send", queue="q", payload={"n": n})
    engine.value("maintain")

    assert [place(engine, after) for after in range(4)] == [0, 1, 2, 3]


def test_a_place_that_cannot_be_is_refused(queue: Engine) -> None:
    with pytest.raises(psycopg.Error) as caught:
        place(queue, -1)

    assert caught.value.sqlstate == "QH605"


def test_messages_of_another_lane_have_numbers_of_their_own(queue: Engine) -> None:
    low = queue.value("send", queue="q", payload={"n": 1})
    high = queue.value("send", queue="q", payload={"n": 2}, priority=5)

    numbers = seqs(queue, "q", [low, high])

    assert numbers[0] == 1
    assert numbers[1] > 1 << 40
    assert extent(queue) == (1, numbers[1])


@pytest.fixture(params=["queue", "log"])
def tagged(engine: Engine, request: pytest.FixtureRequest) -> Engine:
    engine.create("q", kind=request.param)
    for tag in ("chat-1:a", "chat-1:b", "chat-2:a", None, "chat-1:a"):
        engine.value("send", queue="q", payload={}, tag=tag)
    return engine


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tag": "chat-1:a"}, [1, 5]),
        ({"tag": "chat-1:a", "before": 5}, [1]),
        ({"prefix": "chat-1:"}, [1, 2, 5]),
        ({"prefix": "chat-1:", "before": 2}, [1]),
        ({"prefix": "chat-%"}, []),
        ({"prefix": ""}, [1, 2, 3, 5]),
        ({"before": 3}, [1, 2]),
        ({"before": 0}, []),
        ({"before": 1 << 60}, [1, 2, 3, 4, 5]),
        ({"before": 6, "limit": 2}, [1, 2]),
    ],
)
def test_messages_are_found_by_tag_by_prefix_and_before_a_number(
    tagged: Engine, given: dict[str, Any], expected: list[int]
) -> None:
    assert seqs(tagged, "q", tagged.value("find_tagged", queue="q", **given)) == expected


@pytest.mark.parametrize("verb", ["base_id", "extent", "find_tagged"])
def test_a_queue_that_is_not_there_is_an_error(engine: Engine, verb: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        engine.rows(verb, queue="nowhere")

    assert caught.value.sqlstate == "QH101"


def test_extent_refuses_an_old_snapshot(queue: Engine) -> None:
    queue.conn.execute("set default_transaction_isolation to 'repeatable read'")

    with pytest.raises(psycopg.Error) as caught:
        queue.rows("extent", queue="q")

    assert caught.value.sqlstate == "QH303"
