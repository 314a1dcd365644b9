"""What readers that keep a place build on.

1. claims finds a consumer's open claims by its name, and nobody else's: tokens, counts, range of ids.
2. read_archive shows what ended in the order of its end, page by page, each once.
3. Nothing that ends at the moment of the look is shown: another may end at the same time.
4. A large claim is extended and shown as quickly as it is made.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from tests.engine.engine import T0, Engine, ids

SECOND = timedelta(seconds=1)


def test_claims_lists_the_open_claims_of_a_consumer(engine: Engine) -> None:
    engine.create()
    sent = engine.send_numbers(7)
    first = engine.claim(3, consumer="spark 1")[0]["token"]
    second = engine.claim(2, consumer="spark 1")[0]["token"]
    engine.claim(2, consumer="spark 2")
    engine.settle("ack", first, [sent[0]])

    found = engine.rows("claims", queue="q", consumer="spark 1")

    assert [(row["token"], row["messages"], row["first_id"], row["last_id"]) for row in found] == [
        (first, 2, sent[1], sent[2]),
        (second, 2, sent[3], sent[4]),
    ]


def test_claims_is_empty_once_all_is_settled(engine: Engine) -> None:
    engine.create()
    engine.send_numbers(2)
    token = engine.claim(2, consumer="spark")[0]["token"]
    engine.settle("ack", token)

    assert engine.rows("claims", queue="q", consumer="spark") == []


def test_read_archive_pages_in_the_order_of_the_end(engine: Engine) -> None:
    engine.create(keep=["done"])
    sent = engine.send_numbers(5)
    token = engine.claim(5)[0]["token"]
    for n, id in enumerate([sent[4], sent[0], sent[2]]):
        engine.at(T0 + (n + 1) * SECOND)
        engine.settle("ack", token, [id])
    engine.settle("ack", token, [sent[1], sent[3]])
    engine.at(T0 + 10 * SECOND)

    first = engine.rows("read_archive", queue="q", limit=3)
    second = engine.rows(
        "read_archive", queue="q", **{"from": first[-1]["ended_at"]}, after=first[-1]["id"], limit=3
    )

    assert ids(first) == [sent[4], sent[0], sent[1]]
    assert ids(second) == [sent[2], sent[3]]


def test_read_archive_leaves_out_what_ends_at_this_moment(engine: Engine) -> None:
    engine.create(keep=["done"])
    engine.send(1)
    engine.settle("ack", engine.claim_one()["token"])

    assert engine.rows("read_archive", queue="q") == []


def cpu_of(engine: Engine) -> int:
    """Nanoseconds that the engine's backend has run."""
    pid = engine.look("select pg_backend_pid()")
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0])


def cost_of(engine: Engine, messages: int) -> int:
    """What it takes to extend a claim of so many messages, and to show them."""
    engine.value("send_batch", queue="q", payloads=["1"] * messages)
    token = engine.claim(messages)[0]["token"]
    before = cpu_of(engine)
    extended, _ = engine.settle("extend", token)
    held = engine.rows("held", queue="q", token=token)
    assert (len(extended), len(held)) == (messages, messages)
    return cpu_of(engine) - before


def test_extending_and_showing_a_claim_costs_no_more_than_its_size(engine: Engine) -> None:
    engine.create()
    cost_of(engine, 1_000)

    assert cost_of(engine, 10_000) < 40 * cost_of(engine, 1_000)
