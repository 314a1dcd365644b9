"""queue-ti: topics of their own, what holds for all of them, and what null and 0 mean."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.server import configs, second_tier
from tests.dialects.conftest import At
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi, as_payload
from tests.fix_http import Serve
from tests.fix_redis import RedisServer
from tests.waiting import eventually

USUAL = {
    "visibility_timeout_seconds": 30,
    "max_retries": 3,
    "message_ttl_seconds": 86_400,
    "dlq_threshold": 3,
}
NOTHING = {"max_retries": None, "message_ttl_seconds": None, "max_depth": None, "throughput_limit": None}


def effective(holdfast: Holdfast, name: str) -> dict[str, Any]:
    """What the engine says of a topic."""
    (info,) = [info for info in holdfast.queues() if info.queue == name]
    return info.effective


def test_a_topic_is_made_by_its_first_message_as_the_defaults_say(
    queue_ti: QueueTi, holdfast: Holdfast, name: str
) -> None:
    queue_ti.send(name, "x")

    found = effective(holdfast, name)
    wanted = {"lease": 30, "ttl": 86_400, "max_deliveries": 3, "dead_letter": f"{name}.dlq"}
    assert {field: found[field] for field in wanted} == wanted
    assert effective(holdfast, f"{name}.dlq")["max_deliveries"] == 1
    assert queue_ti.ok("GET", f"/topic-configs/{name}") == {"topic": name, **NOTHING}


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"max_retries": 5}, {"max_deliveries": 3, "dead_letter": "DLQ"}),
        ({"max_retries": 2}, {"max_deliveries": 2, "dead_letter": False}),
        ({"max_retries": 0}, {"max_deliveries": 1, "dead_letter": False}),
        ({"message_ttl_seconds": 60}, {"ttl": 60}),
        ({"message_ttl_seconds": 0}, {"ttl": None}),
        ({"max_depth": 7, "throughput_limit": 9}, {"max_depth": 7, "throughput_limit": 9}),
        ({"max_depth": 0, "throughput_limit": 0}, {"max_depth": None, "throughput_limit": None}),
    ],
)
@pins(38, 39, 40, 41, 42)
def test_what_a_topic_says_goes_before_the_defaults(
    queue_ti: QueueTi, holdfast: Holdfast, name: str, config: dict[str, int], wanted: dict[str, Any]
) -> None:
    assert queue_ti.configure(name, **config) == {"topic": name, **NOTHING, **config}

    found = effective(holdfast, name)
    dlq = {"DLQ": f"{name}.dlq"}
    assert {field: found[field] for field in wanted} == {
        field: dlq.get(value, value) if isinstance(value, str) else value for field, value in wanted.items()
    }


@pins(43)
def test_a_field_that_is_left_out_or_null_is_the_default_again(
    queue_ti: QueueTi, holdfast: Holdfast, name: str
) -> None:
    queue_ti.configure(name, max_retries=1, message_ttl_seconds=0, max_depth=1, throughput_limit=1)

    queue_ti.configure(name, max_retries=None, max_depth=2)

    found = effective(holdfast, name)
    wanted = {"max_deliveries": 3, "ttl": 86_400, "max_depth": 2, "throughput_limit": None}
    assert {field: found[field] for field in wanted} == wanted
    assert queue_ti.ok("GET", f"/topic-configs/{name}") == {"topic": name, **NOTHING, "max_depth": 2}


def test_a_configuration_is_listed_until_it_is_deleted(queue_ti: QueueTi, name: str) -> None:
    config = queue_ti.configure(name, max_retries=1)
    assert config in queue_ti.ok("GET", "/topic-configs")["items"]

    queue_ti.ok("DELETE", f"/topic-configs/{name}", status=204)

    assert config not in queue_ti.ok("GET", "/topic-configs")["items"]
    assert queue_ti.ok("GET", f"/topic-configs/{name}") == {"topic": name, **NOTHING}
    queue_ti.refused("DELETE", f"/topic-configs/{name}", status=404)
    queue_ti.refused("GET", "/topic-configs/nowhere", status=404)


@pins(40)
def test_a_full_topic_refuses_what_is_more_until_there_is_room(queue_ti: QueueTi, name: str) -> None:
    queue_ti.configure(name, max_depth=2)
    queue_ti.send(name, "1")
    queue_ti.send(name, "2")
    (first,) = queue_ti.dequeue(name)  # what is processed counts

    text = queue_ti.refused("POST", "/messages", {"topic": name, "payload": as_payload("3")}, status=429)

    assert text.startswith(f'topic "{name}" is full. It holds 2 of at most 2 messages')
    queue_ti.ack(first["id"])
    queue_ti.send(name, "3")


@pins(41)
def test_an_exhausted_throughput_gives_fewer_messages_and_no_error(
    queue_ti: QueueTi, name: str, at: At
) -> None:
    queue_ti.configure(name, throughput_limit=2)
    for content in "12345":
        queue_ti.send(name, content)

    taken = [queue_ti.contents(name, 5)]
    taken.append(queue_ti.contents(name, 5))
    at(1)
    taken.append(queue_ti.contents(name, 5))

    assert taken == [[b"1", b"2"], [], [b"3", b"4"]]


@pins(42)
def test_a_change_of_the_defaults_holds_for_topics_that_are_there_and_for_new_ones(
    serve: Serve, engine: Holdfast
) -> None:
    with QueueTi(serve().address) as one:
        assert one.ok("GET", "/admin/settings") == USUAL
        one.set(max_retries=7)  # there is no topic yet
        assert one.ok("GET", "/admin/settings") == {**USUAL, "max_retries": 7}
        one.send("plain", "x")
        one.configure("own", max_retries=2, message_ttl_seconds=5)

        changed = one.set(
            visibility_timeout_seconds=60, message_ttl_seconds=0, dlq_threshold=0
        )

        assert changed == one.ok("GET", "/admin/settings")
        assert list(changed.values()) == [60, 7, 0, 0]
        one.send("new", "x")
        wanted = {"lease": 60, "ttl": None, "max_deliveries": 7, "dead_letter": False}
        for name in ("plain", "new"):
            found = effective(engine, name)
            assert {field: found[field] for field in wanted} == wanted, name
        found = effective(engine, "own")
        assert (found["max_deliveries"], found["ttl"], found["lease"]) == (2, 5, 60)
        for name in ("plain.dlq", "new.dlq"):
            found = effective(engine, name)
            assert (found["max_deliveries"], found["ttl"], found["lease"]) == (1, None, 60), name

        one.set(dlq_threshold=2)
        assert effective(engine, "new")["dead_letter"] == "new.dlq"

        back = one.set(visibility_timeout_seconds=None, dlq_threshold=None)

        assert back == {**USUAL, "max_retries": 7, "message_ttl_seconds": 0}
        assert one.set(**dict.fromkeys(USUAL)) == one.ok("GET", "/admin/settings") == USUAL


@pins(46, 47)
@pytest.mark.parametrize("by", ["NOTIFY", "Redis"])
def test_a_change_at_one_server_is_in_force_at_the_other_at_once(
    serve: Serve, redis_server: RedisServer, name: str, by: str
) -> None:
    settings = {} if by == "NOTIFY" else {"redis_url": redis_server.url, "listen": False}
    with QueueTi(serve(**settings).address) as one, QueueTi(serve(**settings).address) as other:
        one.send(name, "x")
        other.send(name, "y")

        one.ok("PUT", f"/topic-schemas/{name}", {"schema_json": {"type": "object"}})

        def is_refused() -> bool:
            answer = other.call("POST", "/messages", {"topic": name, "payload": as_payload("1")})
            return answer.status_code == 422

        eventually(is_refused, what="the other server knows the schema", timeout=1)
        one.configure(name, max_retries=1)
        (first, _) = other.dequeue(name, 2)
        eventually(
            lambda: other.items(name)[0]["max_retries"] == 1, what="the other server knows it", timeout=1
        )
        other.nack(first["id"])
        assert [item["id"] for item in other.items(name, status="failed")] == [first["id"]]
        one.set(max_retries=2, dlq_threshold=0)
        one.send(f"{name}.b", "x")
        one.ok("DELETE", f"/topic-configs/{name}", status=204)
        eventually(
            lambda: other.items(name)[0]["max_retries"] == 2, what="the other server knows it", timeout=1
        )


@pins(46, 47)
@pytest.mark.parametrize("with_redis", [False, True])
def test_where_no_signal_comes_through_a_change_is_in_force_when_what_is_known_is_too_old(
    serve: Serve,
    engine: Holdfast,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    with_redis: bool,
) -> None:
    assert (configs.FRESH_SECONDS, second_tier.ENTRY_SECONDS) == (5, 30)
    monkeypatch.setattr(configs, "FRESH_SECONDS", 0.1 if with_redis else 2.0)
    monkeypatch.setattr(second_tier, "ENTRY_SECONDS", 2.0)
    settings = {"redis_url": redis_server.url} if with_redis else {}
    with QueueTi(serve(listen=False, **settings).address) as server:
        server.send(name, "x")
        known = server.item(name)["max_retries"]

        def is_shared() -> bool:
            return bool(server.items(name) and list(redis_server.client.scan_iter(f"*:entry:*:{name}")))

        if with_redis:
            eventually(is_shared, what="it is in Redis")

        engine.configure_queue(name, {"annotations": {"queue-ti": {"max_retries": 1}}})

        eventually(lambda: server.item(name)["max_retries"] == 1, what="it is in force")
        assert known == 3


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/topic-configs/NAME", {"max_retries": -1}, 400),
        ("/topic-configs/NAME", {"max_retries": 1001}, 400),
        ("/topic-configs/NAME", {"max_retries": "3"}, 400),
        ("/topic-configs/NAME", {"message_ttl_seconds": 2**40}, 400),
        ("/topic-configs/NAME", {"max_depth": -1}, 400),
        ("/topic-configs/NAME", {"throughput_limit": 0.5}, 400),
        ("/topic-configs/NAME", {"replayable": True}, 400),
        ("/topic-configs/NAME.dlq", {}, 422),
        ("/topic-configs/a b", {}, 400),
        ("/topic-configs/" + "x" * 197, {}, 400),
        ("/admin/settings", {"visibility_timeout_seconds": 0}, 400),
        ("/admin/settings", {"dlq_threshold": -1}, 400),
        ("/admin/settings", {"colour": "red"}, 400),
        ("/topic-configs/NAME", None, 400),
        ("/admin/settings", None, 400),
    ],
)
def test_a_bad_configuration_is_refused_and_changes_nothing(
    queue_ti: QueueTi, name: str, path: str, body: Any, status: int
) -> None:
    queue_ti.configure(name, max_retries=2)

    text = queue_ti.refused("PUT", path.replace("NAME", name), body, status=status)

    if body is None:
        assert text == "the request has no body. Expected an object"
    assert queue_ti.ok("GET", f"/topic-configs/{name}")["max_retries"] == 2
    assert queue_ti.ok("GET", "/admin/settings") == USUAL
