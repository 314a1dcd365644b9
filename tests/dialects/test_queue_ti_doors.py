"""queue-ti: who may call, what is refused in its words, and messages that go through other doors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.client import ERRORS
from holdfast.dialects import DIALECTS
from holdfast.dialects.queue_ti.errors import SAID
from tests.dialects.pins import pins
from tests.dialects.queue_ti import QueueTi, as_payload
from tests.dialects.topics import Topics
from tests.docs.pages import DOCS, prose, quoted, rows, sections
from tests.fix_http import Caller, Serve
from tests.waiting import eventually

NOBODY_S = "7fffffff-ffff-8fff-bc6f-6c6466617374"  # one that could be, and is none
SOMEBODY_S = "00000400-0000-8000-846f-6c6466617374"  # an id that somebody may have

# --- who may -------------------------------------------------------------------------------------

ROUTES: list[tuple[str, str, Any, str]] = [
    ("POST", "/messages", {"topic": "orders", "payload": "eA=="}, "send"),
    ("POST", "/messages/dequeue", {"topic": "orders"}, "consume"),
    ("POST", "/messages/ID/ack", {}, "consume"),
    ("POST", "/messages/ID/nack", {}, "consume"),
    ("POST", "/messages/ID/requeue", None, "send"),
    ("GET", "/messages?topic=orders", None, "read"),
    ("GET", "/stats", None, "read"),
    ("DELETE", "/topics/orders/messages/by-key/k", None, "admin"),
    ("POST", "/topics/orders/purge", {}, "admin"),
    ("GET", "/topic-configs", None, "admin"),
    ("GET", "/topic-configs/orders", None, "admin"),
    ("PUT", "/topic-configs/orders", {}, "admin"),
    ("DELETE", "/topic-configs/orders", None, "admin"),
    ("GET", "/topic-schemas", None, "admin"),
    ("GET", "/topic-schemas/orders", None, "admin"),
    ("PUT", "/topic-schemas/orders", {"schema_json": {}}, "admin"),
    ("DELETE", "/topic-schemas/orders", None, "admin"),
    ("POST", "/admin/expiry-reaper/run", None, "admin"),
    ("POST", "/admin/delete-reaper/run", None, "admin"),
    ("GET", "/admin/delete-reaper/schedule", None, "admin"),
    ("PUT", "/admin/delete-reaper/schedule", {"schedule": ""}, "admin"),
    ("GET", "/admin/settings", None, "admin"),
    ("PUT", "/admin/settings", {}, "admin"),
]


def closed(http: Caller) -> None:
    """Wait until the server knows that there are keys."""
    eventually(lambda: http.client.get("/api/stats").status_code == 401, what="the server is closed")


def test_each_route_takes_the_scope_that_is_told(serve: Serve, engine: Holdfast) -> None:
    engine.create_queue("orders")
    http = serve()
    scopes = ("send", "consume", "read", "admin")
    keys = {scope: engine.create_key(scope, scopes=[scope]).key for scope in scopes}
    closed(http)

    allowed: dict[str, set[str]] = {}
    for scope, key in keys.items():
        with QueueTi(http.address, key=key) as caller:
            for method, path, body, _ in ROUTES:
                status = caller.call(method, path.replace("ID", SOMEBODY_S), body).status_code
                assert status in (200, 201, 204, 403, 404), (path, status)
                if status != 403:
                    allowed.setdefault(f"{method} {path}", set()).add(scope)

    assert allowed == {f"{method} {path}": {scope, "admin"} for method, path, _, scope in ROUTES}


def test_every_route_is_in_the_list_above() -> None:
    told = {
        (method, scope, path.partition("?")[0].replace("ID", "{id}").replace("by-key/k", "by-key/{key}"))
        for method, path, _, scope in ROUTES
    }

    endpoints = [one for one in DIALECTS["queue-ti"].endpoints if one.scope is not None]
    paths = {
        (one.method, one.scope, one.path.removeprefix("/api").replace("{queue}", "orders"))
        for one in endpoints
    }
    assert told == paths


def test_a_key_reaches_its_topics_and_their_messages_alone(serve: Serve, engine: Holdfast) -> None:
    http = serve()
    made = engine.create_key("k", scopes=["send", "consume", "read", "admin"], queues=["mine*"])
    other = engine.create_key("o", scopes=["admin"])
    closed(http)

    with QueueTi(http.address, key=made.key) as mine, QueueTi(http.address, key=other.key) as admin:
        own, foreign = mine.send("mine", "x"), admin.send("theirs", "x")
        admin.dequeue("theirs")

        for method, path, body in (
            ("POST", "/messages", {"topic": "theirs", "payload": "eA=="}),
            ("POST", "/messages/dequeue", {"topic": "theirs"}),
            ("GET", "/messages?topic=theirs", None),
            ("POST", "/topics/theirs/purge", {}),
            ("PUT", "/admin/settings", {}),
        ):
            text = mine.refused(method, path, body, status=403)
            assert text.startswith("this key may not do that"), path
        # Ids can be guessed: nobody learns by one what there is elsewhere.
        nothing = "00000000-0000-8000-846f-6c6466617374"
        for verb in ("ack", "nack", "requeue"):
            for id in (foreign, nothing):
                text = mine.refused("POST", f"/messages/{id}/{verb}", status=404)
                assert text == f"message {id} does not exist"
        for _ in range(2):
            admin.nack(foreign)
            admin.dequeue("theirs")
        admin.nack(foreign)
        text = mine.refused("POST", f"/messages/{foreign}/requeue", status=404)
        assert text == f"message {foreign} does not exist"
        admin.requeue(foreign)
        assert [item["id"] for item in mine.ok("GET", "/messages")["items"]] == [own]
        assert {one["topic"] for one in mine.ok("GET", "/stats")["topics"]} == {"mine"}
        admin.configure("theirs", max_retries=1)
        assert mine.ok("GET", "/topic-configs")["items"] == []


def test_a_key_that_only_sends_makes_no_topic(serve: Serve, engine: Holdfast, name: str) -> None:
    http = serve()
    key = engine.create_key("k", scopes=["send"]).key
    closed(http)

    with QueueTi(http.address, key=key) as sender:
        text = sender.refused("POST", "/messages", {"topic": name, "payload": "eA=="}, status=422)

    assert text.startswith(f'topic "{name}" does not exist. It is made by its first message')
    assert engine.queues() == []


@pins(30)
def test_a_consumer_may_not_requeue(serve: Serve, engine: Holdfast) -> None:
    http = serve()
    admin, consumer, sender = (
        engine.create_key(scope, scopes=[scope], queues=["orders", "orders.dlq"]).key
        for scope in ("admin", "consume", "send")
    )
    closed(http)
    with QueueTi(http.address, key=admin) as queue_ti:
        id = queue_ti.send("orders", "x")
        queue_ti.fail("orders", 3)

    with QueueTi(http.address, key=consumer) as caller:
        caller.refused("POST", f"/messages/{id}/requeue", status=403)
    with QueueTi(http.address, key=sender) as caller:
        caller.requeue(id)


def test_a_topic_that_many_make_at_once_is_made_once(queue_ti: QueueTi, name: str) -> None:
    with ThreadPoolExecutor(8) as senders:
        ids = list(senders.map(lambda number: queue_ti.send(name, str(number)), range(8)))

    assert sorted(item["id"] for item in queue_ti.items(name)) == sorted(ids)


def test_a_key_comes_as_bearer_as_password_or_by_a_login(serve: Serve, engine: Holdfast) -> None:
    http = serve()
    key = engine.create_key("k", scopes=["admin"]).key
    closed(http)

    with QueueTi(http.address) as nobody:
        nobody.refused("GET", "/stats", status=401)
        assert nobody.ok("GET", "/auth/status") == {"auth_required": True}
        token = nobody.ok("POST", "/auth/login", {"username": "admin", "password": key})["token"]
        assert set(nobody.ok("GET", "/version")) == {"version"}
    for options in ({"key": key}, {"key": token}, {"auth": ("admin", key)}):
        with QueueTi(http.address, **options) as caller:
            assert caller.ok("GET", "/stats") == {"topics": []}
    with QueueTi(http.address, auth=("admin", "secret")) as stranger:
        stranger.refused("GET", "/stats", status=401)


def test_a_server_without_the_dialect_says_so(serve: Serve) -> None:
    error = serve(dialects=("topics",)).refused("GET", "/api/stats", status=404, code="QH914")

    assert error["hint"] == "The dialect queue-ti is off here: HOLDFAST_DIALECTS=queue-ti offers it."


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"topic": "NAME"}, 400),
        ({"payload": "eA=="}, 400),
        ({"topic": "", "payload": "eA=="}, 400),
        ({"topic": "NAME", "payload": ""}, 400),
        ({"topic": "NAME", "payload": None}, 400),
        ({"topic": "NAME", "payload": "no base64"}, 400),
        ({"topic": "NAME", "payload": "eA"}, 400),
        ({"topic": "NAME", "payload": "eA==", "metadata": {"a": 1}}, 400),
        ({"topic": "NAME", "payload": "eA==", "metadata": {"a": "\x00"}}, 400),
        ({"topic": "NAME", "payload": "eA==", "metadata": {"a": "x" * 65_536}}, 413),
        ({"topic": "NAME", "payload": "eA==", "key": ""}, 400),
        ({"topic": "NAME", "payload": "eA==", "key": "x" * 201}, 400),
        ({"topic": "NAME", "payload": "eA==", "priority": 1}, 400),
        ({"topic": "NAME", "payload": as_payload(b"x" * 1_048_577)}, 413),
        ({"topic": "NAME.dlq", "payload": "eA=="}, 422),
        ({"topic": "a b", "payload": "eA=="}, 400),
        ({"topic": "x" * 197, "payload": "eA=="}, 400),
    ],
)
@pins(31)
def test_a_bad_message_is_refused_and_sends_nothing(
    queue_ti: QueueTi, name: str, body: dict[str, Any], status: int
) -> None:
    queue_ti.configure(name)
    wanted = body | ({"topic": body["topic"].replace("NAME", name)} if "topic" in body else {})

    queue_ti.refused("POST", "/messages", wanted, status=status)

    assert queue_ti.items(name) == queue_ti.items(f"{name}.dlq") == []


@pytest.mark.parametrize(
    "body",
    [
        {"count": 0},
        {"count": 1001},
        {"count": "2"},
        {"count": 1.5},
        {"visibility_timeout_seconds": 0},
        {"visibility_timeout_seconds": 86_401},
        {"consumer_group": "billing"},
        {"topic": None},
        {"topic": "a b"},
        {"wait": 5},
    ],
)
def test_a_bad_dequeue_is_refused_and_takes_nothing(queue_ti: QueueTi, name: str, body: Any) -> None:
    queue_ti.send(name, "x")

    text = queue_ti.refused("POST", "/messages/dequeue", {"topic": name, **body}, status=400)

    (field,) = body
    assert field in text
    assert queue_ti.item(name)["status"] == "pending"


@pytest.mark.parametrize("id", [NOBODY_S, "1", "abc123", "0" * 36, NOBODY_S.replace("74", "75")])
@pytest.mark.parametrize("verb", ["ack", "nack", "requeue"])
def test_an_id_that_is_nobody_s_is_not_found(queue_ti: QueueTi, id: str, verb: str) -> None:
    assert queue_ti.refused("POST", f"/messages/{id}/{verb}", status=404) == f"message {id} does not exist"


@pytest.mark.parametrize("body", [{"error": 5}, {"error": "\x00"}, {"consumer_group": "g"}, {"delay": 5}])
def test_a_bad_nack_is_refused_and_settles_nothing(queue_ti: QueueTi, name: str, body: Any) -> None:
    id = queue_ti.send(name, "x")
    queue_ti.dequeue(name)

    queue_ti.refused("POST", f"/messages/{id}/nack", body, status=400)

    assert queue_ti.item(name)["status"] == "processing"


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", {"content-type": "application/json"}, 400),
        (b"\xff", {"content-type": "application/json"}, 400),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"[" * 5000, {"content-type": "application/json"}, 400),
    ],
)
def test_a_body_that_is_none_is_refused(
    queue_ti: QueueTi, content: bytes, headers: dict[str, str], status: int
) -> None:
    queue_ti.refused("POST", "/messages", status=status, content=content, headers=headers)


@pins(45)
def test_other_paths_and_methods_are_refused_in_the_shape_of_the_dialect(queue_ti: QueueTi) -> None:
    for path in ("/messages/x", "/messagesx", "/admin", "/topics", "/topics/t/replay", "/users"):
        text = queue_ti.refused("POST", path, {}, status=404)
        assert text == f"nothing is at this path. Got '/api{path}'"
    for path in ("/api/auth/x", "/apis"):  # they are the native API's
        assert queue_ti.client.get(path).json()["error"]["code"] == "QH914"
    text = queue_ti.refused("PATCH", "/messages", {}, status=405)
    assert text == "the path does not take this method. It takes GET, HEAD, OPTIONS, POST"


def test_errors_speak_of_what_this_api_knows(queue_ti: QueueTi, name: str) -> None:
    made = "It is made by its first message, or by PUT /api/topic-configs/{topic}"
    for method, path in (("POST", "/topics/NO/purge"), ("DELETE", "/topics/NO/messages/by-key/k")):
        assert queue_ti.refused(method, path, status=404) == f'topic "NO" does not exist. {made}'
    allowed = "A name has 1 to 196 characters out of A-Z a-z 0-9 . _ : -"
    body = {"payload": "eA=="}
    for topic, got in (("x" * 197, "It has 197 characters"), ("a b", "Got 'a b'")):
        text = queue_ti.refused("POST", "/messages", {**body, "topic": topic}, status=400)
        assert text == f"invalid topic name. {got}. {allowed}"
    metadata = {"a": "x" * 65_536}
    text = queue_ti.refused("POST", "/messages", {**body, "topic": name, "metadata": metadata}, status=413)
    assert text == "metadata is too large. It has 65545 bytes. metadata takes at most 65,536 bytes"


def test_what_only_says_that_it_is_a_topic_stops_no_reaper_and_no_settings(
    queue_ti: QueueTi, holdfast: Holdfast, name: str
) -> None:
    pretending: dict[str, Any] = {"annotations": {"queue-ti": {}}}
    holdfast.create_queue(name, {"kind": "log", **pretending})
    holdfast.create_queue("x" * 200, pretending)  # its dead-letter topic could have no name

    for reaper in ("expiry", "delete"):
        queue_ti.ok("POST", f"/admin/{reaper}-reaper/run")
    queue_ti.set(max_retries=3)


def test_dead_letters_may_lie_in_a_log(queue_ti: QueueTi, holdfast: Holdfast, name: str) -> None:
    holdfast.create_queue(f"{name}.dlq", {"kind": "log"})
    holdfast.create_queue(name)
    queue_ti.configure(name, max_retries=1)
    queue_ti.configure(name)
    queue_ti.set(max_retries=3)
    id = queue_ti.send(name, "x")
    queue_ti.fail(name, 3)

    queue_ti.requeue(id)

    assert queue_ti.item(name)["id"] == id


def test_a_log_is_no_topic_here(queue_ti: QueueTi, holdfast: Holdfast, name: str) -> None:
    holdfast.create_queue(name, {"kind": "log"})

    queue_ti.refused("POST", "/messages", {"topic": name, "payload": "eA=="}, status=409)
    queue_ti.refused("POST", "/messages/dequeue", {"topic": name}, status=409)
    queue_ti.refused("PUT", f"/topic-configs/{name}", {}, status=409)
    queue_ti.refused("POST", f"/topics/{name}/purge", {}, status=409)
    assert queue_ti.items(name) == []


# --- other doors ---------------------------------------------------------------------------------

def test_leases_exclude_each_other_whichever_door_they_were_taken_at(
    queue_ti: QueueTi, topics: Topics, holdfast: Holdfast, name: str
) -> None:
    ids = [queue_ti.send(name, content) for content in "123"]
    (mine,) = queue_ti.dequeue(name)
    (job,) = topics.claim(name, "n")
    (delivery,) = holdfast.claim(name)

    assert (queue_ti.dequeue(name), topics.claim(name, "n"), holdfast.claim(name)) == ([], [], [])
    assert mine["id"] == ids[0]
    topics.settle("ack", name, [job["$seq"]])
    holdfast.ack(name, delivery.token)
    assert [item["id"] for item in queue_ti.items(name)] == [ids[0]]
    queue_ti.ack(ids[0])
    assert queue_ti.items(name) == []


def test_a_message_that_was_replaced_is_no_dead_letter_at_other_doors(
    queue_ti: QueueTi, topics: Topics, name: str
) -> None:
    for content in ("old", "new"):
        queue_ti.send(name, content, key="k")

    (job,) = topics.claim(name)

    assert (job["data"]["body"], job.get("meta")) == (as_payload("new"), None)


def test_a_message_of_a_native_queue_is_settled_by_the_id_that_is_listed(
    queue_ti: QueueTi, holdfast: Holdfast, name: str
) -> None:
    holdfast.create_queue(name, {"max_deliveries": 2, "budget": "failures"})
    holdfast.send(name, {"b": 1})
    id = queue_ti.item(name)["id"]
    holdfast.claim(name)  # somebody else holds it: who knows its id settles it here

    queue_ti.nack(id, "no")
    queue_ti.fail(name, 1)
    dead = queue_ti.item(f"{name}.dlq")

    assert (dead["id"], dead["original_topic"], dead["last_error"]) == (id, name, "no")
    queue_ti.requeue(id)
    assert holdfast.claim(name)[0].payload == {"b": 1}


# --- what it is made of --------------------------------------------------------------------------


def test_every_code_that_is_translated_exists() -> None:
    assert set(SAID) <= set(ERRORS)


PAGE = (DOCS / "dialects" / "queue_ti.md").read_text(encoding="utf-8")


def test_the_documentation_has_every_route_with_its_scope() -> None:
    table = sections(PAGE, 2)["Routes"]
    told = {quoted(row[0])[0]: row[1] for row in rows(table[: table.index("| status |")])}

    assert told == {
        f"{endpoint.method} {endpoint.path.replace('{queue}', '{topic}')}": endpoint.scope or "none"
        for endpoint in DIALECTS["queue-ti"].endpoints
    }


def test_the_documentation_has_every_field_of_a_request() -> None:
    told = set(quoted(prose(PAGE)))

    kinds = {kind for one in DIALECTS["queue-ti"].endpoints for kind in (one.body, one.query) if kind}
    assert {name for kind in kinds for name in kind.__struct_fields__} <= told
