"""Topics: where the dialect is offered, who may call, what is refused in its words, what it is made of."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import Holdfast
from holdfast.client import ERRORS
from holdfast.dialects import DIALECTS
from holdfast.dialects.topics.errors import SAID
from holdfast.server.settings import Settings
from tests.dialects.pins import pins
from tests.dialects.topics import Topics
from tests.docs.pages import DOCS, ROOT, prose, quoted, rows, sections
from tests.fix_http import Caller, Serve, ServeProcess, served
from tests.waiting import eventually

SQL = re.compile(r"\b(?:(?:select|insert|update|delete from)\b|holdfast\.[a-z_]+\()", re.IGNORECASE)


# --- where it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("dialects", "there"), [(None, True), (("topics",), True), ((), False)])
def test_a_server_on_loopback_offers_what_it_is_told_else_all(
    serve: Serve, dialects: tuple[str, ...] | None, there: bool
) -> None:
    http = serve(dialects=dialects)

    assert (http.client.get("/v0/topics").status_code == 200) is there
    if not there:
        error = http.refused("GET", "/v0/topics", status=404, code="QH914")
        assert error["hint"] == "The dialect topics is off here: HOLDFAST_DIALECTS=topics offers it."


def test_elsewhere_a_server_offers_none_unless_told(database_url: str, engine: Holdfast) -> None:
    key = engine.create_key("k", scopes=["admin"]).key
    for dialects, status in ((None, 404), (("topics",), 200)):
        settings = Settings(database_url=database_url, host="0.0.0.0", port=0, dialects=dialects)
        with served(settings) as caller:
            address = caller.address.replace("0.0.0.0", "127.0.0.1")
            answer = httpx.get(f"{address}/v0/topics", headers={"x-api-key": key}, trust_env=False)
            assert answer.status_code == status


@pytest.mark.parametrize(
    ("options", "variables", "status"),
    [
        (("--dialects", "all"), {"HOLDFAST_DIALECTS": "none"}, 200),
        (("--dialects", "none"), {}, 404),
        ((), {"HOLDFAST_DIALECTS": "none"}, 404),
        ((), {"HOLDFAST_DIALECTS": " topics , "}, 200),
    ],
)
def test_the_option_goes_before_the_variable(
    serve_process: ServeProcess, options: tuple[str, ...], variables: dict[str, str], status: int
) -> None:
    server = serve_process(*options, **variables)

    assert httpx.get(f"{server.address}/v0/topics", trust_env=False).status_code == status


# --- who may -------------------------------------------------------------------------------------

ROUTES: list[tuple[str, str, Any, str]] = [
    ("GET", "/v0/topics", None, "read"),
    ("GET", "/v0/topics/orders", None, "read"),
    ("PUT", "/v0/topics/orders", {}, "admin"),
    ("POST", "/v0/topics/orders", {"records": [{"data": 1}]}, "send"),
    ("POST", "/v0/topics/orders/diff", {}, "consume"),
    ("POST", "/v0/topics/orders/delete", {"before_seq": 0}, "admin"),
    ("POST", "/v0/topics/orders/claim", {"node": "n"}, "consume"),
    ("POST", "/v0/topics/orders/ack", {"node": "n", "seqs": [1]}, "consume"),
    ("POST", "/v0/topics/orders/nack", {"node": "n", "seqs": [1]}, "consume"),
    ("POST", "/v0/topics/orders/extend", {"node": "n", "seqs": [1], "lease_ms": 1000}, "consume"),
    ("HEAD", "/v0/topics/orders/work?node=n", None, "consume"),
    ("POST", "/v0/watch", {"topics": {"orders": {}}}, "consume"),
    ("DELETE", "/v0/topics/orders", None, "admin"),
]


@pins(78)
def test_each_route_takes_the_scope_that_is_told(serve: Serve, engine: Holdfast) -> None:
    engine.create_queue("orders")
    http: Caller = serve()
    scopes = ("send", "consume", "read", "admin")
    keys = {scope: engine.create_key(scope, scopes=[scope]).key for scope in scopes}
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")

    allowed: dict[str, set[str]] = {}
    for method, path, body, _ in ROUTES:
        for scope, key in keys.items():
            with Topics(http.address, key=key) as caller:
                status = caller.call(method, path, body).status_code
            assert status in (200, 403)
            if status == 200:
                allowed.setdefault(f"{method} {path}", set()).add(scope)

    assert allowed == {f"{method} {path}": {scope, "admin"} for method, path, _, scope in ROUTES}


def test_a_key_reaches_its_own_topics_only(serve: Serve, engine: Holdfast) -> None:
    for queue in ("shop.orders", "till.orders"):
        engine.create_queue(queue)
    http: Caller = serve()
    key = engine.create_key("k", scopes=["admin"], queues=["shop.*"]).key
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")

    refused: list[tuple[str, str, Any]] = [
        ("GET", "/v0/topics/till.orders", None),
        ("POST", "/v0/watch", {"topics": {"shop.orders": {}, "till.orders": {}}}),
        ("PUT", "/v0/topics/shop.new", {"type": "queue", "dead_letter": "till.orders"}),
        ("PUT", "/v0/topics/shop.orders", {"dead_letter": "till.orders"}),
    ]
    with Topics(http.address, key=key) as shop:
        for method, path, body in refused:
            shop.refused(method, path, body, status=403, code="forbidden")
        assert [topic["topic"] for topic in shop.ok("GET", "/v0/topics")["topics"]] == ["shop.orders"]
        assert shop.get("shop.orders")["config"]["dead_letter"] == "shop.orders.dlq"


def test_a_key_that_only_sends_makes_no_topic(serve: Serve, engine: Holdfast, name: str) -> None:
    http: Caller = serve()
    key = engine.create_key("k", scopes=["send"]).key
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")

    with Topics(http.address, key=key) as sender:
        error = sender.refused(
            "POST", f"/v0/topics/{name}", {"records": [{"data": 1}]}, status=404, code="topic_not_found"
        )

    assert error["detail"]["reason"].endswith("both take a key with the scope admin.")
    assert engine.queues() == []


def test_a_watch_is_opened_by_the_key_that_named_it(serve: Serve, engine: Holdfast, name: str) -> None:
    engine.create_queue(name)
    http: Caller = serve()
    mine, other = (engine.create_key(who, scopes=["consume"]).key for who in ("mine", "other"))
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")

    with Topics(http.address, key=mine) as owner, Topics(http.address, key=other) as stranger:
        path = owner.ok("POST", "/v0/watch", {"topics": {name: {}}})["stream_url"]

        stranger.refused("GET", path, status=401, code="unauthorized")
        assert owner.call("HEAD", path).status_code == 200


def test_a_stream_ends_when_its_key_does(serve: Serve, engine: Holdfast, name: str) -> None:
    engine.create_queue(name)
    http: Caller = serve(heartbeat=0.1)
    made = engine.create_key("w", scopes=["consume"])
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")
    with Topics(http.address, key=made.key) as worker, worker.work(name) as stream:
        engine.revoke_key(made.id)

        event = stream.of("error")

    assert (event.data["code"], event.data["reason"]) == (401, "unauthorized")


@pins(87)
def test_a_watch_ends_when_its_key_does_with_the_same_error(
    serve: Serve, engine: Holdfast, name: str
) -> None:
    engine.create_queue(name)
    http: Caller = serve(heartbeat=0.1)
    made = engine.create_key("w", scopes=["consume"])
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")
    with Topics(http.address, key=made.key) as reader, reader.watch({name: {}}, heartbeat_ms=1000) as watch:
        watch.of("caught-up")
        engine.revoke_key(made.id)

        event = watch.of("error")

        assert watch.next() is None
    assert set(event.data) == {"code", "error", "reason"}
    assert (event.data["code"], event.data["reason"]) == (401, "unauthorized")


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "headers", "status", "code"),
    [
        (b"{", {"content-type": "application/json"}, 400, "invalid_request"),
        (b"\xff", {"content-type": "application/json"}, 400, "invalid_request"),
        (b"{}", {"content-type": "text/plain"}, 415, "unsupported_media_type"),
        (b"{}", {}, 415, "unsupported_media_type"),
        (b"[" * 5000, {"content-type": "application/json"}, 400, "invalid_request"),
    ],
)
def test_a_body_that_is_none_is_refused(
    topics: Topics, name: str, content: bytes, headers: dict[str, str], status: int, code: str
) -> None:
    topics.queue(name)
    topics.append(name, 1)

    topics.refused(
        "POST", f"/v0/topics/{name}/claim", status=status, code=code, content=content, headers=headers
    )

    assert topics.counted(name)["ready"] == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "invalid_request"),
        ({"records": []}, "invalid_request"),
        ({"records": [{}]}, "invalid_request"),
        ({"records": [{"data": 1, "colour": "red"}]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "x" * 201}]}, "invalid_request"),
        ({"records": [{"data": 1, "tag": "\x00"}]}, "invalid_request"),
        ({"records": [{"data": "\x00"}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": "x"}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": {str(n): n for n in range(65)}}]}, "invalid_request"),
        ({"records": [{"data": 1, "meta": {"a": "x" * 16_384}}]}, "invalid_request"),
        ({"records": [{"data": 1}], "idempotency_key": "x" * 201}, "invalid_request"),
        ({"records": [{"data": 1}], "idempotency_key": ""}, "invalid_request"),
        ({"records": [{"data": "x" * 1_048_577}]}, "record_too_large"),
        ({"records": [{"data": 1}] * 10_001}, "batch_too_large"),
    ],
)
def test_a_bad_append_is_refused_and_appends_nothing(topics: Topics, name: str, body: Any, code: str) -> None:
    topics.put(name)

    topics.refused("POST", f"/v0/topics/{name}", body, status=400, code=code)

    assert topics.get(name)["count"] == 0


def test_a_body_over_the_limit_is_too_large(serve: Serve) -> None:
    with Topics(serve(max_body=1024).address) as topics:
        topics.refused(
            "POST",
            "/v0/topics/t",
            {"records": [{"data": "x" * 2000}]},
            status=413,
            code="payload_too_large",
        )


@pytest.mark.parametrize("topic", ["a b", "a%2Fb", "x" * 201, "%C3%A9", "a%00"])
def test_a_bad_name_is_refused(topics: Topics, topic: str) -> None:
    topics.refused("PUT", f"/v0/topics/{topic}", {}, status=400, code="invalid_request")


def test_what_is_not_there_is_said_in_the_words_of_the_dialect(topics: Topics) -> None:
    topics.refused("GET", "/v0/routers", status=404, code="not_found")
    topics.refused("GET", "/v0", status=404, code="not_found")
    error = topics.refused("PATCH", "/v0/topics/t", {}, status=405, code="method_not_allowed")

    assert "PUT" in error["detail"]["reason"]


def test_a_queue_with_several_lanes_cannot_be_read_on(
    topics: Topics, holdfast: Holdfast, name: str
) -> None:
    topics.queue(name)
    holdfast.send(name, 1, priority=5)

    refused: list[tuple[str, Any]] = [
        (f"/v0/topics/{name}/diff", {}),
        ("/v0/watch", {"topics": {name: {}}}),
    ]
    for path, body in refused:
        error = topics.refused("POST", path, body, status=409, code="topic_exists_incompatible")
        assert error["message"] == f'"{name}" has several sequences'

    assert topics.get(name)["count"] == 1


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"type": "stream"}, "Got 'stream'. It takes log, queue."),
        ({"type": "queue", "dead_letter": "SELF"}, "dead_letter takes another topic than this one."),
        ({"dead_letter": "a b", "type": "queue"}, "dead_letter takes the name of a topic, or null for none."),
        ({"cap_records": 2**60}, "cap_records takes 1 to 1,000,000,000,000."),
        ({"cap_records": 2**60, "discard": "reject"}, "cap_records takes 1 to 1,000,000,000."),
        ({"ttl_ms": 2**60}, "It takes at most 3153600000000, 100 years."),
        ({"colour": "red"}, "docs/dialects/topics.md, in Holdfast's documentation, describes this API."),
    ],
)
def test_what_a_field_takes_is_told_in_the_words_of_the_dialect(
    topics: Topics, name: str, config: dict[str, Any], told: str
) -> None:
    wanted = {field: name if value == "SELF" else value for field, value in config.items()}

    error = topics.refused("PUT", f"/v0/topics/{name}", wanted, status=400, code="invalid_request")

    assert told in error["detail"].values()


def test_errors_of_the_engine_are_told_in_the_words_of_the_dialect(topics: Topics, name: str) -> None:
    topics.put(name, type="queue", cap_records=1, discard="reject")
    topics.append(name, 1)

    named = topics.refused("PUT", "/v0/topics/a b", {}, status=400, code="invalid_request")
    missing = topics.refused("GET", "/v0/topics/nowhere", status=404, code="topic_not_found")
    full = topics.refused(
        "POST", f"/v0/topics/{name}", {"records": [{"data": 2}]}, status=422, code="topic_full"
    )
    filled = topics.refused(
        "DELETE", f"/v0/topics/{name}?if_empty=true", status=409, code="topic_not_empty"
    )

    assert (named["message"], named["detail"]["hint"]) == (
        "invalid topic name",
        "A name has 1 to 200 characters out of A-Z a-z 0-9 . _ : -",
    )
    assert missing["detail"] == {
        "reason": "A topic is made by PUT, or by the first POST; both take a key with the scope admin."
    }
    assert full["detail"] == {
        "reason": "It holds 1 of at most 1 records; 1 more do not fit.",
        "hint": "Send again later, or raise cap_records.",
    }
    assert filled["detail"] == {
        "reason": "There are records in it.",
        "hint": "Delete them first, or the topic without if_empty.",
    }


@pytest.mark.parametrize("options", [{}, {"idempotency_key": "k"}])
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_records_have_to_fit_the_schema_of_their_topic(
    topics: Topics, holdfast: Holdfast, name: str, kind: str, options: dict[str, Any]
) -> None:
    topics.put(name, type=kind)
    holdfast.set_schema(name, {"type": "object", "required": ["id"]})
    path = f"/v0/topics/{name}"
    mixed = {"records": [{"data": {"id": 1}}, {"data": {"no": 1}}], **options}
    # What this server remembers may be from before the schema.
    eventually(
        lambda: topics.call("POST", path, {"records": [{"data": {}}]}).status_code == 400,
        what="the server knows the schema",
    )
    before = topics.get(name)["count"]

    topics.refused("POST", path, mixed, status=400, code="invalid_request")

    assert topics.get(name)["count"] == before
    assert len(topics.append(name, {"id": 1}, **options)) == 1


# --- what it is made of --------------------------------------------------------------------------


def test_no_dialect_speaks_sql() -> None:
    sources = list((ROOT / "src" / "holdfast" / "dialects").rglob("*.py"))
    found = [
        f"{path.name}: {line.strip()}"
        for path in sources
        for line in code_of(path)
        if SQL.search(line)
    ]

    assert len(sources) >= 10
    assert found == []


def code_of(path: Path) -> list[str]:
    """The lines of a module that could speak SQL: not comments, docs or imports."""
    text = re.sub(r'""".*?"""', "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [line for line in text.splitlines() if not line.lstrip().startswith(("#", "from ", "import "))]


def test_every_code_that_is_translated_exists() -> None:
    assert set(SAID) <= set(ERRORS)


def test_the_documentation_has_every_status_and_code() -> None:
    text = (DOCS / "dialects" / "topics.md").read_text(encoding="utf-8")
    table = sections(text, 2)["Routes"]
    told = {word for row in rows(table[table.index("| status |") :]) for word in quoted(row[1])}

    said = {code for _, code in SAID.values()} | {"invalid_request", "shutting_down"}
    assert said <= told
    assert told - said <= {"Retry-After", "detail.retry_after_ms"}


def test_the_documentation_has_every_route_with_its_scope() -> None:
    text = (DOCS / "dialects" / "topics.md").read_text(encoding="utf-8")
    table = sections(text, 2)["Routes"]
    told: dict[str, str] = {}
    for row in rows(table[: table.index("| status |")]):
        first, *others = quoted(row[0])
        told[first] = row[1]
        for other in others:
            # "POST …/claim", then the last parts of paths like it.
            told[other if " " in other else f"{first.rpartition('/')[0]}/{other}"] = row[1]

    assert told == {
        f"{endpoint.method} {endpoint.path.replace('{queue}', '{topic}')}": endpoint.scope
        for endpoint in DIALECTS["topics"].endpoints
    }


def test_the_documentation_has_every_field_of_a_request() -> None:
    text = prose((DOCS / "dialects" / "topics.md").read_text(encoding="utf-8"))
    told = {word for row in rows(sections(text, 2)["Requests and answers"]) for word in quoted(row[0])}
    told |= {word for row in rows(sections(text, 2)["Routes"]) for word in quoted(row[-1])}

    kinds = {kind for one in DIALECTS["topics"].endpoints for kind in (one.body, one.query) if kind}
    fields = {name for kind in kinds for name in kind.__struct_fields__}
    assert fields - told <= {"token", "if_empty"}
    assert "?if_empty=true" in told
