"""Topics: ack, nack, extend, and leases that run out. The numbers are those of test_topics.py."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.topics import Json, Topics
from tests.fix_http import Caller

EXTRA: dict[str, dict[str, Json]] = {"ack": {}, "nack": {}, "extend": {"lease_ms": 60_000}}
DONE = {"ack": "acked", "nack": "nacked", "extend": "extended"}


@pytest.fixture
def held(topics: Topics, name: str, at: At) -> list[Json]:
    """Three jobs, leased for 10 seconds to the node "n"; a fourth waits."""
    topics.queue(name, lease_ms=10_000)
    topics.append(name, "a", "b", "c", "d")
    return topics.claim(name, max=3)


# --- ack -----------------------------------------------------------------------------------------


@pins(9, 39, 44)
def test_an_ack_deletes_and_counts(topics: Topics, name: str, held: list[Json]) -> None:
    answer = topics.settle("ack", name, [1, 3])

    assert answer == {"topic": name, "acked": 2, "skipped": [], "ready": 1, "in_flight": 1}
    assert topics.data(name) == ["b", "d"]


@pins(18, 45)
def test_the_time_of_the_commit_is_measured(topics: Topics, name: str) -> None:
    topics.queue(name, durability="memory")
    topics.append(name, 1)
    topics.claim(name)

    answer = topics.call("POST", f"/v0/topics/{name}/ack", {"node": "n", "seqs": [1]}).json()

    assert set(answer["performance"]) == {"server_total_ms", "fsync_ms"}
    assert 0 < answer["performance"]["fsync_ms"] < answer["performance"]["server_total_ms"]


@pins(40, 43)
def test_only_what_the_node_holds_is_acked(topics: Topics, name: str, held: list[Json]) -> None:
    answer = topics.settle("ack", name, [4, 2, 77, 2, 1], node="n")

    assert (answer["acked"], answer["skipped"]) == (2, [4, 77])
    assert topics.settle("ack", name, [3], node="other")["skipped"] == [3]
    assert topics.data(name) == ["c", "d"]


@pins(43)
def test_an_ack_can_be_repeated(topics: Topics, name: str, held: list[Json]) -> None:
    topics.settle("ack", name, [1])

    again = topics.settle("ack", name, [1])

    assert (again["acked"], again["skipped"]) == (0, [1])


@pins(12, 40)
def test_the_ack_of_a_worker_whose_job_was_reclaimed_is_skipped(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    at(11)
    (job,) = topics.claim(name, "faster")

    late = topics.settle("ack", name, [job["$seq"]])

    assert (late["acked"], late["skipped"]) == (0, [job["$seq"]])
    assert topics.settle("ack", name, [job["$seq"]], node="faster")["acked"] == 1


@pins(13)
def test_an_ack_past_the_deadline_counts_until_somebody_takes_the_job_back(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    at(11)

    assert topics.settle("ack", name, [1, 2])["acked"] == 2


@pins(41, 46)
@pytest.mark.parametrize("verb", DONE)
def test_a_thousand_seqs_are_settled_at_once_and_no_more(topics: Topics, name: str, verb: str) -> None:
    topics.queue(name)
    topics.append(name, *range(1000))
    topics.claim(name, max=1000)
    seqs = list(range(1, 1002))
    body = {"node": "n", "seqs": seqs, **EXTRA[verb]}

    topics.refused("POST", f"/v0/topics/{name}/{verb}", body, status=400, code="batch_too_large")

    assert topics.counted(name)["in_flight"] == 1000
    assert topics.settle(verb, name, seqs[:1000], **EXTRA[verb])[DONE[verb]] == 1000


# --- lease ids -----------------------------------------------------------------------------------


@pins(42)
@pytest.mark.parametrize("verb", DONE)
def test_lease_ids_that_are_current_let_pass(
    topics: Topics, name: str, held: list[Json], verb: str
) -> None:
    lease_ids = [job["lease_id"] for job in held]

    answer = topics.settle(verb, name, [1, 2, 3], lease_ids=lease_ids, **EXTRA[verb])

    assert (answer[DONE[verb]], answer["skipped"]) == (3, [])


@pins(42)
@pytest.mark.parametrize("verb", DONE)
def test_lease_ids_that_are_not_are_skipped(
    topics: Topics, name: str, held: list[Json], at: At, verb: str
) -> None:
    at(11)
    again = {job["$seq"]: job for job in topics.claim(name, max=2)}  # by the same node
    stale = [job["lease_id"] for job in held]
    current = again[2]["lease_id"]

    answer = topics.settle(verb, name, [1, 2, 3], lease_ids=[stale[0], current, stale[2]], **EXTRA[verb])

    assert (answer[DONE[verb]], 1 in answer["skipped"]) == (1, True)


@pins(42)
@pytest.mark.parametrize(
    "lease_id", ["lease_", "lease_zz", "7f3a9c", "", "lease_" + "0" * 30, "lease_" + "f" * 30, "SWAPPED"]
)
def test_what_is_no_lease_id_is_skipped(
    topics: Topics, name: str, held: list[Json], lease_id: str
) -> None:
    given = held[1]["lease_id"] if lease_id == "SWAPPED" else lease_id

    answer = topics.settle("ack", name, [1], lease_ids=[given])

    assert (answer["acked"], answer["skipped"]) == (0, [1])


@pins(42)
def test_extending_a_lease_leaves_its_id(topics: Topics, name: str, held: list[Json]) -> None:
    lease_id = held[0]["lease_id"]
    topics.settle("extend", name, [1], lease_ms=60_000)

    assert topics.settle("ack", name, [1], lease_ids=[lease_id])["acked"] == 1


# --- nack ----------------------------------------------------------------------------------------


@pins(9, 47, 50, 51)
def test_a_nacked_job_may_be_claimed_at_once_and_counts_one_more(
    topics: Topics, name: str, held: list[Json]
) -> None:
    answer = topics.settle("nack", name, [2])

    assert answer == {"topic": name, "nacked": 1, "skipped": [], "ready": 2, "in_flight": 2}
    (job,) = topics.claim(name, "other")
    assert (job["data"], job["deliveries"]) == ("b", 2)


@pins(47, 51, 72, 75)
def test_a_delayed_job_is_not_ready_until_its_time(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    answer = topics.settle("nack", name, [1], delay_ms=5000)
    counted = topics.get(name)
    at(5.1)

    assert (answer["ready"], answer["in_flight"]) == (1, 2)
    assert (counted["queue"]["ready"] + counted["queue"]["in_flight"], counted["count"]) == (3, 4)
    assert topics.counted(name)["ready"] == 2


@pins(48)
def test_a_delay_is_a_day_at_most(topics: Topics, name: str, held: list[Json], at: At) -> None:
    topics.settle("nack", name, [1], delay_ms=10**12)
    at(86_401)

    assert "a" in [job["data"] for job in topics.claim(name, max=9)]


@pins(49)
@pytest.mark.parametrize("verb", ["nack", "extend"])
def test_what_the_node_does_not_hold_is_skipped(
    topics: Topics, name: str, held: list[Json], verb: str
) -> None:
    answer = topics.settle(verb, name, [1, 4, 9], node="other", **EXTRA[verb])

    assert (answer[DONE[verb]], answer["skipped"]) == (0, [1, 4, 9])
    assert topics.counted(name)["in_flight"] == 3


# --- extend --------------------------------------------------------------------------------------


@pins(52, 56)
def test_extend_sets_the_deadline_from_now(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    at(4)

    answer = topics.settle("extend", name, [1, 2, 9], lease_ms=20_000)

    until = held[0]["$ts"] + 4_000 + 20_000
    assert answer == {
        "topic": name,
        "extended": 2,
        "skipped": [9],
        "deadlines": {"1": until, "2": until},
    }


@pins(9, 52)
def test_an_extended_job_stays_and_the_others_expire(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    topics.settle("extend", name, [2], lease_ms=20_000)
    at(12)

    assert sorted(job["data"] for job in topics.claim(name, "other", max=9)) == ["a", "c", "d"]


@pins(53)
@pytest.mark.parametrize(("given", "lasts"), [(0, 100), (10**12, 86_400_000)])
def test_the_lease_of_extend_is_clamped(
    topics: Topics, name: str, held: list[Json], given: int, lasts: int
) -> None:
    deadlines = topics.settle("extend", name, [1], lease_ms=given)["deadlines"]

    assert deadlines == {"1": held[0]["$ts"] + lasts}


@pins(54)
def test_a_job_that_was_reclaimed_cannot_be_extended(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    at(11)
    topics.claim(name, "faster", max=3)

    answer = topics.settle("extend", name, [1, 2, 3], lease_ms=1000)

    assert (answer["extended"], answer["skipped"], answer["deadlines"]) == (0, [1, 2, 3], {})


@pins(55)
def test_extending_is_no_delivery(topics: Topics, name: str, held: list[Json], at: At) -> None:
    topics.settle("extend", name, [1], lease_ms=1000)
    at(2)

    (job,) = topics.claim(name, "other")

    assert (job["data"], job["deliveries"]) == ("a", 2)


# --- what is refused -----------------------------------------------------------------------------


@pins(46, 53)
@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("ack", {"seqs": [1]}),
        ("ack", {"node": "n"}),
        ("ack", {"node": "n", "seqs": []}),
        ("ack", {"node": "n", "seqs": ["1"]}),
        ("ack", {"node": "n", "seqs": [-1]}),
        ("ack", {"node": "n", "seqs": [2**53]}),
        ("ack", {"node": "n", "seqs": 1}),
        ("ack", {"node": "n", "seqs": [1], "lease_ids": []}),
        ("ack", {"node": "n", "seqs": [1], "lease_ids": ["a", "b"]}),
        ("ack", {"node": "n", "seqs": [1], "lease_ids": [5]}),
        ("ack", {"node": "n", "seqs": [1], "delay_ms": 5}),
        ("nack", {"node": "n", "seqs": [1], "delay_ms": -1}),
        ("nack", {"node": "n", "seqs": [1], "delay_ms": "1 s"}),
        ("extend", {"node": "n", "seqs": [1]}),
        ("extend", {"node": "n", "seqs": [1], "lease_ms": None}),
    ],
)
def test_a_bad_settlement_is_refused_and_changes_nothing(
    topics: Topics, name: str, held: list[Json], verb: str, body: Any
) -> None:
    topics.refused("POST", f"/v0/topics/{name}/{verb}", body, status=400, code="invalid_request")

    assert topics.counted(name) == {"ready": 1, "in_flight": 3, "dead_lettered": 0}


# --- leases that run out -------------------------------------------------------------------------


@pins(57, 72, 73)
def test_what_has_expired_counts_as_ready_before_anybody_looks(
    topics: Topics, name: str, held: list[Json], at: At
) -> None:
    at(10.1)

    assert topics.counted(name) == {"ready": 4, "in_flight": 0, "dead_lettered": 0}


@pins(73, 75)
def test_ready_and_in_flight_add_up(topics: Topics, name: str, held: list[Json]) -> None:
    state = topics.get(name)

    assert state["queue"] == {"ready": 1, "in_flight": 3, "dead_lettered": 0}
    assert state["count"] == 4


@pins(11, 50)
def test_a_job_that_is_nacked_too_often_is_dead_lettered(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(name, max_deliveries=2, dead_letter=f"{name}.dead")
    topics.append(name, "poison")

    for _ in range(2):
        topics.claim(name)
        topics.settle("nack", name, [1])

    assert topics.claim(name) == []
    assert topics.data(f"{name}.dead") == ["poison"]


@pins(17)
def test_a_native_repair_as_after_a_crash_makes_leased_jobs_claimable(
    topics: Topics, native: Caller, name: str, held: list[Json]
) -> None:
    native.ok("POST", "/v1/repair", {"queue": name})

    again = topics.claim(name, "other", max=9)

    assert [job["data"] for job in again] == ["a", "b", "c", "d"]
    assert topics.settle("ack", name, [1])["skipped"] == [1]
