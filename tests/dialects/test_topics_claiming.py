"""Topics: creating queues, producing jobs, claiming them. The numbers are those of test_topics.py."""

from __future__ import annotations

import re
from typing import Any

import pytest

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.topics import Topics
from tests.fix_http import Caller

QUEUE_ENDPOINTS = [
    ("POST", "claim", {"node": "n"}),
    ("POST", "ack", {"node": "n", "seqs": [1]}),
    ("POST", "nack", {"node": "n", "seqs": [1]}),
    ("POST", "extend", {"node": "n", "seqs": [1], "lease_ms": 1000}),
    ("GET", "work?node=n", None),
]
DEFAULTS = {
    "type": "queue",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "durable": False,
    "durability": "disk",
    "priority": None,
    "auto_create": True,
    "idempotency_window_ms": 120_000,
    "dedupe_node": True,
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "leases_durable": False,
}


# --- what a queue is -----------------------------------------------------------------------------


@pins(1, 5)
def test_a_queue_is_a_topic_whose_records_are_jobs(topics: Topics, name: str) -> None:
    topics.put(name, type="queue")

    seqs = topics.append(name, "first", "second")

    assert seqs == [1, 2]
    assert [(job["$seq"], job["data"]) for job in topics.claim(name, max=9)] == [(1, "first"), (2, "second")]


@pins(3, 46)
@pytest.mark.parametrize(("method", "endpoint", "body"), QUEUE_ENDPOINTS)
def test_a_log_rejects_every_queue_endpoint(
    topics: Topics, name: str, method: str, endpoint: str, body: Any
) -> None:
    topics.append(name, 1, status=201)

    topics.refused(method, f"/v0/topics/{name}/{endpoint}", body, status=409, code="not_a_queue")

    assert topics.data(name) == [1]


@pins(4, 46)
@pytest.mark.parametrize(("method", "endpoint", "body"), QUEUE_ENDPOINTS)
def test_queue_endpoints_make_no_topic(
    topics: Topics, name: str, method: str, endpoint: str, body: Any
) -> None:
    topics.refused(method, f"/v0/topics/{name}/{endpoint}", body, status=404, code="topic_not_found")

    topics.refused("GET", f"/v0/topics/{name}", status=404, code="topic_not_found")


# --- configuration -------------------------------------------------------------------------------


@pins(16, 19, 22, 23, 24, 25)
def test_a_queue_of_which_nothing_is_said_has_the_defaults(topics: Topics, name: str) -> None:
    made = topics.put(name, type="queue")

    assert made == DEFAULTS
    assert topics.get(name)["config"] == DEFAULTS


@pins(20)
@pytest.mark.parametrize(("was", "wanted"), [("log", "queue"), ("queue", "log")])
def test_the_type_of_a_topic_cannot_be_changed(topics: Topics, name: str, was: str, wanted: str) -> None:
    topics.put(name, type=was)

    topics.refused(
        "PUT", f"/v0/topics/{name}", {"type": wanted}, status=409, code="topic_exists_incompatible"
    )

    assert topics.get(name)["type"] == was


@pins(19)
def test_a_put_changes_the_fields_that_it_names(topics: Topics, name: str) -> None:
    topics.queue(name, lease_ms=1000, dead_letter=f"{name}.dead", max_deliveries=3)

    changed = topics.put(name, status=200, lease_ms=2000, priority=7)

    expected = {"lease_ms": 2000, "priority": 7, "dead_letter": f"{name}.dead", "max_deliveries": 3}
    assert changed == {**DEFAULTS, **expected}
    assert topics.get(name)["config"] == changed


@pins(22, 23)
@pytest.mark.parametrize(
    ("field", "given", "kept"),
    [
        ("lease_ms", 0, 100),
        ("lease_ms", 10**18, 86_400_000),
        ("claim_jitter_ms", 5001, 5000),
        ("priority", -1001, -1000),
        ("priority", 1001, 1000),
    ],
)
def test_numbers_are_clamped(topics: Topics, name: str, field: str, given: int, kept: int) -> None:
    made = topics.put(name, type="queue", **{field: given})

    assert made[field] == kept
    assert topics.get(name)["config"][field] == kept


@pins(16, 24, 25)
@pytest.mark.parametrize(
    "config",
    [
        {"leases_durable": True},
        {"max_deliveries": 1001, "dead_letter": "grave"},
        {"dead_letter": "SELF"},
        {"dead_letter": "no name"},
        {"cap_bytes": 1},
        {"cap_records": 5, "discard": "old"},
        {"idempotency_window_ms": 604_800_001},
        {"lease_ms": -1},
        {"lease_ms": "30000"},
        {"durability": "paper"},
        {"durability": "memory", "durable": True},
        {"durability": "fsync", "durable": False},
        {"discard": "new"},
        {"colour": "red"},
        {"ttl_ms": 10**30},
    ],
)
def test_what_cannot_be_is_refused_and_makes_nothing(
    topics: Topics, name: str, config: dict[str, Any]
) -> None:
    wanted = {field: name if value == "SELF" else value for field, value in config.items()}

    topics.refused(
        "PUT", f"/v0/topics/{name}", {"type": "queue", **wanted}, status=400, code="invalid_request"
    )

    topics.refused("GET", f"/v0/topics/{name}", status=404, code="topic_not_found")


@pins(6)
@pytest.mark.parametrize(
    ("config", "durability", "engine"),
    [
        ({"durable": True}, "fsync", "durable"),
        ({"durable": False}, "disk", "durable"),
        ({"durability": "disk"}, "disk", "durable"),
        ({"durability": "memory"}, "memory", "fast"),
        ({"durability": "ephemeral"}, "ephemeral", "fast"),
        ({"durability": "fsync", "durable": True}, "fsync", "durable"),
        ({"durability": "memory", "durable": False}, "memory", "fast"),
    ],
)
def test_the_durability_class_decides_how_sends_commit(
    topics: Topics, holdfast: Holdfast, name: str, config: dict[str, Any], durability: str, engine: str
) -> None:
    made = topics.put(name, type="queue", **config)

    (info,) = [info for info in holdfast.queues() if info.queue == name]
    assert (made["durability"], made["durable"]) == (durability, durability == "fsync")
    assert info.effective["durability"] == engine


def test_a_get_shows_what_holds_whoever_has_set_it(topics: Topics, holdfast: Holdfast, name: str) -> None:
    topics.queue(name, durability="memory", lease_ms=1000)

    holdfast.configure_queue(
        name,
        {
            "lease": "5 s",
            "max_deliveries": 4,
            "dead_letter": "grave",
            "durability": "durable",
            "max_depth": 9,
        },
    )

    config = topics.get(name)["config"]
    changed = {"lease_ms": 5000, "max_deliveries": 4, "dead_letter": "grave", "durability": "fsync"}
    changed |= {"durable": True, "cap_records": 9, "discard": "reject"}
    assert config == {**DEFAULTS, **changed}


def test_a_queue_that_was_made_natively_is_a_topic(topics: Topics, holdfast: Holdfast, name: str) -> None:
    holdfast.create_queue(name)

    changed = {"max_deliveries": 5, "dead_letter": f"{name}.dlq", "durability": "fsync", "durable": True}
    assert topics.get(name)["config"] == {**DEFAULTS, **changed}


# --- claiming ------------------------------------------------------------------------------------


@pins(8, 32, 33, 34, 35, 36, 37)
def test_a_claim_leases_jobs_with_their_data_and_a_deadline(topics: Topics, name: str, at: At) -> None:
    topics.queue(name)
    records = [
        {"data": {"n": 1}, "tag": "blue", "meta": {"trace": "z9"}, "node": "writer"},
        {"data": None},
        {"data": "waits"},
    ]
    topics.ok("POST", f"/v0/topics/{name}", {"records": records})
    at(5)

    answer = topics.ok("POST", f"/v0/topics/{name}/claim", {"node": "n", "max": 2})

    first, second = answer.pop("claimed")
    lease_ids = [first.pop("lease_id"), second.pop("lease_id")]
    assert answer == {"topic": name, "count": 2, "ready": 1}
    t0, lease = 1_893_456_000_000, 30_000
    shared = {"$ts": t0, "deadline": t0 + 5_000 + lease, "deliveries": 1}
    blue = {"$node": "writer", "$tag": "blue", "data": {"n": 1}, "meta": {"trace": "z9"}}
    assert first == {"$seq": 1, **blue, **shared}
    assert second == {"$seq": 2, "data": None, **shared}
    assert all(re.fullmatch("lease_[0-9a-f]+", lease_id) for lease_id in lease_ids)
    assert len(set(lease_ids)) == 2


@pins(32)
def test_the_time_that_a_claim_took_is_measured(topics: Topics, name: str) -> None:
    topics.queue(name)

    answer = topics.call("POST", f"/v0/topics/{name}/claim", {"node": "n"}).json()

    assert set(answer["performance"]) == {"server_total_ms", "throttle_wait_ms"}
    assert 0 <= answer["performance"]["throttle_wait_ms"] < answer["performance"]["server_total_ms"]


@pins(27)
def test_a_job_that_is_leased_or_acked_is_not_claimable(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, 1)
    topics.claim(name)

    while_leased = topics.claim(name, "other")
    topics.settle("ack", name, [1])

    assert (while_leased, topics.claim(name)) == ([], [])


@pins(10, 27, 28, 36)
def test_an_expired_job_is_claimable_and_counts_each_delivery(topics: Topics, name: str, at: At) -> None:
    topics.queue(name, lease_ms=1000)
    topics.append(name, 1)

    deliveries = []
    for n in range(3):
        at(2 * n)
        (job,) = topics.claim(name, f"worker-{n}")
        deliveries.append(job["deliveries"])

    assert deliveries == [1, 2, 3]


@pins(22, 31)
@pytest.mark.parametrize(
    ("given", "lasts"), [(None, 60_000), (5_000, 5_000), (1, 100), (10**15, 86_400_000)]
)
def test_the_lease_is_the_claims_else_the_topics(
    topics: Topics, name: str, at: At, given: int | None, lasts: int
) -> None:
    topics.queue(name, lease_ms=60_000)
    topics.append(name, 1)

    (job,) = topics.claim(name) if given is None else topics.claim(name, lease_ms=given)

    assert job["deadline"] - job["$ts"] == lasts


@pins(30)
def test_one_job_is_claimed_by_default_and_a_thousand_at_most(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(1005))

    one = topics.claim(name)
    thousand = topics.claim(name, max=4_294_967_295)
    rest = topics.claim(name, max=16)

    assert [len(one), len(thousand), len(rest)] == [1, 1000, 4]
    assert [job["$seq"] for job in thousand] == list(range(2, 1002))


@pins(14, 15)
def test_a_single_worker_gets_jobs_in_their_order(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(20))

    order = []
    for _ in range(20):
        (job,) = topics.claim(name)
        topics.settle("ack", name, [job["$seq"]])
        order.append(job["data"])

    assert order == list(range(20))


@pins(14, 58)
def test_expired_jobs_go_before_fresh_ones(topics: Topics, name: str, at: At) -> None:
    topics.queue(name, lease_ms=1000)
    topics.append(name, "old", "older", "fresh")
    topics.claim(name, max=2)

    at(1.5)

    assert [job["data"] for job in topics.claim(name, "other", max=2)] == ["old", "older"]


@pins(58)
def test_delayed_jobs_go_before_fresh_ones_when_their_time_has_come(
    topics: Topics, name: str, at: At
) -> None:
    topics.queue(name)
    topics.append(name, "delayed", "fresh", "fresher")
    topics.claim(name)
    topics.settle("nack", name, [1], delay_ms=5000)
    (meanwhile,) = topics.claim(name)

    at(6)

    order = [topics.claim(name)[0]["data"] for _ in range(2)]
    assert (meanwhile["data"], order) == ("fresh", ["delayed", "fresher"])


@pins(29, 38)
@pytest.mark.parametrize(
    "body",
    [
        {},
        {"node": ""},
        {"node": None},
        {"node": 5},
        {"node": "x" * 129},
        {"node": "n\x00"},
        {"node": "n", "max": 0},
        {"node": "n", "max": "5"},
        {"node": "n", "max": 1.5},
        {"node": "n", "max": 2**32},
        {"node": "n", "lease_ms": "soon"},
        {"node": "n", "lease_ms": -1},
        {"node": "n", "wait": 5},
        [],
        "n",
    ],
)
def test_a_bad_claim_is_refused_and_takes_nothing(topics: Topics, name: str, body: Any) -> None:
    topics.queue(name)
    topics.append(name, 1)

    topics.refused("POST", f"/v0/topics/{name}/claim", body, status=400, code="invalid_request")

    assert topics.counted(name) == {"ready": 1, "in_flight": 0, "dead_lettered": 0}


@pins(38)
def test_claims_over_the_limit_of_a_queue_are_throttled(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(name)
    holdfast.configure_queue(name, {"rate_limits": {"claim": 0.001}})
    codes = [
        topics.call("POST", f"/v0/topics/{name}/claim", {"node": "n"}).status_code for _ in range(2)
    ]

    error = topics.refused(
        "POST", f"/v0/topics/{name}/claim", {"node": "n"}, status=429, code="throttled"
    )

    assert 429 in codes
    assert error["detail"]["retry_after_ms"] > 0


# --- doors ---------------------------------------------------------------------------------------


@pins(5, 8)
def test_jobs_cross_doors_and_leases_exclude_each_other(
    topics: Topics, native: Caller, name: str
) -> None:
    topics.queue(name)
    (here,) = topics.append(name, {"from": "topics"})
    (there,) = native.send(name, {"from": "native"})

    (mine,) = native.claim(name, max=1, consumer="native")
    (theirs,) = topics.claim(name, max=5)

    assert (mine["payload"], theirs["data"]) == ({"from": "topics"}, {"from": "native"})
    assert int(mine["id"]) - here == int(there) - theirs["$seq"]
    assert topics.settle("ack", name, [here])["skipped"] == [here]
    assert native.ok("POST", f"/v1/queues/{name}/ack", {"token": mine["token"]})["settled"] == [mine["id"]]
    assert topics.settle("ack", name, [theirs["$seq"]])["acked"] == 1
    assert topics.counted(name) == {"ready": 0, "in_flight": 0, "dead_lettered": 0}


@pins(5, 40)
def test_a_node_settles_what_a_native_consumer_of_its_name_has_claimed(
    topics: Topics, native: Caller, name: str
) -> None:
    topics.queue(name)
    (seq,) = topics.append(name, 1)
    native.claim(name, consumer="worker")

    assert topics.settle("ack", name, [seq], node="worker")["acked"] == 1


def test_what_a_record_has_crosses_doors(topics: Topics, native: Caller, name: str) -> None:
    topics.queue(name)
    record = {"data": [1.50, "é"], "tag": "t", "meta": {"trace": {"deep": [1]}}, "node": "w"}
    topics.ok("POST", f"/v0/topics/{name}", {"records": [record]})
    message = {"body": "AAE=", "content_type": "image/png", "headers": {"trace": "z9"}, "tag": "u"}
    native.ok("POST", f"/v1/queues/{name}/messages", {"messages": [message]}, status=201)

    (found,) = native.claim(name)
    (job,) = topics.claim(name)

    headers = {"trace": {"deep": [1]}, "$node": "w"}
    assert (found["payload"], found["headers"], found["tag"]) == ([1.50, "é"], headers, "t")
    assert job["data"] == {"body": "AAE=", "content_type": "image/png"}
    assert (job["meta"], job["$tag"]) == ({"trace": "z9"}, "u")


@pins(5)
@pytest.mark.parametrize("number", ["1" + "0" * 400 + ".5", "0.12345678901234567890123"])
def test_meta_keeps_its_numbers_to_the_last_digit(topics: Topics, name: str, number: str) -> None:
    topics.queue(name)
    body = f'{{"records": [{{"data": 1, "node": "w", "meta": {{"x": {number}}}}}]}}'
    headers = {"content-type": "application/json"}
    topics.ok("POST", f"/v0/topics/{name}", content=body, headers=headers)

    read = topics.call("POST", f"/v0/topics/{name}/diff", {})
    claimed = topics.call("POST", f"/v0/topics/{name}/claim", {"node": "n"})

    for answer in (read, claimed):
        assert f'"meta":{{"x":{number}}}' in answer.text
        assert '"$node":"w"' in answer.text


def test_messages_of_another_priority_have_numbers_of_their_own(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(name)
    topics.append(name, "low")
    holdfast.send(name, "high", priority=9)

    jobs = {job["data"]: job["$seq"] for job in topics.claim(name, max=2)}

    assert jobs["low"] == 1
    assert 2**40 < jobs["high"] < 2**53
    assert topics.settle("ack", name, [jobs["high"]]) == {
        "topic": name,
        "acked": 1,
        "skipped": [],
        "ready": 0,
        "in_flight": 1,
    }
