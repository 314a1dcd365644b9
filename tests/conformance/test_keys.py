"""API keys: made, listed, rotated and revoked; over HTTP by somebody who has one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    ApiKeyNotFoundError,
    AsyncHoldfast,
    Holdfast,
    HttpHoldfast,
    InvalidApiKeyError,
    UnauthorizedError,
)
from holdfast.server.settings import Settings
from tests.conformance.conftest import World
from tests.fix_database import holdfast_database
from tests.fix_http import served
from tests.waiting import eventually


@pytest.fixture(scope="module")
def world(server_url: str, template_database: str) -> Iterator[World]:
    """A world whose server asks for a key."""
    with holdfast_database(server_url, template_database) as url:
        with Holdfast(url) as engine:
            key = engine.create_key("everything", scopes=["admin"]).key
        with served(Settings(database_url=url, port=0, upkeep=0)) as http:
            yield World(url, http.address, key)


def works(world: World, key: str) -> bool:
    """Whether the server lets a key in."""
    with HttpHoldfast(world.server_url, key=key, patience=0) as client:
        try:
            client.now()
        except UnauthorizedError:
            return False
        return True


async def test_a_key_opens_the_server_and_is_listed_without_its_secret(
    client: AsyncHoldfast, world: World
) -> None:
    made = await client.create_key(
        "shop ä",
        scopes=["send", "consume"],
        queues=["orders", "orders.*"],
        expires_in=timedelta(days=9),
        rate=5,
        burst=7,
    )

    (listed,) = [key for key in await client.keys() if key.id == made.id]

    assert made.key.startswith("hf_")
    assert made.prefix == made.key[: len(made.prefix)]
    assert made.key not in repr(made)
    assert (listed.name, listed.prefix) == ("shop ä", made.prefix)
    assert (sorted(listed.scopes), listed.queues) == (["consume", "send"], ["orders", "orders.*"])
    assert (listed.rate, listed.burst, listed.revoked_at) == (5.0, 7, None)
    assert listed.expires_at is not None
    assert listed.expires_at - listed.created_at == timedelta(days=9)


async def test_a_key_is_made_for_all_queues_and_without_end(client: AsyncHoldfast, world: World) -> None:
    made = await client.create_key("all", scopes=["read", "admin"])

    (listed,) = [key for key in await client.keys() if key.id == made.id]

    assert (listed.queues, listed.expires_at, listed.rate, listed.burst) == (["*"], None, None, None)
    assert works(world, made.key)


async def test_a_rotated_key_has_another_secret(client: AsyncHoldfast, world: World) -> None:
    made = await client.create_key("rotated", scopes=["admin"])

    kept = await client.rotate_key(made.id, grace=timedelta(hours=1))
    last = await client.rotate_key(made.id)

    assert {made.id, kept.id, last.id} == {made.id}
    assert len({made.key, kept.key, last.key}) == 3
    assert works(world, last.key)
    eventually(lambda: not works(world, kept.key), what="the old secret is forgotten")


async def test_a_revoked_key_opens_nothing(client: AsyncHoldfast, world: World) -> None:
    made = await client.create_key("revoked", scopes=["admin"])
    assert works(world, made.key)

    assert await client.revoke_key(made.id) is True
    assert await client.revoke_key(made.id) is False

    eventually(lambda: not works(world, made.key), what="the key is forgotten")
    (listed,) = [key for key in await client.keys() if key.id == made.id]
    assert listed.revoked_at is not None


@pytest.mark.parametrize(
    "options",
    [
        {"scopes": []},
        {"scopes": ["everything"]},
        {"scopes": ["send"], "queues": []},
        {"scopes": ["send"], "queues": ["a b"]},
        {"scopes": ["send"], "expires_in": 0},
        {"scopes": ["send"], "expires_in": timedelta(days=9999)},
        {"scopes": ["send"], "burst": 5},
        {"name": "", "scopes": ["send"]},
        {"name": "x" * 65, "scopes": ["send"]},
        {"name": "a\0b", "scopes": ["send"]},
        {"scopes": ["send"], "queues": ["\0"]},
    ],
    ids=ascii,
)
async def test_a_key_that_cannot_be_is_refused(client: AsyncHoldfast, options: dict[str, Any]) -> None:
    before = await client.keys()

    with pytest.raises(InvalidApiKeyError) as caught:
        await client.create_key(**{"name": "shop", **options})

    assert caught.value.code == "QH901"
    assert [key.id for key in await client.keys()] == [key.id for key in before]


async def test_a_key_that_is_not_there_is_refused(client: AsyncHoldfast) -> None:
    for call in (client.rotate_key(10**12), client.revoke_key(10**12)):
        with pytest.raises(ApiKeyNotFoundError):
            await call
