"""Keys over HTTP.

1. A key is made, listed, rotated and revoked; its secret is told once.
2. The same rules hold as in every other door, with the same errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Holdfast
from tests.fix_http import Caller


@pytest.fixture
def admin(http: Caller, engine: Holdfast) -> Iterator[Caller]:
    """A caller who may do everything; its key has the id 1."""
    with http.with_key(engine.create_key("admin", scopes=["admin"]).key) as caller:
        yield caller


def test_the_first_key_is_made_without_one_and_closes_the_server(http: Caller) -> None:
    made = http.ok("POST", "/v1/keys", {"name": "first", "scopes": ["admin"]}, status=201)

    http.refused("GET", "/v1/keys", status=401, code="QH920")
    with http.with_key(made["key"]) as caller:
        assert [key["name"] for key in caller.ok("GET", "/v1/keys")["keys"]] == ["first"]


def test_a_new_key_is_told_once_and_works_at_once(admin: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")

    made = admin.ok("POST", "/v1/keys", {"name": "shop", "scopes": ["send"], "queues": ["ord*"]}, status=201)

    assert set(made) == {"id", "key", "prefix"}
    assert made["key"].startswith(made["prefix"])
    with admin.with_key(made["key"]) as shop:
        shop.send("orders", 1)
    assert made["key"] not in admin.call("GET", "/v1/keys").text


def test_keys_are_listed_with_what_they_may_do(admin: Caller) -> None:
    body = {"name": "shop", "scopes": ["read", "send"], "queues": ["b", "a"], "rate": 1.5, "burst": 3}
    made = admin.ok("POST", "/v1/keys", {**body, "expires_in": "1 day"}, status=201)

    listed = admin.ok("GET", "/v1/keys")["keys"][1]

    times = {name: listed.pop(name) for name in ("created_at", "expires_at")}
    assert listed == {
        "id": made["id"],
        "name": "shop",
        "prefix": made["prefix"],
        "scopes": ["send", "read"],
        "queues": ["a", "b"],
        "rate": 1.5,
        "burst": 3,
        "last_used_at": None,
        "revoked_at": None,
    }
    assert all(times.values())


def test_a_rotated_key_has_another_secret(admin: Caller) -> None:
    made = admin.ok("POST", "/v1/keys", {"name": "shop", "scopes": ["read"]}, status=201)

    rotated = admin.ok("POST", f"/v1/keys/{made['id']}/rotate")

    assert rotated["id"] == made["id"]
    with admin.with_key(made["key"]) as old, admin.with_key(rotated["key"]) as new:
        old.refused("GET", "/v1/queues", status=401, code="QH920")
        new.ok("GET", "/v1/queues")


def test_a_grace_keeps_the_old_secret(admin: Caller) -> None:
    made = admin.ok("POST", "/v1/keys", {"name": "shop", "scopes": ["read"]}, status=201)

    admin.ok("POST", f"/v1/keys/{made['id']}/rotate", {"grace": "1 h"})

    with admin.with_key(made["key"]) as old:
        old.ok("GET", "/v1/queues")


def test_a_revoked_key_is_refused_at_once(admin: Caller) -> None:
    made = admin.ok("POST", "/v1/keys", {"name": "shop", "scopes": ["read"]}, status=201)
    with admin.with_key(made["key"]) as shop:
        shop.ok("GET", "/v1/queues")

        assert admin.ok("DELETE", f"/v1/keys/{made['id']}") == {"revoked": True}

        shop.refused("GET", "/v1/queues", status=401, code="QH920")
    assert admin.ok("DELETE", f"/v1/keys/{made['id']}") == {"revoked": False}


def test_a_key_can_revoke_itself(admin: Caller) -> None:
    admin.ok("DELETE", "/v1/keys/1")

    admin.refused("GET", "/v1/keys", status=401, code="QH920")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/v1/keys", {"scopes": ["send"]}, 422, "QH911"),
        ("POST", "/v1/keys", {"name": "shop"}, 422, "QH911"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": "send"}, 422, "QH911"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["send"], "hash": "x"}, 422, "QH911"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["send"], "expires_in": "soon"}, 422, "QH911"),
        ("POST", "/v1/keys", {"name": "sh\0p", "scopes": ["send"]}, 422, "QH911"),
        ("POST", "/v1/keys", {"name": "", "scopes": ["send"]}, 422, "QH901"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["everything"]}, 422, "QH901"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": []}, 422, "QH901"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["send"], "queues": ["o[rs]"]}, 422, "QH901"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["send"], "expires_in": -1}, 422, "QH901"),
        ("POST", "/v1/keys", {"name": "shop", "scopes": ["send"], "rate": 0}, 422, "QH701"),
        ("POST", "/v1/keys/1/rotate", {"grace": "8 days"}, 422, "QH901"),
        ("POST", "/v1/keys/99/rotate", {}, 404, "QH902"),
        ("POST", "/v1/keys/first/rotate", {}, 422, "QH911"),
        ("DELETE", "/v1/keys/99", None, 404, "QH902"),
        ("DELETE", "/v1/keys/99999999999999999999", None, 422, "QH911"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(
    admin: Caller, engine: Holdfast, method: str, path: str, body: Any, status: int, code: str
) -> None:
    before = engine.keys()

    admin.refused(method, path, body, status=status, code=code)

    assert engine.keys() == before
