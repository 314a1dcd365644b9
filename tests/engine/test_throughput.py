"""throughput_limit: how many messages a second a queue's claims hand out.

1. Claims get up to one second's worth at once, then as many as the rate gives; fewer or none, never an error.
2. The limit holds for the queue: over all its priorities and shards.
3. What a claim was allowed and did not find is given back.
4. What was claimed and rolled back counts all the same.
5. It can be set, changed and taken back at any time; dropping the queue drops its register.
6. Deliveries again (nacks, expired leases) count like first ones.
7. repair() makes the register anew.
8. A claim that the limit cut short handed out what it handed out: strict verbs settle it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.engine.engine import T0, Engine, ids

SECOND = timedelta(seconds=1)
BUCKETS = "select count(*) from pg_class where relname ~ '^throttle_'"


def limited(engine: Engine, limit: float = 5, messages: int = 100, **config: object) -> None:
    engine.create("q", throughput_limit=limit, **config)
    engine.send_numbers(messages)


def test_a_claim_gets_at_most_one_seconds_worth(engine: Engine) -> None:
    limited(engine)

    assert len(engine.claim(50)) == 5
    assert engine.claim(50) == []


def test_messages_come_at_the_rate(engine: Engine) -> None:
    limited(engine)
    counts = []
    for tenths in range(0, 31, 5):
        engine.at(T0 + tenths * SECOND / 10)
        counts.append(len(engine.claim(50)))

    assert counts == [5, 2, 3, 2, 3, 2, 3]


def test_a_limit_below_one_a_second_hands_out_one_at_a_time(engine: Engine) -> None:
    limited(engine, 0.5)
    counts = []
    for seconds in range(5):
        engine.at(T0 + seconds * SECOND)
        counts.append(len(engine.claim(50)))

    assert counts == [1, 0, 1, 0, 1]


def test_the_limit_holds_over_all_lanes(engine: Engine) -> None:
    engine.create("q", throughput_limit=5, shards=2, priorities=[0, 3])
    for priority in (0, 3, 7):
        engine.send_numbers(3, priority=priority)

    assert len(engine.claim(50)) == 5
    assert engine.claim(50) == []


def test_what_was_allowed_and_not_found_is_given_back(engine: Engine) -> None:
    limited(engine, messages=0)
    for _ in range(20):
        assert engine.claim(5) == []
    engine.send_numbers(3)
    some = len(engine.claim(5))
    engine.send_numbers(9)

    assert (some, len(engine.claim(5))) == (3, 2)


def test_a_claim_that_was_rolled_back_counts(engine: Engine) -> None:
    limited(engine)
    with engine.conn.transaction(force_rollback=True):
        engine.claim(4)

    assert len(engine.claim(50)) == 1


def test_messages_that_come_again_count(engine: Engine) -> None:
    limited(engine, messages=2)
    for _ in range(2):
        engine.settle("nack", engine.claim(2)[0]["token"], delay="0 s")

    assert len(engine.claim(2)) == 1


def test_next_is_limited_too(engine: Engine) -> None:
    limited(engine, 2)
    token = engine.claim_one()["token"]
    rows = engine.rows("next", queue="q", token=token, max=9)

    assert len(rows) == 1


def test_a_limit_can_be_set_changed_and_taken_back(engine: Engine) -> None:
    engine.create("q")
    engine.send_numbers(100)
    engine.value("configure_queue", queue="q", config={"throughput_limit": 3})
    three = len(engine.claim(50))
    engine.value("configure_queue", queue="q", config={"throughput_limit": 1000})
    engine.at(T0 + SECOND)
    many = len(engine.claim(50))
    engine.value("configure_queue", queue="q", config={"throughput_limit": None})

    assert (three, many, len(engine.claim(50))) == (3, 50, 47)


def test_only_a_queue_with_a_limit_has_a_register_for_it(engine: Engine) -> None:
    engine.create("plain")
    without = engine.look(BUCKETS)
    limited(engine)
    with_one = engine.look(BUCKETS)
    engine.value("drop_queue", queue="q")

    assert (without, with_one, engine.look(BUCKETS)) == (0, 1, 0)


def test_a_lane_that_is_made_later_is_limited(engine: Engine) -> None:
    limited(engine, messages=0)
    engine.send_numbers(9, priority=9)

    assert len(engine.claim(50)) == 5


def test_what_a_limited_claim_took_is_settled_as_ever(engine: Engine) -> None:
    limited(engine)
    rows = engine.claim(50)

    assert engine.settle("ack", rows[0]["token"]) == ([row["id"] for row in rows], [])


def test_repair_makes_the_register_anew(engine: Engine) -> None:
    limited(engine)
    engine.claim(5)
    engine.value("repair")

    assert len(engine.claim(50)) == 5


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
@pytest.mark.parametrize("config", [{}, {"ordering": "key"}, {"priorities": [0, 3]}])
def test_strict_verbs_settle_what_a_limited_claim_handed_out(
    engine: Engine, verb: str, config: dict[str, Any]
) -> None:
    limited(engine, messages=3, **config)
    engine.send_numbers(20, priority=3 if "priorities" in config else 0)
    claimed = engine.claim(20)

    settled, skipped = engine.settle(verb, claimed[0]["token"], strict=True)

    assert (len(claimed), settled, skipped) == (5, sorted(ids(claimed)), [])
