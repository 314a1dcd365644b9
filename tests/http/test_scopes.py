"""Every route, asked without a key and with a key of each scope: who is let in, and who is not.

1. A route takes one scope, or admin; without a key it is 401, with another scope 403.
2. A key reaches the queues that fit its patterns; what belongs to no queue takes a key for all of them.
3. The queues that a key may see are those that it reaches.
4. What a request names beside the path's queue must be within reach, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from holdfast import Holdfast
from holdfast.server.app import endpoints
from holdfast.server.callers import fits
from holdfast.server.endpoint import Endpoint
from holdfast.server.settings import Settings
from tests.fix_database import fresh_database
from tests.fix_http import Caller, check_error, served

ALL_SCOPES = ("send", "consume", "read", "admin")
ALLOWED: dict[str, set[str]] = {
    "send": {"publish", "publish_batch", "send"},
    "consume": {"ack", "claim", "claims", "extend", "held", "holders", "nack", "next", "now", "read"}
    | {"reject", "release", "work"},
    "read": {"blocked_keys", "browse", "leases", "log_stats", "message", "queue", "queue_stats", "queues"}
    | {"metrics", "read_archive", "rollups", "runs", "samples", "service_queues", "services", "why"},
    "admin": {"configure_defaults", "configure_queue", "create_key", "create_queue", "discard", "discard_key"}
    | {"discard_one", "drop_queue", "keys", "log_delete", "maintain", "pause_queue", "purge", "redrive"}
    | {"repair", "replay", "resume_queue", "revoke_key", "rotate_key", "sweep", "take_rate", "unblock"}
    | {"drop_schema", "set_schema", "drop_seal_key", "set_seal_key"}
    | {"put_service", "drop_service"}
    | {"create_service_queue", "delete_service_queue", "retry_service_queue"}
    | {"create_hook", "configure_hook", "rotate_hook", "drop_hook"},
}
ALLOWED["read"] |= {"hooks", "hook_info", "hook_calls"}
CHANGING_ENDPOINTS = {"create_endpoint", "configure_endpoint", "drop_endpoint", "enable_endpoint"}
CHANGING_ENDPOINTS |= {"disable_endpoint", "rotate_secret", "reset_breaker"}
CHANGING_ENDPOINTS |= {"create_event_type", "drop_event_type", "subscribe", "unsubscribe"}
READING_ENDPOINTS = {"endpoints", "endpoint_info", "endpoint_health", "endpoint_events", "endpoint_attempts"}
READING_ENDPOINTS |= {"event_types", "subscriptions"}
ALLOWED["admin"] |= CHANGING_ENDPOINTS
ALLOWED["read"] |= READING_ENDPOINTS | {"attempts"}
WITH_ANY_KEY = {"check_schema", "docs", "docs_file", "docs_too", "openapi", "queue_schema", "schema_versions"}
WITH_ANY_KEY |= {"seal_keys"}
WITHOUT_A_KEY = {"auth_status", "healthz", "login", "readyz", "receive"}
# Of no queue, and so of all of them.
OF_ALL_QUEUES = {"configure_defaults", "create_key", "keys", "maintain", "repair", "revoke_key", "rotate_key"}
OF_ALL_QUEUES |= {"metrics", "runs", "take_rate"}
OF_ALL_QUEUES |= {"put_service", "services", "drop_service", "create_service_queue", "service_queues"}
OF_ALL_QUEUES |= {"delete_service_queue", "retry_service_queue"}
OF_ALL_QUEUES |= {"create_hook", "configure_hook", "rotate_hook", "drop_hook"}
OF_ALL_QUEUES |= {"hooks", "hook_info", "hook_calls"}
OF_ALL_QUEUES |= CHANGING_ENDPOINTS | READING_ENDPOINTS | {"publish", "publish_batch"}

ENDPOINTS = {endpoint.name: endpoint for endpoint in endpoints()}


@dataclass(frozen=True, slots=True)
class Guarded:
    """A server, and a key for each scope: for all queues, and for the queue orders alone.

    Queues come and go: what is asked here may drop them.
    """

    caller: Caller
    keys: dict[str, str]
    limited: dict[str, str]

    def ask(self, endpoint: Endpoint, key: str | None, queue: str = "orders") -> httpx.Response:
        """Ask for something that is wrong in other respects, as far as it takes a body or a query."""
        parts = {"id": "x", "key_id": "x", "file": "x", "service": "local", "name": "none"}
        parts |= {"hook": "none", "slug": "none", "endpoint": "none"}
        path = endpoint.path.format(queue=queue, **parts)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        body = {"json": {"nonsense": 1}} if endpoint.body else {}
        query = {"nonsense": "1"} if endpoint.query else {}
        response = self.caller.client.request(
            endpoint.method,
            path,
            headers=headers,
            params=query,
            **body,  # type: ignore[arg-type]
        )
        if not response.is_success:
            check_error(response)
        return response


@pytest.fixture(scope="module")
def guarded(server_url: str, template_database: str) -> Iterator[Guarded]:
    """One server for the whole module."""
    with (
        fresh_database(server_url, template_database) as url,
        Holdfast(url) as engine,
        served(Settings(database_url=url, port=0, upkeep=0)) as caller,
    ):
        engine.create_queue("orders")
        engine.create_queue("bills")
        yield Guarded(
            caller,
            {scope: engine.create_key(scope, scopes=[scope]).key for scope in ALL_SCOPES},
            {scope: engine.create_key(scope, scopes=[scope], queues=["orders"]).key for scope in ALL_SCOPES},
        )


def scope_of(name: str) -> str:
    """The scope that a route takes; where any will do, the least."""
    return next((scope for scope, names in ALLOWED.items() if name in names), "send")


NEEDING_A_KEY = sorted(set(ENDPOINTS) - WITHOUT_A_KEY)


def test_the_table_names_every_route() -> None:
    named = [name for names in (*ALLOWED.values(), WITH_ANY_KEY) for name in names]

    assert sorted(named) == NEEDING_A_KEY


@pytest.mark.parametrize("name", NEEDING_A_KEY)
def test_a_route_without_a_key_is_401(guarded: Guarded, name: str) -> None:
    assert guarded.ask(ENDPOINTS[name], None).status_code == 401
    assert guarded.ask(ENDPOINTS[name], "hf_wrong").status_code in (401, 429)


@pytest.mark.parametrize("name", sorted(WITHOUT_A_KEY))
def test_a_route_that_needs_no_key_takes_any_or_none(guarded: Guarded, name: str) -> None:
    answers = {guarded.ask(ENDPOINTS[name], key).status_code for key in (None, "hf_wrong")}

    assert answers <= {200, 404, 422}  # 404: nobody has this slug


@pytest.mark.parametrize("scope", ALL_SCOPES)
@pytest.mark.parametrize("name", NEEDING_A_KEY)
def test_a_key_may_what_its_scope_allows_and_admin_everything(
    guarded: Guarded, name: str, scope: str
) -> None:
    response = guarded.ask(ENDPOINTS[name], guarded.keys[scope])

    is_allowed = name in WITH_ANY_KEY or scope in (scope_of(name), "admin")
    assert (response.status_code not in (401, 403)) == is_allowed, response.text


@pytest.mark.parametrize("name", NEEDING_A_KEY)
def test_a_key_for_some_queues_reaches_those_and_nothing_that_belongs_to_none(
    guarded: Guarded, name: str
) -> None:
    key, endpoint = guarded.limited[scope_of(name)], ENDPOINTS[name]

    here = guarded.ask(endpoint, key, "orders").status_code
    there = guarded.ask(endpoint, key, "bills").status_code

    of_a_queue = "{queue}" in endpoint.path
    assert (here == 403) == (name in OF_ALL_QUEUES)
    assert (there == 403) == (of_a_queue or name in OF_ALL_QUEUES)


def test_a_key_sees_the_queues_that_it_reaches(guarded: Guarded) -> None:
    def seen(key: str) -> set[str]:
        with guarded.caller.with_key(key) as caller:
            return {queue["queue"] for queue in caller.ok("GET", "/v1/queues")["queues"]}

    with guarded.caller.with_key(guarded.keys["admin"]) as admin:
        for queue in ("orders", "bills"):
            admin.call("PUT", f"/v1/queues/{queue}")

    assert seen(guarded.limited["read"]) == {"orders"}
    assert seen(guarded.keys["read"]) >= {"orders", "bills"}


def test_a_queue_that_is_out_of_reach_is_not_told_from_one_that_is_not_there(guarded: Guarded) -> None:
    with guarded.caller.with_key(guarded.limited["read"]) as caller:
        there = caller.refused("GET", "/v1/queues/bills", status=403, code="QH921")
        nowhere = caller.refused("GET", "/v1/queues/nowhere", status=403, code="QH921")

    assert str(there).replace("bills", "") == str(nowhere).replace("nowhere", "")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/queues/orders/redrive", {"target": "bills"}),
        ("POST", "/v1/queues/orders/replay", {"target": "bills"}),
        ("PUT", "/v1/queues/orders", {"dead_letter": "bills"}),
        ("PATCH", "/v1/queues/orders", {"dead_letter": "bills"}),
        ("PATCH", "/v1/queues/orders", b'{"dead_letter": "orders", "dead\\u005fletter": "bills"}'),
    ],
)
def test_no_message_is_led_out_of_a_key_s_reach(
    guarded: Guarded, method: str, path: str, body: dict[str, str] | bytes
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    with guarded.caller.with_key(guarded.limited["admin"]) as caller:
        error = caller.refused(method, path, status=403, code="QH921", content=content, headers=headers)

    assert error["detail"] == "It takes the scope admin for the queue bills."


@pytest.mark.parametrize(
    ("pattern", "queue", "does"),
    [
        ("orders", "orders", True),
        ("orders", "orders.dlq", False),
        ("orders", "Orders", False),
        ("orders*", "orders", True),
        ("orders*", "orders.dlq", True),
        ("orders*", "new-orders", False),
        ("*.dlq", "orders.dlq", True),
        ("*.dlq", "ordersxdlq", False),
        ("a*c*e", "abcde", True),
        ("a*c*e", "abcdef", False),
        ("**", "anything", True),
        ("*", "orders", True),
        ("orders", "orders\n", False),
        ("order?", "orders", False),
        ("order[s]", "orders", False),
        ("order[!x]", "orders", False),
        ("a*" * 100, "a" * 200 + "b", True),
        ("*a" * 100, "a" * 200 + "b", False),
    ],
)
def test_in_a_pattern_a_star_is_anything_and_all_else_is_itself(pattern: str, queue: str, does: bool) -> None:
    assert fits(pattern, queue) is does
