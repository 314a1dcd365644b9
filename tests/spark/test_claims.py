"""Claims of a stream, on PostgreSQL alone.

1. A place claims up to a limit, in as many claims as it takes; or all there is.
2. Another process finds the claims of a place by its name, and only those.
3. An ack ends all of a place's messages at once, as far as they are still held.
4. A place survives JSON; what is none, or is about another queue, is refused.
5. The heartbeat keeps claims alive past their lease, and stops when it is told to.
6. The parts of a batch hold each message once, whatever number is asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark._claims import Claim, Claims, Place
from holdfast.spark._heartbeat import Heartbeat
from holdfast.spark.consume import sliced
from holdfast.spark.options import OptionError, Secret
from tests.engine.engine import Engine
from tests.waiting import eventually


@pytest.fixture
def claims(database_url: str, engine: Engine) -> Iterator[Claims]:
    engine.create()
    found = Claims(url=Secret(database_url), queue="q", lease="1 min")
    yield found
    found.close()


def test_a_place_takes_more_than_one_claim_if_it_has_to(claims: Claims, engine: Engine) -> None:
    engine.value("send_batch", queue="q", payloads=["1"] * 25_000)

    haul = claims.take(Place.first("q").next(()), 24_000)

    assert [claim.messages for claim in haul.claims] == [10_000, 10_000, 4_000]
    assert engine.stats()["in_flight"] == 24_000


def test_a_place_without_a_limit_takes_all(claims: Claims, engine: Engine) -> None:
    engine.send_numbers(7)

    assert claims.take(Place.first("q").next(()), None).claims[0].messages == 7


def test_claims_are_found_again_by_place(claims: Claims, engine: Engine, database_url: str) -> None:
    engine.send_numbers(5)
    place = Place.first("q").next(())
    taken = claims.take(place, 2).claims
    claims.take(place.next(taken), 2)
    later = Claims(url=Secret(database_url), queue="q", lease="1 min")

    assert later.adopt(place) == taken
    assert later.adopt(Place.first("q").next(())) == ()
    later.close()


def test_an_ack_ends_what_is_still_held(claims: Claims, engine: Engine) -> None:
    ids = engine.send_numbers(5)
    place = Place.first("q").next(())
    place = Place(place.stream, 1, "q", claims.take(place, None).claims)
    engine.settle("release", place.claims[0].token, [ids[0]])

    assert claims.ack(place) == 4
    assert claims.ack(place) == 0
    assert engine.stats()["depth"] == 1


def test_a_place_survives_json() -> None:
    place = Place("s", 3, "q", (Claim(2**62 + 1, 2, 2**40 + 1, 2**40 + 2),))

    assert Place.parse(json.loads(json.dumps(place.offset())), "q") == place


@pytest.mark.parametrize("offset", [{}, {"seq": 4}, {"stream": "s", "batch": "x", "queue": "q"}])
def test_what_is_no_place_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="a checkpoint of its own for each mode"):
        Place.parse(offset, "q")


def test_a_place_of_another_queue_is_refused() -> None:
    with pytest.raises(OptionError, match=r"option queue: got 'other'; expected 'q'"):
        Place.parse(Place.first("q").offset(), "other")


def test_the_heartbeat_keeps_a_claim_past_its_lease(database_url: str, engine: Engine) -> None:
    engine.create()
    engine.send(1)
    claims = Claims(url=Secret(database_url), queue="q", lease="600 ms")
    taken = claims.take(Place.first("q").next(()), None).claims
    first = engine.rows("claims", queue="q", consumer=_consumer(engine))[0]["deadline"]
    heartbeat = Heartbeat(claims, 0.6)

    heartbeat.watch(taken)

    eventually(
        lambda: engine.look("select max(deadline) > %s + interval '1 s' from holdfast.lease", first),
        what="the deadline has moved by more than a lease",
    )
    heartbeat.stop()
    assert engine.claim(1) == []
    eventually(lambda: engine.claim(1), what="the message comes back when nobody holds on to it")


def test_the_heartbeat_forgets_a_claim_that_is_lost(claims: Claims, engine: Engine) -> None:
    engine.send(1)
    taken = claims.take(Place.first("q").next(()), None).claims
    heartbeat = Heartbeat(claims, 60)
    heartbeat.watch(taken)
    engine.settle("ack", taken[0].token)

    heartbeat.beat()

    assert heartbeat.watched == ()
    heartbeat.stop()


@given(
    sizes=st.lists(st.integers(1, 50), max_size=12),
    wanted=st.one_of(st.none(), st.integers(1, 40)),
)
def test_the_parts_of_a_batch_hold_each_message_once(sizes: list[int], wanted: int | None) -> None:
    claims = [Claim(n, size, 1000 * n, 1000 * n + size - 1) for n, size in enumerate(sizes)]

    parts = sliced(claims, wanted)

    pieces = [piece for part in parts for piece in part]
    found = [(piece.token, id) for piece in pieces for id in range(piece.first_id, piece.last_id + 1)]
    assert found == [(claim.token, id) for claim in claims for id in range(claim.first_id, claim.last_id + 1)]
    assert all(parts)
    if wanted is not None and claims:
        assert min(wanted, len(claims)) <= len(parts) <= wanted


def test_a_batch_has_no_more_parts_than_the_machine_has_cores() -> None:
    claims = [Claim(n, 1, n, n) for n in range(20)]

    assert len(sliced(claims, None)) == min(8, os.cpu_count() or 8)


def _consumer(engine: Engine) -> str:
    return str(engine.look("select consumer from holdfast.lease limit 1"))
