"""Topics: writing, reading on, deleting, watching. The numbers are those of test_topics.py."""

from __future__ import annotations

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.topics import STREAM, Event, Events, Topics
from tests.fix_http import Caller, Serve
from tests.waiting import eventually

BLOCKED = "select exists (select from pg_stat_activity where %s = any (pg_blocking_pids(pid)))"


def cursor(event: Event) -> Any:
    """The places that the id of an event says."""
    assert event.id is not None
    return json.loads(base64.urlsafe_b64decode(event.id + "=" * (-len(event.id) % 4)))


# --- appending -----------------------------------------------------------------------------------


def test_an_append_makes_a_log_and_tells_the_numbers(topics: Topics, name: str) -> None:
    answer = topics.ok("POST", f"/v0/topics/{name}", {"records": [{"data": 1}, {"data": 2}]}, status=201)

    assert answer == {
        "topic": name,
        "first_seq": 1,
        "last_seq": 2,
        "seqs": [1, 2],
        "head_seq": 2,
        "count": 2,
        "created": True,
        "deduped": False,
    }
    assert topics.get(name)["type"] == "log"


def test_an_append_may_make_a_queue_and_leave_out_the_numbers(topics: Topics, name: str) -> None:
    body = {"records": [{"data": 1}], "config": {"type": "queue", "lease_ms": 5000}}

    answer = topics.ok("POST", f"/v0/topics/{name}?return_seqs=false", body, status=201)

    assert "seqs" not in answer
    config = topics.get(name)["config"]
    assert (config["type"], config["lease_ms"]) == ("queue", 5000)


@pytest.mark.parametrize("body", [{"create": False}, {"config": {"auto_create": False}}])
def test_an_append_that_may_not_make_a_topic_is_404(topics: Topics, name: str, body: Any) -> None:
    records = {"records": [{"data": 1}]}

    topics.refused("POST", f"/v0/topics/{name}", {**records, **body}, status=404, code="topic_not_found")


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_batch_is_appended_once_under_its_key(topics: Topics, name: str, kind: str, at: At) -> None:
    topics.put(name, type=kind, idempotency_window_ms=60_000)
    body = {"records": [{"data": 1}, {"data": 2}], "idempotency_key": "k"}

    first = topics.ok("POST", f"/v0/topics/{name}", body)
    again = topics.ok("POST", f"/v0/topics/{name}", body)
    at(61)
    later = topics.ok("POST", f"/v0/topics/{name}", body)

    assert [first["deduped"], again["deduped"], later["deduped"]] == [False, True, False]
    assert [first["seqs"], again["seqs"], later["seqs"]] == [[1, 2], [1, 2], [3, 4]]


def test_the_key_may_come_as_a_header(topics: Topics, name: str) -> None:
    body = {"records": [{"data": 1}]}
    headers = {"Idempotency-Key": "k"}

    topics.ok("POST", f"/v0/topics/{name}", body, status=201, headers=headers)

    assert topics.ok("POST", f"/v0/topics/{name}", body, headers=headers)["deduped"] is True


def test_other_records_under_the_key_are_refused(topics: Topics, name: str) -> None:
    topics.append(name, 1, status=201, idempotency_key="k")

    topics.refused(
        "POST",
        f"/v0/topics/{name}",
        {"records": [{"data": 2}], "idempotency_key": "k"},
        status=400,
        code="invalid_request",
    )

    assert topics.data(name) == [1]


def test_without_a_window_keys_do_not_count(topics: Topics, name: str) -> None:
    topics.put(name, idempotency_window_ms=0)

    topics.append(name, 1, idempotency_key="k")

    assert topics.append(name, 1, idempotency_key="k") == [2]


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_full_topic_that_rejects_is_422_and_takes_nothing(topics: Topics, name: str, kind: str) -> None:
    topics.put(name, type=kind, discard="reject", cap_records=3)
    topics.append(name, 1, 2)

    topics.refused(
        "POST", f"/v0/topics/{name}", {"records": [{"data": 3}, {"data": 4}]}, status=422, code="topic_full"
    )

    assert topics.data(name) == [1, 2]
    assert topics.get(name)["config"]["cap_records"] == 3


# --- diff ----------------------------------------------------------------------------------------


@pins(2, 76)
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_diff_reads_on_from_a_place(topics: Topics, name: str, kind: str) -> None:
    topics.put(name, type=kind)
    topics.append(name, *range(5))

    first = topics.diff(name, limit=2)
    second = topics.diff(name, from_seq=first["next_from_seq"], limit=5)

    assert [record["$seq"] for record in first["records"]] == [1, 2]
    assert [record["data"] for record in second["records"]] == [2, 3, 4]
    places = [(page["next_from_seq"], page["lag"], page["caught_up"]) for page in (first, second)]
    assert places == [(2, 3, False), (5, 0, True)]
    assert {(page["head_seq"], page["earliest_seq"], page["tombstone"]) for page in (first, second)} == {
        (5, 1, None)
    }


def test_tags_are_shown_where_they_are_wanted_and_meta_unless_not(topics: Topics, name: str) -> None:
    topics.ok(
        "POST",
        f"/v0/topics/{name}",
        {"records": [{"data": 1, "tag": "t", "meta": {"a": "b"}}]},
        status=201,
    )

    (plain,) = topics.diff(name)["records"]
    (other,) = topics.diff(name, include_tags=True, include_meta=False)["records"]

    assert (plain.get("$tag"), plain.get("meta")) == (None, {"a": "b"})
    assert (other.get("$tag"), other.get("meta")) == ("t", None)


@pins(2)
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_node_does_not_read_what_it_wrote_unless_it_wants_to(
    topics: Topics, name: str, kind: str
) -> None:
    topics.put(name, type=kind)
    records = [{"data": 1}, {"data": 2, "node": "b"}, {"data": 3, "node": "c"}]
    topics.ok("POST", f"/v0/topics/{name}", {"records": records, "node": "a"})

    shown = topics.diff(name, node="a")
    others = topics.diff(name, node=["a", "c"])
    only_mine = topics.diff(name, node=["a", "b", "c"])
    topics.put(name, status=200, dedupe_node=False)

    assert [record["data"] for record in shown["records"]] == [2, 3]
    assert [record["data"] for record in others["records"]] == [2]
    assert (only_mine["records"], only_mine["next_from_seq"], only_mine["caught_up"]) == ([], 3, True)
    eventually(lambda: len(topics.diff(name, node="a")["records"]) == 3, what="the server has heard of it")


@pins(2, 76)
def test_what_was_acked_is_passed_silently(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(6))
    topics.claim(name, max=6)
    topics.settle("ack", name, [1, 2, 4, 6])

    page = topics.diff(name)

    assert [record["$seq"] for record in page["records"]] == [3, 5]
    assert (page["next_from_seq"], page["head_seq"], page["caught_up"]) == (6, 6, True)
    assert (page["earliest_seq"], page["tombstone"], page["lag"]) == (3, None, 0)


@pins(2)
def test_what_has_expired_leaves_a_queue_silently(
    topics: Topics, native: Caller, name: str, at: At
) -> None:
    topics.queue(name, ttl_ms=1000)
    topics.append(name, "old", "older")
    at(2)
    topics.append(name, "new")
    native.ok("POST", "/v1/maintain", {"budget": 1})

    page = topics.diff(name)

    assert ([record["data"] for record in page["records"]], page["tombstone"]) == (["new"], None)


@pins(76)
def test_reading_takes_nothing(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, "a", "b")
    (leased,) = topics.claim(name)

    seen = topics.data(name)
    with topics.watch({name: {}}) as watch:
        watched = watch.of("record").data["records"]

    assert seen == [record["data"] for record in watched] == ["a", "b"]
    assert topics.counted(name) == {"ready": 1, "in_flight": 1, "dead_lettered": 0}
    assert topics.settle("ack", name, [leased["$seq"]])["acked"] == 1


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"cap_records": 2}, "cap"),
        ({"ttl_ms": 1000}, "ttl"),
        ({"cap_records": 2, "ttl_ms": 1000}, "mixed"),
    ],
)
def test_what_retention_removed_is_told(
    topics: Topics, native: Caller, name: str, at: At, config: dict[str, int], reason: str
) -> None:
    topics.put(name, **config)
    topics.append(name, *range(3))
    at(2)
    topics.append(name, 3, 4)
    native.ok("POST", "/v1/maintain", {"budget": 1})

    page = topics.diff(name, from_seq=1)

    assert page["tombstone"] == {
        "gap_from": 2,
        "gap_to": 3,
        "reason": reason,
        "missed_estimate": 2,
        "earliest_seq": 4,
        "head_seq": 5,
    }
    assert [record["data"] for record in page["records"]] == [3, 4]
    assert topics.diff(name, from_seq=3)["tombstone"] is None


@pins(2)
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_reader_of_a_topic_that_was_made_again_begins_anew(
    topics: Topics, name: str, kind: str
) -> None:
    topics.put(name, type=kind)
    topics.append(name, *range(5))
    topics.ok("DELETE", f"/v0/topics/{name}")
    topics.put(name, type=kind)
    topics.append(name, "new")

    page = topics.diff(name, from_seq=5)

    assert page["tombstone"]["reason"] == "recreated"
    assert ([record["data"] for record in page["records"]], page["next_from_seq"]) == (["new"], 1)


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_what_is_still_being_sent_makes_no_other_topic_of_it(
    topics: Topics, name: str, module_url: str, kind: str
) -> None:
    topics.put(name, type=kind)
    with psycopg.connect(module_url) as slow:
        slow.execute("select holdfast.send(%s, '\"slow\"'::jsonb)", [name])
        (seq,) = topics.append(name, "fast")

        page = topics.diff(name, from_seq=seq)

        assert (page["tombstone"], page["records"], page["next_from_seq"]) == (None, [], seq)


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_diff_waits_for_records(topics: Topics, name: str, kind: str) -> None:
    topics.put(name, type=kind)
    with Topics(topics.address) as reader, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reader.diff, name, wait_ms=30_000)

        topics.append(name, "come")

        assert [record["data"] for record in waiting.result()["records"]] == ["come"]


def test_readers_wait_where_no_notification_comes(serve: Serve, name: str) -> None:
    with Topics(serve(listen=False).address) as topics, Topics(topics.address) as reader:
        topics.put(name)
        with ThreadPoolExecutor(1) as pool, reader.watch({name: {}}) as watch:
            waiting = pool.submit(topics.diff, name, wait_ms=30_000)
            watch.of("caught-up")

            with Topics(topics.address) as writer:
                writer.append(name, "come")

            assert records(watch) == ["come"]
            assert [record["data"] for record in waiting.result()["records"]] == ["come"]


def test_diff_waits_no_longer_than_told(topics: Topics, name: str) -> None:
    topics.put(name)

    page = topics.diff(name, wait_ms=10)

    assert (page["records"], page["caught_up"], page["next_from_seq"]) == ([], True, 0)


def test_records_in_an_open_transaction_are_waited_for_and_not_skipped(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(name)
    topics.append(name, 1)
    with holdfast.transaction() as open_transaction:
        open_transaction.send(name, 2)
        topics.append(name, 3)

        before = topics.diff(name)

    after = topics.diff(name, from_seq=before["next_from_seq"])
    assert [record["data"] for record in before["records"]] == [1]
    assert [record["data"] for record in after["records"]] == [2, 3]


# --- deleting ------------------------------------------------------------------------------------


@pins(2)
@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({"before_seq": 3}, [3, 4, 5]),
        ({"match": ["tag", "Eq", "a:1"]}, [2, 3, 4]),
        ({"match": "a:1"}, [2, 3, 4]),
        ({"match": ["tag", "Glob", "a:*"]}, [3, 4]),
        ({"match": ["tag", "Glob", "a:*"], "before_seq": 2}, [2, 3, 4, 5]),
        ({"match": ["tag", "Glob", "*"]}, [4]),
        ({"match": "nothing"}, [1, 2, 3, 4, 5]),
    ],
)
def test_records_are_deleted_by_number_and_tag(
    topics: Topics, name: str, kind: str, body: Any, left: list[int]
) -> None:
    topics.put(name, type=kind)
    tags = ["a:1", "a:2", "b:1", None, "a:1"]
    records = [{"data": n, "tag": tag} for n, tag in enumerate(tags, 1)]
    topics.ok("POST", f"/v0/topics/{name}", {"records": records})

    answer = topics.ok("POST", f"/v0/topics/{name}/delete", body)

    expected = {"deleted": 5 - len(left), "count": len(left), "head_seq": 5, "earliest_seq": left[0]}
    assert answer == {"topic": name, **expected}
    page = topics.diff(name)
    assert [record["$seq"] for record in page["records"]] == left
    assert (page["tombstone"], page["caught_up"]) == (None, True)


def test_what_is_leased_can_be_deleted(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, 1)
    topics.claim(name)

    topics.ok("POST", f"/v0/topics/{name}/delete", {"before_seq": 2})

    assert topics.settle("ack", name, [1])["skipped"] == [1]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"match": ["tag", "Like", "x"]},
        {"match": ["tag", "Glob", "x"]},
        {"match": ["tag", "Glob", "*x*"]},
        {"match": ["tag", "Glob", ""]},
        {"match": ["node", "Eq", "x"]},
        {"match": ["tag", "Eq"]},
        {"match": 5},
        {"before_seq": "5"},
    ],
)
def test_a_bad_deletion_is_refused(topics: Topics, name: str, body: Any) -> None:
    topics.append(name, 1, status=201)

    topics.refused("POST", f"/v0/topics/{name}/delete", body, status=400, code="invalid_request")

    assert topics.data(name) == [1]


# --- state ---------------------------------------------------------------------------------------


@pins(71)
def test_a_queue_shows_how_far_it_reaches_and_its_counters(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(5))
    topics.claim(name, max=2)
    topics.settle("ack", name, [1])

    state = topics.get(name)

    config = state.pop("config")
    assert state == {
        "topic": name,
        "type": "queue",
        "head_seq": 5,
        "earliest_seq": 2,
        "count": 4,
        "queue": {"ready": 3, "in_flight": 1, "dead_lettered": 0},
    }
    assert (config["type"], config["lease_ms"]) == ("queue", 30_000)


@pins(71)
def test_a_log_shows_how_far_it_reaches(topics: Topics, name: str) -> None:
    topics.put(name)
    empty = topics.get(name)
    topics.append(name, 1, 2)

    state = topics.get(name)

    assert (empty["head_seq"], empty["earliest_seq"], empty["count"]) == (0, 1, 0)
    assert (state["head_seq"], state["earliest_seq"], state["count"]) == (2, 1, 2)
    assert "queue" not in state


def test_topics_are_listed_by_name_page_by_page(topics: Topics, name: str) -> None:
    for letter in "bca":
        topics.put(f"{name}-{letter}", type="queue" if letter == "b" else "log")
    topics.append(f"{name}-b", 1, 2)

    first = topics.ok("GET", "/v0/topics", params={"prefix": f"{name}-", "page_size": 2})
    last = topics.ok(
        "GET", "/v0/topics", params={"prefix": f"{name}-", "page_size": 2, "cursor": first["next_cursor"]}
    )

    assert [topic["topic"] for topic in first["topics"]] == [f"{name}-a", f"{name}-b"]
    expected = {"type": "queue", "head_seq": 2, "earliest_seq": 1, "count": 2, "durable": False}
    assert first["topics"][1] == {"topic": f"{name}-b", **expected}
    assert ([topic["topic"] for topic in last["topics"]], "next_cursor" in last) == ([f"{name}-c"], False)


def test_a_topic_is_deleted_once_and_only_empty_if_so_asked(topics: Topics, name: str) -> None:
    topics.append(name, 1, status=201)

    topics.refused("DELETE", f"/v0/topics/{name}?if_empty=true", status=409, code="topic_not_empty")
    first = topics.ok("DELETE", f"/v0/topics/{name}")
    second = topics.ok("DELETE", f"/v0/topics/{name}?if_empty=true")

    assert [first, second] == [{"topic": name, "deleted": True}, {"topic": name, "deleted": False}]


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_an_append_under_way_keeps_a_topic_from_being_deleted_if_empty(
    topics: Topics, name: str, kind: str, module_url: str
) -> None:
    topics.put(name, type=kind)
    path = f"/v0/topics/{name}?if_empty=true"
    with psycopg.connect(module_url, autocommit=True) as looker, ThreadPoolExecutor(1) as pool:
        with psycopg.connect(module_url) as sender:
            sender.execute("select holdfast.send(%s, '1')", [name])
            refused = pool.submit(topics.refused, "DELETE", path, status=409, code="topic_not_empty")
            waiting = [sender.info.backend_pid]
            eventually(
                lambda: looker.execute(BLOCKED, waiting).fetchone() == (True,), what="the deletion waits"
            )
        error = refused.result()

    assert error["message"] == f'topic "{name}" is not empty'
    assert topics.get(name)["count"] == 1


# --- watching ------------------------------------------------------------------------------------


def records(watch: Events) -> list[Any]:
    """The data of the next records."""
    return [record["data"] for record in watch.of("record").data["records"]]


@pins(2)
def test_a_watch_shows_what_is_there_and_then_what_comes(topics: Topics, name: str) -> None:
    topics.queue(f"{name}-q")
    topics.append(f"{name}-q", "a", "b")
    topics.put(f"{name}-l")
    with topics.watch({f"{name}-q": {}}) as watch:
        first = watch.of("record")
        live = watch.of("caught-up")
        topics.append(f"{name}-q", "c")

        assert records(watch) == ["c"]

    shown = {key: first.data[key] for key in ("topic", "from_seq", "to_seq", "head_seq")}
    assert shown == {"topic": f"{name}-q", "from_seq": 0, "to_seq": 2, "head_seq": 2}
    assert cursor(first) == {f"{name}-q": 2}
    assert live.data == {"topic": f"{name}-q", "head_seq": 2}


def test_a_watch_follows_several_topics_and_resumes_in_all_of_them(topics: Topics, name: str) -> None:
    one, two = f"{name}-1", f"{name}-2"
    for topic in (one, two):
        topics.append(topic, f"{topic} first", f"{topic} second", status=201)
    with topics.watch({one: {"from_seq": 1}, two: {"tail": True}}) as watch:
        assert records(watch) == [f"{one} second"]
        assert {watch.of("caught-up").data["topic"] for _ in range(2)} == {one, two}
        topics.append(two, "more")
        last = watch.of("record")
    assert cursor(last) == {one: 2, two: 3}
    topics.append(one, "meanwhile")

    with topics.watch({one: {}, two: {}}, last=last.id) as again:
        assert records(again) == ["meanwhile"]


@pins(2)
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_watch_of_one_priority_goes_before_another(topics: Topics, name: str, kind: str) -> None:
    low, high = f"{name}-a", f"{name}-b"
    topics.put(low, type=kind)
    topics.put(high, type=kind, priority=5)
    for topic in (low, high):
        topics.append(topic, topic)

    with topics.watch({low: {}, high: {}}) as watch:
        assert records(watch) == [high]


def test_a_watch_tells_of_what_retention_removed(
    topics: Topics, native: Caller, name: str, at: At
) -> None:
    topics.put(name, cap_records=1)
    topics.append(name, 1, 2, 3)
    native.ok("POST", "/v1/maintain", {"budget": 1})

    with topics.watch({name: {}}) as watch:
        gone = watch.of("tombstone")

        assert records(watch) == [3]
    assert (gone.data["gap_from"], gone.data["gap_to"], gone.data["reason"]) == (1, 2, "cap")
    assert cursor(gone) == {name: 2}


def test_a_watch_goes_on_without_a_topic_that_is_deleted(topics: Topics, name: str) -> None:
    one, two = f"{name}-1", f"{name}-2"
    topics.put(one)
    topics.put(two)
    with topics.watch({one: {}, two: {}}) as watch:
        for _ in range(2):
            watch.of("caught-up")
        topics.ok("DELETE", f"/v0/topics/{one}")
        deleted = watch.of("topic-deleted")
        topics.append(two, "still here")

        assert records(watch) == ["still here"]
        topics.ok("DELETE", f"/v0/topics/{two}")
        assert watch.of("topic-deleted").data["topic"] == two
        assert watch.next() is None
    assert (deleted.data["topic"], cursor(deleted)) == (one, {two: 0})


def test_a_watch_without_news_says_that_it_is_alive(topics: Topics, name: str) -> None:
    topics.put(name)

    with topics.watch({name: {}}, heartbeat_ms=1) as watch:
        watch.of("caught-up")
        event = watch.next()

    assert event is not None
    assert event.kind == "comment"
    assert event.data.startswith("hb 1")


def test_a_watch_shows_less_if_less_is_wanted(topics: Topics, name: str) -> None:
    record = {"data": 1, "tag": "t", "meta": {"a": 1}, "node": "w"}
    topics.ok("POST", f"/v0/topics/{name}", {"records": [record, {"data": 2, "node": "me"}]}, status=201)

    options: dict[str, Any] = {"include_data": False, "include_meta": False, "include_tags": True}
    with topics.watch({name: {}}, node="me", **options) as watch:
        (shown,) = watch.of("record").data["records"]

    shown.pop("$ts")
    assert shown == {"$seq": 1, "$node": "w", "$tag": "t"}


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "invalid_request"),
        ({"topics": {}}, 400, "invalid_request"),
        ({"topics": ["a"]}, 400, "invalid_request"),
        ({"topics": {"nowhere": {}}}, 404, "topic_not_found"),
        ({"topics": {"nowhere": {"from": 1}}}, 400, "invalid_request"),
    ],
)
def test_a_bad_watch_is_refused(topics: Topics, body: Any, status: int, code: str) -> None:
    topics.refused("POST", "/v0/watch", body, status=status, code=code)


@pytest.mark.parametrize("wid", ["nonsense", "wid_", "wid_W10", "wid_%C3%A9"])
def test_a_watch_that_was_not_given_out_is_not_found(topics: Topics, wid: str) -> None:
    topics.refused("GET", f"/v0/watch/{wid}", status=404, code="not_found")


def test_a_watch_tells_of_a_topic_that_was_made_again_and_reaches_further(
    topics: Topics, name: str, module_url: str
) -> None:
    topics.append(name, 1, status=201)
    with topics.watch({name: {}}) as events, psycopg.connect(module_url) as other:
        events.of("record")
        events.of("caught-up")
        other.execute("select holdfast.drop_queue(%s)", [name])
        other.execute("select holdfast.create_queue(%s, '{\"kind\": \"log\"}')", [name])
        other.execute("select holdfast.send_batch(%s, array['1', '2', '3']::jsonb[])", [name])
        other.commit()

        assert events.of("tombstone").data["reason"] == "recreated"
        assert [record["data"] for record in events.of("record").data["records"]] == [1, 2, 3]


def named(*session: Any) -> str:
    """The name of a watch that was not given out."""
    return "wid_" + base64.urlsafe_b64encode(json.dumps(session).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("place", "limit", "heartbeat"),
    [(0, 10, 0.0), (0, 10, -1.0), (0, 0, 15.0), (0, 10**30, 15.0), (-1, 10, 15.0), (2**63, 10, 15.0)],
)
def test_a_made_up_watch_is_bound_to_what_could_be_given_out(
    topics: Topics, name: str, place: int, limit: int, heartbeat: float
) -> None:
    topics.queue(name)
    wid = named(None, {name: place}, [], limit, heartbeat, True, False, True)

    topics.refused("GET", f"/v0/watch/{wid}", status=404, code="not_found", headers=STREAM)


@pytest.mark.parametrize("place", [-1, 2**63, 1.5])
def test_an_id_that_was_not_given_out_is_passed_over(topics: Topics, name: str, place: float) -> None:
    topics.queue(name)
    (seq,) = topics.append(name, "x")
    last = base64.urlsafe_b64encode(json.dumps({name: place}).encode()).rstrip(b"=").decode()

    with topics.watch({name: {}}, last=last) as events:
        assert events.of("record").data["to_seq"] == seq
