"""Topics: dead letters. The numbers are those of test_topics.py."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.topics import Topics

WRITE = (
    "update holdfast.message set origin = %s where queue_id = (select id from holdfast.queue where name = %s)"
)
POISON = {"data": {"n": 1}, "tag": "blue", "meta": {"trace": "z9"}, "node": "writer"}


def poisoned(topics: Topics, name: str, **config: Any) -> str:
    """A queue with one job, which dies at its second delivery; returns its dead-letter topic."""
    grave = f"{name}.dead"
    topics.queue(name, max_deliveries=2, dead_letter=grave, lease_ms=1000, **config)
    topics.ok("POST", f"/v0/topics/{name}", {"records": [POISON]})
    return grave


def kill(topics: Topics, name: str) -> None:
    """Deliver the job as often as it may be."""
    for _ in range(2):
        (job,) = topics.claim(name)
        topics.settle("nack", name, [job["$seq"]])


@pins(64, 65, 66, 68)
def test_a_job_is_delivered_max_deliveries_times_and_then_moved(topics: Topics, name: str) -> None:
    grave = poisoned(topics, name)

    kill(topics, name)

    assert topics.claim(name) == []
    (record,) = topics.diff(grave, include_tags=True)["records"]
    record.pop("$ts")
    provenance = {"$dead_letter_from": name, "$dead_letter_deliveries": "2", "$dead_letter_src_seq": "1"}
    assert record == {
        "$seq": 1,
        "$node": "writer",
        "$tag": "blue",
        "data": {"n": 1},
        "meta": {"trace": "z9", **provenance},
    }
    assert topics.get(name)["count"] == 0
    assert topics.counted(name) == {"ready": 0, "in_flight": 0, "dead_lettered": 1}


@pins(64)
def test_it_is_moved_when_its_last_delivery_ends(topics: Topics, name: str, at: At) -> None:
    grave = poisoned(topics, name)
    topics.claim(name)
    at(2)
    topics.claim(name)
    at(4)

    assert topics.claim(name) == []
    assert topics.data(grave) == [{"n": 1}]


@pins(67)
@pytest.mark.parametrize("config", [{"max_deliveries": 1}, {"dead_letter": "GRAVE"}])
def test_without_both_a_job_is_reclaimed_for_ever(
    topics: Topics, name: str, config: dict[str, Any]
) -> None:
    wanted = {field: f"{name}.dead" if value == "GRAVE" else value for field, value in config.items()}
    made = topics.ok("PUT", f"/v0/topics/{name}", {"type": "queue", **wanted}, status=201)["config"]
    topics.append(name, 1)

    deliveries = []
    for _ in range(8):
        (job,) = topics.claim(name)
        deliveries.append(job["deliveries"])
        topics.settle("nack", name, [1])

    assert deliveries == list(range(1, 9))
    assert {field: made[field] for field in wanted} == wanted
    assert topics.counted(name)["dead_lettered"] == 0


@pins(69)
def test_a_dead_letter_topic_may_be_a_log(topics: Topics, name: str) -> None:
    topics.put(f"{name}.dead", type="log")
    grave = poisoned(topics, name)

    kill(topics, name)

    with topics.watch({grave: {}}) as watch:
        (record,) = watch.of("record").data["records"]
    assert record["meta"]["$dead_letter_from"] == name
    assert topics.get(grave)["type"] == "log"


@pins(69)
def test_a_dead_letter_topic_that_is_not_there_is_made(topics: Topics, name: str) -> None:
    grave = poisoned(topics, name)

    kill(topics, name)

    (job,) = topics.claim(grave)
    assert (job["deliveries"], job["meta"]["$dead_letter_src_seq"]) == (1, "1")
    config = topics.get(grave)["config"]
    assert (config["type"], config["max_deliveries"], config["dead_letter"]) == ("queue", 0, None)


@pins(69)
def test_a_dead_letter_is_sent_back_by_producing_it_again(topics: Topics, name: str) -> None:
    grave = poisoned(topics, name)
    kill(topics, name)
    (record,) = topics.diff(grave)["records"]

    topics.ok("POST", f"/v0/topics/{name}", {"records": [{"data": record["data"], "meta": record["meta"]}]})

    (job,) = topics.claim(name)
    assert (job["$seq"], job["data"], job["deliveries"]) == (2, {"n": 1}, 1)
    assert job["meta"]["trace"] == "z9"


@pytest.mark.parametrize(
    "origin", [5, [], "q", {}, {"queue": "q"}, {"queue": 5, "id": 1, "deliveries": 1}, {"id": "x"}]
)
def test_an_origin_that_somebody_has_written_is_shown_as_none(
    topics: Topics, module_url: str, name: str, origin: Any
) -> None:
    topics.queue(name)
    topics.append(name, "x")
    with psycopg.connect(module_url, autocommit=True) as connection:
        connection.execute(WRITE, [Jsonb(origin), name])

    (record,) = topics.diff(name)["records"]
    (job,) = topics.claim(name)

    assert "meta" not in record | job


def test_a_dead_letter_that_was_redriven_natively_is_none_any_more(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    poisoned(topics, name)
    kill(topics, name)

    holdfast.redrive(name)

    (job,) = topics.claim(name)
    assert (job["data"], job["meta"]) == ({"n": 1}, {"trace": "z9"})


@pins(70)
def test_a_move_is_one_transaction_whatever_the_class_of_the_grave(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(f"{name}.dead", durability="memory")
    grave = poisoned(topics, name)

    kill(topics, name)

    # One transaction takes it here and puts it there: nowhere and twice are both impossible.
    (entry,) = holdfast.browse(name, "dead")
    assert (entry.queue, topics.get(name)["count"]) == (grave, 0)


@pins(74)
def test_the_counter_starts_anew_with_the_topic(topics: Topics, name: str) -> None:
    poisoned(topics, name)
    kill(topics, name)
    before = topics.counted(name)["dead_lettered"]

    topics.ok("DELETE", f"/v0/topics/{name}")
    topics.queue(name)

    assert (before, topics.counted(name)["dead_lettered"]) == (1, 0)


@pins(28, 74)
def test_deliveries_start_anew_with_the_topic(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, 1)
    topics.claim(name)
    topics.ok("DELETE", f"/v0/topics/{name}")

    topics.queue(name)
    topics.append(name, 1)

    (job,) = topics.claim(name)
    assert (job["$seq"], job["deliveries"]) == (1, 1)
