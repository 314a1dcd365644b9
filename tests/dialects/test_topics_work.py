"""Topics: work streams. The numbers are those of test_topics.py."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.topics import Topics
from tests.fix_http import Caller, Serve, ServeProcess
from tests.waiting import eventually


@pins(81)
def test_a_stream_opens_with_a_pause_and_a_heartbeat(topics: Topics, name: str) -> None:
    topics.queue(name)

    with topics.work(name) as stream:
        first, second = stream.next(), stream.next()
        headers = stream.response.headers

    assert first is not None
    assert second is not None
    assert (first.kind, first.data, second.kind, second.data) == ("retry", "2000", "comment", "hb")
    assert headers["content-type"].startswith("text/event-stream")
    assert "no-store" in headers["cache-control"]
    assert headers["x-accel-buffering"] == "no"


@pins(82)
def test_a_job_event_is_what_a_claim_shows_with_the_topic(topics: Topics, name: str, at: At) -> None:
    topics.queue(name, lease_ms=30_000)
    record = {"data": {"type": "transcode"}, "tag": "clip-8800", "meta": {"trace": "z9"}}
    topics.ok("POST", f"/v0/topics/{name}", {"records": [record]})

    with topics.work(name, "node=n&lease_ms=5000") as stream:
        event = stream.of("job")

    lease_id = event.data.pop("lease_id")
    assert lease_id.startswith("lease_")
    assert event.id == "1"
    assert event.data == {
        "topic": name,
        "$seq": 1,
        "deadline": event.data["$ts"] + 5000,
        "$ts": event.data["$ts"],
        "$tag": "clip-8800",
        "deliveries": 1,
        "data": {"type": "transcode"},
        "meta": {"trace": "z9"},
    }


@pins(77, 79)
def test_a_stream_keeps_max_jobs_in_flight_and_refills_as_they_are_acked(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(10))

    with topics.work(name, "node=n&max=3") as stream:
        first = stream.jobs(3)
        held = topics.counted(name)
        topics.settle("ack", name, [1, 3])
        more = stream.jobs(2)

        assert [job["$seq"] for job in first + more] == [1, 2, 3, 4, 5]
        assert (held["ready"], held["in_flight"]) == (7, 3)
        assert topics.counted(name)["in_flight"] == 3


@pins(79)
def test_a_stream_takes_one_job_by_default(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, 1, 2)

    with topics.work(name) as stream:
        stream.jobs(1)

        assert topics.counted(name) == {"ready": 1, "in_flight": 1, "dead_lettered": 0}


@pins(79)
def test_a_stream_may_ask_for_more_than_it_gets(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(1001))

    with topics.work(name, "node=n&max=4294967295") as stream:
        stream.jobs(1000)

        assert topics.counted(name)["in_flight"] == 1000


@pins(77)
@pytest.mark.parametrize("verb", ["ack", "nack"])
def test_what_is_settled_elsewhere_makes_room_too(
    topics: Topics, holdfast: Holdfast, name: str, verb: str
) -> None:
    topics.queue(name)
    first, _ = topics.append(name, "a", "b")
    assert first == 1

    with topics.work(name) as stream:
        (job,) = stream.jobs(1)
        (claim,) = holdfast.claims(name, "n")
        getattr(holdfast, verb)(name, claim.token, **({"delay": 60} if verb == "nack" else {}))

        assert (job["data"], stream.jobs(1)[0]["data"]) == ("a", "b")


@pins(83)
def test_heartbeats_come_when_nothing_else_does(topics: Topics, name: str) -> None:
    topics.queue(name)

    with topics.work(name) as stream:
        kinds = [event.kind for _ in range(4) if (event := stream.next())]

    assert kinds == ["retry", "comment", "comment", "comment"]


@pins(84)
def test_what_was_delivered_is_claimable_at_once_when_the_stream_ends(topics: Topics, name: str) -> None:
    topics.queue(name, lease_ms=86_400_000)
    topics.append(name, 1, 2)
    with topics.work(name, "node=n&max=2") as stream:
        stream.jobs(2)

    eventually(lambda: topics.counted(name)["ready"] == 2, what="the jobs are there again")
    assert [job["deliveries"] for job in topics.claim(name, "other", max=5)] == [2, 2]


@pins(84)
def test_a_job_that_ends_every_stream_is_dead_lettered(topics: Topics, name: str) -> None:
    topics.queue(name, max_deliveries=2, dead_letter=f"{name}.dead")
    topics.append(name, "poison")

    for _ in range(2):
        with topics.work(name) as stream:
            stream.jobs(1)
        eventually(lambda: topics.counted(name)["in_flight"] == 0, what="it was given back")

    assert topics.data(f"{name}.dead") == ["poison"]


@pins(85)
def test_leases_of_claims_by_the_same_node_stay(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, "polled", "pushed")
    (mine,) = topics.claim(name)
    with topics.work(name) as stream:
        stream.jobs(1)

    eventually(lambda: topics.counted(name)["ready"] == 1, what="the pushed job is there again")
    assert topics.counted(name)["in_flight"] == 1
    assert topics.settle("ack", name, [mine["$seq"]])["acked"] == 1


@pins(86)
def test_leases_of_a_server_that_was_killed_run_out(
    serve: Serve, serve_process: ServeProcess, name: str
) -> None:
    killed = serve_process()
    with Topics(killed.address) as there, Topics(serve().address) as here:
        there.queue(name, lease_ms=1000)
        there.append(name, 1)
        with there.work(name) as stream:
            stream.jobs(1)

            killed.kill()

            job = eventually(lambda: here.claim(name, "other"), what="the lease has run out")
    assert job[0]["deliveries"] == 2


@pins(7, 17)
def test_leases_outlive_the_server(serve: Serve, serve_process: ServeProcess, name: str) -> None:
    killed = serve_process()
    with Topics(killed.address) as there, Topics(serve().address) as here:
        there.queue(name)
        there.append(name, 1, 2)
        there.claim(name)

        killed.kill()

        assert [job["$seq"] for job in here.claim(name, "other", max=5)] == [2]
        assert here.settle("ack", name, [1])["acked"] == 1


def test_a_stream_whose_topic_is_deleted_leaves_no_warning(
    topics: Topics, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    topics.queue(name)
    topics.append(name, 1)
    with topics.work(name) as stream:
        stream.jobs(1)
        topics.ok("DELETE", f"/v0/topics/{name}")

        assert stream.of("error").data["code"] == 404
        assert stream.next() is None

    # What the stream held is given back before it ends, beside it: a request later that has been tried.
    topics.queue(name)
    assert [record.getMessage() for record in caplog.records if record.name == "holdfast.server"] == []


@pins(87)
@pytest.mark.parametrize(
    ("again", "code", "reason"), [(None, 404, "topic_not_found"), ("log", 409, "not_a_queue")]
)
def test_a_stream_ends_with_an_error_when_its_queue_is_gone(
    topics: Topics, holdfast: Holdfast, name: str, again: str | None, code: int, reason: str
) -> None:
    topics.queue(name)
    with topics.work(name) as stream:
        stream.next(), stream.next()
        with holdfast.transaction() as both:
            both.drop_queue(name)
            if again is not None:
                both.create_queue(name, {"kind": again})

        event = stream.of("error")

        assert (event.data["code"], event.data["reason"]) == (code, reason)
        assert stream.next() is None


@pins(87)
def test_a_stream_is_held_back_by_being_given_less(
    topics: Topics, holdfast: Holdfast, name: str, at: At
) -> None:
    topics.queue(name)
    holdfast.configure_queue(name, {"throughput_limit": 2})
    topics.append(name, *range(5))

    with topics.work(name, "node=n&max=10") as stream:
        first = stream.jobs(2)
        waiting = topics.counted(name)["ready"]
        at(1)
        more = stream.jobs(2)  # and no error in between

    assert ([job["data"] for job in first + more], waiting) == ([0, 1, 2, 3], 3)


@pins(87)
def test_a_stream_ends_with_an_error_when_the_server_does(serve_process: ServeProcess, name: str) -> None:
    server = serve_process()
    with Topics(server.address) as topics:
        topics.queue(name)
        with topics.work(name) as stream:
            stream.next(), stream.next()
            server.process.terminate()

            event = stream.of("error")

            assert (event.data["code"], event.data["reason"]) == (503, "shutting_down")


@pins(87)
def test_a_watch_ends_with_the_same_error_when_the_server_does(
    serve_process: ServeProcess, name: str
) -> None:
    server = serve_process()
    with Topics(server.address) as topics:
        topics.queue(name)
        with topics.watch({name: {}}) as watch:
            watch.of("caught-up")
            server.process.terminate()

            event = watch.of("error")

            assert (event.data["code"], event.data["reason"]) == (503, "shutting_down")


@pytest.mark.parametrize(("given", "lasts"), [(0, 100), (10**12, 86_400_000)])
@pins(79)
def test_the_lease_of_a_stream_is_clamped(
    topics: Topics, name: str, at: At, given: int, lasts: int
) -> None:
    topics.queue(name)
    topics.append(name, 1)

    with topics.work(name, f"node=n&lease_ms={given}") as stream:
        (job,) = stream.jobs(1)

    assert job["deadline"] - job["$ts"] == lasts


@pins(79, 88)
@pytest.mark.parametrize(
    "query", ["", "node=", "node=n&max=0", "node=n&max=x", "node=n&lease_ms=-1", "node=n&colour=red"]
)
def test_a_bad_stream_is_refused(topics: Topics, name: str, query: str) -> None:
    topics.queue(name)

    topics.refused("GET", f"/v0/topics/{name}/work?{query}", status=400, code="invalid_request")


@pins(88)
def test_who_takes_no_events_gets_none(topics: Topics, name: str) -> None:
    topics.queue(name)

    topics.refused(
        "GET",
        f"/v0/topics/{name}/work?node=n",
        status=406,
        code="not_acceptable",
        headers={"accept": "application/json"},
    )


@pins(88)
def test_streams_over_the_limit_of_a_queue_are_throttled(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(name)
    holdfast.configure_queue(name, {"rate_limits": {"claim": 0.001}})
    topics.call("POST", f"/v0/topics/{name}/claim", {"node": "n"})

    eventually(
        lambda: topics.call("POST", f"/v0/topics/{name}/claim", {"node": "n"}).status_code == 429,
        what="the server has heard of the limit",
    )

    topics.refused("GET", f"/v0/topics/{name}/work?node=n", status=429, code="throttled")


@pins(78, 80)
def test_a_key_in_the_query_opens_a_stream_on_loopback(serve: Serve, engine: Holdfast, name: str) -> None:
    http: Caller = serve()
    with Topics(http.address) as topics:
        topics.queue(name)
        topics.append(name, 1)
        key = http.ok("POST", "/v1/keys", {"name": "w", "scopes": ["consume"]}, status=201)["key"]
        path = f"/v0/topics/{name}/work?node=n"
        eventually(lambda: topics.call("GET", path + "&token=no").status_code == 401, what="closed")

        with topics.work(name, f"node=n&token={key}") as stream:
            (job,) = stream.jobs(1)

        topics.refused("GET", path, status=401, code="unauthorized")
        topics.refused("GET", f"/v0/topics/{name}?token={key}", status=401, code="unauthorized")
    assert job["data"] == 1


@pins(80)
def test_elsewhere_a_key_in_the_query_counts_for_nothing(
    serve_process: ServeProcess, engine: Holdfast, name: str
) -> None:
    engine.create_queue(name)
    key = engine.create_key("w", scopes=["consume"]).key
    server = serve_process("--host", "0.0.0.0", "--dialects", "topics")
    address = server.address.replace("0.0.0.0", "127.0.0.1")

    with Topics(address) as topics:
        topics.refused(
            "GET", f"/v0/topics/{name}/work?node=n&token={key}", status=401, code="unauthorized"
        )
        with Topics(address, key=key) as known, known.work(name) as stream:
            assert stream.next() is not None

