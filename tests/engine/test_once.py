"""send_once: a batch under a key, which counts for a time.

1. The same batch under the same key is sent once within the window, and the answer is the same.
2. It counts whatever has become of the messages, in queues and in logs, and for its queue alone.
3. When the window is over, the batch is sent again; maintain() removes what is over.
4. Other messages under the key are refused; what was refused leaves the key free.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine

BATCH = [{"payload": {"n": 1}}, {"payload": {"n": 2}, "tag": "second"}]


def once(engine: Engine, queue: str = "q", key: str = "k", **options: Any) -> dict[str, Any]:
    messages = psycopg.types.json.Jsonb(options.pop("messages", BATCH))
    return engine.row("send_once", queue=queue, messages=messages, idempotency_key=key, **options)


def test_the_same_batch_within_the_window_is_sent_once(queue: Engine) -> None:
    first = once(queue)

    again = once(queue)

    assert (first["deduped"], again["deduped"]) == (False, True)
    assert first["ids"] == again["ids"]
    assert queue.row("queue_stats", queue="q")["ready"] == 2


def test_it_counts_when_the_messages_have_ended(queue: Engine) -> None:
    first = once(queue)
    (token,) = {row["token"] for row in queue.rows("claim", queue="q", max=10)}
    queue.row("ack", queue="q", token=token)

    assert once(queue) == {"ids": first["ids"], "deduped": True}
    assert queue.row("queue_stats", queue="q")["depth"] == 0


def test_a_log_takes_it_too(engine: Engine) -> None:
    engine.create("log", kind="log")

    first, again = once(engine, "log"), once(engine, "log")

    assert (again["deduped"], again["ids"]) == (True, first["ids"])
    assert [row["seq"] for row in engine.rows("read", queue="log")] == [1, 2]


def test_a_key_belongs_to_its_queue(queue: Engine) -> None:
    queue.create("other")

    assert [once(queue)["deduped"], once(queue, "other")["deduped"]] == [False, False]


def test_after_the_window_it_is_sent_again(queue: Engine) -> None:
    first = once(queue, window=timedelta(seconds=5))

    queue.at(T0 + timedelta(seconds=5))

    again = once(queue, window=timedelta(seconds=5))
    assert again["deduped"] is False
    assert set(again["ids"]).isdisjoint(first["ids"])


def test_maintain_removes_what_is_over(queue: Engine) -> None:
    once(queue, key="short", window=timedelta(seconds=5))
    once(queue, key="long", window=timedelta(days=7))
    queue.at(T0 + timedelta(minutes=1))

    queue.value("maintain")

    assert queue.conn.execute("select key from holdfast.receipt").fetchall() == [("long",)]


def test_other_messages_under_the_key_are_refused(queue: Engine) -> None:
    once(queue)

    with pytest.raises(psycopg.Error) as caught:
        once(queue, messages=[{"payload": 5}])

    assert caught.value.sqlstate == "QH222"
    assert queue.row("queue_stats", queue="q")["ready"] == 2


def test_a_refused_batch_leaves_its_key_free(queue: Engine) -> None:
    with pytest.raises(psycopg.Error):
        once(queue, messages=[{"payload": 1}, {"colour": "red"}])

    assert once(queue)["deduped"] is False


@pytest.mark.parametrize(
    "given",
    [{"key": None}, {"key": ""}, {"window": timedelta(0)}, {"window": timedelta(days=8)}, {"window": None}],
)
def test_a_bad_key_or_window_is_refused(queue: Engine, given: dict[str, Any]) -> None:
    with pytest.raises(psycopg.Error) as caught:
        once(queue, **given)

    assert caught.value.sqlstate == "QH220"


def test_who_sends_under_a_key_in_use_waits_and_finds_what_was_sent(queue: Engine, open_engine: Open) -> None:
    other = open_engine()
    with queue.conn.transaction():
        first = once(queue)
        other.conn.execute("set lock_timeout = '50 ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            once(other)

    assert once(other) == {"ids": first["ids"], "deduped": True}


def test_dropping_the_queue_forgets_its_keys(queue: Engine) -> None:
    once(queue)
    queue.value("drop_queue", queue="q")
    queue.create("q")

    assert once(queue)["deduped"] is False
