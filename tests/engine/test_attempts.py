"""The log of attempts, what dispatchers report, and the health of endpoints.

1. A report writes the log, settles the messages that come with their token, and says which counted.
2. 410 disables an endpoint, if that is what it says.
3. The attempts of a message are found wherever it has moved.
4. Health is of the last attempts, and of what waits.
5. Rows go when their time is over, a bounded number at a time.
6. What is no attempt is refused, and nothing is changed.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, Row

MINUTE = timedelta(minutes=1)


def shop_of(engine: Engine, **config: Any) -> Engine:
    assert engine.value("create_endpoint", endpoint="shop", config={"url": "https://example.com"} | config)
    return engine


@pytest.fixture
def shop(engine: Engine) -> Engine:
    """An endpoint `shop` with its queue."""
    return shop_of(engine)


@pytest.fixture(scope="module")
def shared(refusing: Engine) -> Engine:
    """The same, for calls that change nothing."""
    return shop_of(refusing)


def report(engine: Engine, *attempts: Row) -> Row:
    return engine.row("record_attempts", endpoint="shop", attempts=Jsonb(list(attempts)))


def tried(row: Row, outcome: str, **fields: Any) -> Row:
    return {
        "message": str(row["id"]),
        "token": str(row["token"]),
        "delivery": row["deliveries"],
        "outcome": outcome,
    } | fields


def log(engine: Engine) -> list[tuple[Any, ...]]:
    return [
        (row["id"], row["outcome"], row["status"])
        for row in engine.rows("endpoint_attempts", endpoint="shop")
    ]


def test_a_report_settles_the_messages_of_a_claim(shop: Engine) -> None:
    sent = shop.send_numbers(5, queue="shop")
    held = shop.claim(5, queue="shop")

    told = report(
        shop,
        tried(held[0], "done", status=204, latency=0.25),
        tried(held[1], "retry", status=503, error="503 Service Unavailable", delay=60),
        tried(held[2], "dead", status=404, response="no such thing"),
        tried(held[3], "done", status=200),
    )

    assert (sorted(told["settled"]), told["skipped"], told["state"], told["enabled"]) == (
        sent[:4],
        [],
        "closed",
        True,
    )
    stats = shop.stats("shop")
    assert (stats["in_flight"], stats["scheduled"], stats["dead"], stats["counters"]["done"]) == (1, 1, 1, 2)
    again = shop.row("message", queue="shop", id=sent[1])
    assert (again["last_error"], again["due_at"], again["deliveries"]) == (
        "503 Service Unavailable",
        T0 + MINUTE,
        1,
    )
    (letter,) = shop.rows("browse", queue="shop", state="dead")
    assert (letter["last_error"], letter["origin"]["id"], letter["origin"]["deliveries"]) == (
        "404",
        sent[2],
        1,
    )
    assert sorted(log(shop)) == [
        (sent[0], "done", 204),
        (sent[1], "retry", 503),
        (sent[2], "dead", 404),
        (sent[3], "done", 200),
    ]


def test_a_whole_claim_that_was_delivered_is_acked(shop: Engine) -> None:
    sent = shop.send_numbers(3, queue="shop")
    held = shop.claim(3, queue="shop")

    told = report(shop, *(tried(row, "done") for row in reversed(held)))

    assert sorted(told["settled"]) == sent
    assert shop.look("select count(*) from holdfast.message") == 0


def test_a_message_whose_lease_is_lost_is_skipped(shop: Engine) -> None:
    shop.send(1, queue="shop")
    held = shop.claim_one(queue="shop")
    shop.settle("ack", held["token"], queue="shop")

    for outcome in ("done", "retry", "dead"):
        assert report(shop, tried(held, outcome))["skipped"] == [held["id"]]
    assert sorted(row[1] for row in log(shop)) == ["dead", "done", "retry"]


def test_the_last_attempt_buries(engine: Engine) -> None:
    shop_of(engine, retry={"max_attempts": 1})
    engine.send(1, queue="shop")

    report(engine, tried(engine.claim_one(queue="shop"), "retry", delay=5, error="timed out"))

    (letter,) = engine.rows("browse", queue="shop", state="dead")
    assert letter["last_error"] == "timed out"


def test_gone_disables_the_endpoint_and_the_others_wait(shop: Engine) -> None:
    shop.send_numbers(2, queue="shop")

    told = report(shop, tried(shop.claim_one(queue="shop"), "gone", status=410))

    info = shop.row("endpoint_info", endpoint="shop")
    assert (told["enabled"], told["version"], info["enabled"]) == (False, 2, False)
    assert info["disabled_reason"].startswith("410 Gone")
    assert (shop.stats("shop")["dead"], shop.stats("shop")["ready"]) == (1, 1)
    assert [row["event"] for row in shop.rows("endpoint_events", endpoint="shop")] == ["disabled"]


def test_gone_leaves_an_endpoint_that_says_so(engine: Engine) -> None:
    shop_of(engine, disable_on_gone=False)
    engine.send(1, queue="shop")

    told = report(engine, tried(engine.claim_one(queue="shop"), "gone", status=410))

    assert told["enabled"]
    assert engine.stats("shop")["dead"] == 1


def test_attempts_are_found_wherever_the_message_has_moved(shop: Engine) -> None:
    first = shop.send(1, queue="shop")
    report(shop, tried(shop.claim_one(queue="shop"), "dead", at="2030-01-01T00:00:00Z"))
    (letter,) = shop.rows("browse", queue="shop", state="dead")
    as_letter = [shop.rows("attempts", queue=queue, id=letter["id"]) for queue in ("shop", "shop.dlq")]
    shop.rows("redrive", queue="shop")
    back = shop.claim_one(queue="shop")
    report(shop, tried(back, "done", root=back["origin"]["root_id"], at="2030-01-01T00:00:01Z"))

    seen = shop.rows("attempts", queue="shop", id=first)

    assert [len(rows) for rows in as_letter] == [1, 1]
    assert [(row["id"], row["root_id"], row["outcome"]) for row in seen] == [
        (back["id"], first, "done"),
        (first, first, "dead"),
    ]
    shop.create("other")
    assert shop.rows("attempts", queue="other", id=first) == []
    with pytest.raises(psycopg.Error, match="QH101"):
        shop.rows("attempts", queue="none", id=first)


def test_attempts_of_an_endpoint_are_listed_by_outcome_and_page(shop: Engine) -> None:
    report(
        shop,
        *(
            {"message": n + 1, "outcome": outcome, "at": (T0 + n * MINUTE).isoformat()}
            for n, outcome in enumerate(["done", "retry", "done", "dead"])
        ),
    )

    def seen(**arguments: Any) -> list[int]:
        return [row["id"] for row in shop.rows("endpoint_attempts", endpoint="shop", **arguments)]

    assert seen() == [4, 3, 2, 1]
    assert seen(outcomes=["retry", "dead"]) == [4, 2]
    assert seen(limit=2) == [4, 3]
    assert seen(limit=2, until=T0 + 2 * MINUTE) == [2, 1]


def test_texts_are_cut(shop: Engine) -> None:
    report(shop, {"message": 1, "outcome": "retry", "error": "x" * 2000, "response": "ü" * 40000 + "x"})

    (row,) = shop.rows("attempts", queue="shop", id=1)

    assert (len(row["error"]), row["response"]) == (1000, "ü" * 32768)


def test_a_text_is_cut_between_characters(shop: Engine) -> None:
    for n, character in enumerate("xüあ𝄞"):
        for pad in range(4):
            text = "x" * pad + character * 70000
            number = 10 * n + pad + 1
            report(shop, {"message": number, "outcome": "retry", "response": text})
            (row,) = shop.rows("attempts", queue="shop", id=number)
            size = len(row["response"].encode())
            assert text.startswith(row["response"])
            assert 65536 - len(character.encode()) < size <= 65536


def test_health_tells_of_the_last_attempts_and_of_what_waits(shop: Engine) -> None:
    shop.send_numbers(2, queue="shop")
    shop.send(2, queue="shop", delay="1 h")
    shop.claim(1, queue="shop")
    shop.at(T0 + 20 * MINUTE)
    report(shop, {"message": 9, "outcome": "retry", "at": T0.isoformat(), "latency": 9})
    report(
        shop,
        *({"message": n + 1, "outcome": "done", "status": 200, "latency": (n + 1) / 10} for n in range(9)),
    )
    report(shop, {"message": 77, "outcome": "retry", "status": 503, "latency": 1, "error": "busy"})

    health = shop.row("endpoint_health", endpoint="shop")
    longer = shop.row("endpoint_health", endpoint="shop", window="1 h")

    assert (health["breaker"], health["failures"], health["enabled"]) == ("closed", 1, True)
    assert (health["attempts"], health["success_rate"], longer["attempts"]) == (10, 0.9, 11)
    assert (health["latency_p50"], round(health["latency_p95"], 3)) == (0.55, 0.955)
    assert (health["pending"], health["in_flight"], health["dead"]) == (2, 1, 0)
    assert health["oldest_pending"] == 20 * MINUTE
    assert (health["last_success_at"], health["last_failure_at"]) == (T0 + 20 * MINUTE, T0 + 20 * MINUTE)
    assert [(error["id"], error["status"], error["error"]) for error in health["last_errors"]] == [
        ("77", 503, "busy")
    ]
    assert [row["endpoint"] for row in shop.rows("endpoint_health")] == ["shop"]


def test_health_of_an_endpoint_that_has_done_nothing(shop: Engine) -> None:
    health = shop.row("endpoint_health", endpoint="shop")

    assert (health["attempts"], health["success_rate"], health["latency_p50"], health["last_errors"]) == (
        0,
        None,
        None,
        [],
    )


def test_maintain_forgets_what_was_kept_long_enough(engine: Engine) -> None:
    shop_of(engine, keep_attempts="1 hour")
    report(engine, {"message": 1, "outcome": "done"})
    engine.value("configure_endpoint", endpoint="shop", config={"keep_attempts": "2 days"})
    report(engine, {"message": 2, "outcome": "done"})
    engine.value("disable_endpoint", endpoint="shop")

    engine.at(T0 + timedelta(hours=2))
    engine.value("maintain")
    kept = [row[0] for row in log(engine)]
    engine.at(T0 + timedelta(days=40))
    engine.value("maintain")

    assert kept == [2]
    assert log(engine) == []
    assert engine.rows("endpoint_events", endpoint="shop") == []


def test_maintain_forgets_a_bounded_number_at_a_time(shop: Engine) -> None:
    for _ in range(2):
        report(shop, *({"message": n + 1, "outcome": "done"} for n in range(6000)))
    shop.at(T0 + timedelta(days=8))

    done = [shop.value("maintain")["done"] for _ in range(2)]

    assert done == [False, True]
    assert log(shop) == []


def test_an_endpoint_that_is_dropped_leaves_its_attempts(shop: Engine) -> None:
    report(shop, {"message": 1, "outcome": "done"})

    shop.value("drop_endpoint", endpoint="shop")

    (row,) = shop.rows("attempts", queue="shop", id=1)
    assert (row["endpoint"], row["queue"]) == (None, "shop")


def test_nothing_reported_is_nothing(shop: Engine) -> None:
    assert report(shop) == {
        "state": "closed",
        "enabled": True,
        "retry_in": None,
        "version": 1,
        "settled": [],
        "skipped": [],
    }


@pytest.mark.parametrize(
    "attempts",
    [
        None,
        {},
        "x",
        [1],
        [None],
        [{}],
        [{"message": 1}],
        [{"message": 1, "outcome": "ok"}],
        [{"message": 0, "outcome": "done"}],
        [{"message": "x", "outcome": "done"}],
        [{"message": 1, "outcome": "done", "speed": 3}],
        [{"message": 1, "outcome": "done", "status": 99}],
        [{"message": 1, "outcome": "done", "latency": -1}],
        [{"message": 1, "outcome": "done", "delay": -1}],
        [{"message": 1, "outcome": "done", "at": "infinity"}],
        [{"message": 1, "outcome": "done", "at": "soon"}],
        [{"message": 1, "outcome": "done", "root": 0}],
        [{"message": 1, "outcome": "done"}, {"message": 2}],
        [{"message": 1, "outcome": "done"}] * 10_001,
    ],
)
def test_what_is_no_attempt_is_refused(shared: Engine, attempts: Any) -> None:
    with pytest.raises(psycopg.Error) as error:
        shared.row("record_attempts", endpoint="shop", attempts=None if attempts is None else Jsonb(attempts))
    assert error.value.sqlstate == "QH879"
    assert log(shared) == []


@pytest.mark.parametrize(
    ("code", "verb", "arguments"),
    [
        ("QH870", "record_attempts", {"endpoint": "none", "attempts": Jsonb([])}),
        ("QH401", "endpoint_attempts", {"endpoint": "shop", "outcomes": ["ok"]}),
        ("QH402", "endpoint_attempts", {"endpoint": "shop", "limit": 0}),
        ("QH402", "attempts", {"queue": "shop", "id": 1, "limit": 0}),
        ("QH402", "endpoint_events", {"endpoint": "shop", "limit": 0}),
        ("QH421", "endpoint_health", {"endpoint": "shop", "window": "0 s"}),
        ("QH421", "endpoint_health", {"window": None}),
    ],
)
def test_bad_arguments_are_refused(shared: Engine, code: str, verb: str, arguments: Row) -> None:
    with pytest.raises(psycopg.Error) as error:
        shared.rows(verb, **arguments)
    assert error.value.sqlstate == code
