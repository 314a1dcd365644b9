"""Inbound hooks, through every door: they are made, changed, rotated, looked at and dropped.

1. A hook is made with a queue, and its slug is told once; a name or a slug is taken once.
2. Fields are changed and taken back; what holds is told without secrets.
3. Slugs and secrets are replaced, and those before count for a while.
4. A hook goes alone, or with its queue.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import (
    AsyncHoldfast,
    HookExistsError,
    HookInUseError,
    HookNotFoundError,
    InvalidHookError,
)

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLUG = "a-slug-that-somebody-chose"


@pytest.fixture
def hook(queue: str) -> str:
    """A name of its own for each door."""
    return f"{queue}.hook"


async def config(client: AsyncHoldfast, hook: str) -> dict[str, Any]:
    """What holds for a hook."""
    found = await client.hook_info(hook)
    assert found is not None
    return found.config


async def test_a_hook_is_made_with_a_strict_queue(client: AsyncHoldfast, hook: str) -> None:
    made = await client.create_hook(hook)

    found = await client.hook_info(hook)
    assert found is not None
    assert (made.hook, made.queue, made.path) == (hook, hook, f"/wh/{made.slug}")
    assert (found.hook, found.queue, found.enabled, found.secrets) == (hook, hook, True, [])
    assert [(slug["prefix"], slug["expires_at"]) for slug in found.slugs] == [(made.slug[:8], None)]
    assert found.config == {
        "enabled": True,
        "tolerance": 300,
        "idempotency_header": None,
        "idempotency_window": 86_400,
        "max_body": 1_048_576,
        "content_types": None,
        "drop_headers": [],
        "plan": None,
        "rate_limit": None,
        "burst": None,
        "keep_calls": 1_000,
        "lock_timeout": 300,
        "ttl": None,
        "max_deliveries": 5,
        "ordering": "strict",
    }
    assert found in await client.hooks()


async def test_a_hook_fills_a_queue_that_is_there_as_it_is(
    client: AsyncHoldfast, queue: str, hook: str
) -> None:
    made = await client.create_hook(hook, {"ttl": timedelta(days=2)}, queue=queue)

    found = await config(client, hook)
    assert made.queue == queue
    assert (found["ordering"], found["ttl"], found["lock_timeout"]) == ("none", 172_800, 30)


async def test_a_name_or_a_slug_is_taken_once(client: AsyncHoldfast, hook: str) -> None:
    made = await client.create_hook(hook, slug=f"{SLUG}-{hook}".replace(".", "_"))

    with pytest.raises(HookExistsError):
        await client.create_hook(hook)
    with pytest.raises(HookExistsError):
        await client.create_hook(f"{hook}.b", slug=made.slug)
    assert await client.hook_info(f"{hook}.b") is None


async def test_fields_are_changed_and_taken_back(client: AsyncHoldfast, hook: str) -> None:
    await client.create_hook(hook, {"plan": "pro", "lock_timeout": "1 min", "content_types": ["text/*"]})
    before = await config(client, hook)

    now = await client.configure_hook(
        hook, {"rate_limit": 7, "max_deliveries": 4, "content_types": None, "lock_timeout": None}
    )
    back = await client.configure_hook(hook, {"rate_limit": None, "plan": None, "max_deliveries": None})

    assert (before["rate_limit"], before["ttl"], before["max_deliveries"]) == (100, 2_592_000, 10)
    assert (before["lock_timeout"], before["content_types"]) == (60, ["text/*"])
    assert (now["rate_limit"], now["max_deliveries"], now["content_types"], now["lock_timeout"]) == (
        7,
        4,
        None,
        300,
    )
    assert (back["rate_limit"], back["ttl"], back["max_deliveries"]) == (None, None, 5)
    assert await config(client, hook) == back


async def test_slugs_and_secrets_are_replaced(client: AsyncHoldfast, hook: str) -> None:
    made = await client.create_hook(hook, {"signing_secret": SECRET})

    slug = await client.rotate_hook(hook, slug=True, overlap=timedelta(hours=1))
    secret = await client.rotate_hook(hook, secret=True)
    both = await client.rotate_hook(hook, slug=f"{made.slug}-2", secret=SECRET, overlap=0)

    found = await client.hook_info(hook)
    assert found is not None
    assert slug.slug is not None
    assert secret.secret is not None
    assert (slug.slug.startswith("wh_"), slug.secret, secret.slug) == (True, None, None)
    assert secret.secret.startswith("whsec_")
    assert slug.until is not None
    assert secret.until is not None
    assert timedelta(hours=22) < secret.until - slug.until < timedelta(hours=24)
    assert (both.slug, both.secret, both.until) == (f"{made.slug}-2", SECRET, None)
    assert (len(found.slugs), len(found.secrets)) == (1, 1)


async def test_a_hook_goes_alone_or_with_its_queue(client: AsyncHoldfast, hook: str) -> None:
    await client.create_hook(hook)
    await client.create_hook(f"{hook}.b", queue=hook)
    with pytest.raises(HookInUseError):
        await client.drop_queue(hook)
    with pytest.raises(HookInUseError):
        await client.drop_hook(hook, with_queue=True)

    assert await client.drop_hook(f"{hook}.b")
    assert await client.drop_hook(hook, with_queue=True)
    assert not await client.drop_hook(hook)

    assert hook not in [info.queue for info in await client.queues()]
    assert await client.hook_info(hook) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("colour", "red"),
        ("enabled", 1),
        ("tolerance", 0),
        ("tolerance", "soon"),
        ("idempotency_window", "8 days"),
        ("idempotency_header", "a b"),
        ("max_body", -1),
        ("max_body", 1.5),
        ("content_types", ["json"]),
        ("content_types", "text/plain"),
        ("drop_headers", [""]),
        ("plan", "gold"),
        ("rate_limit", 0),
        ("burst", 0),
        ("lock_timeout", "25 hours"),
        ("ttl", 0),
        ("max_deliveries", 1_001),
        ("keep_calls", 10_001),
        ("signing_secret", "hunter22"),
    ],
)
async def test_a_bad_field_is_refused_by_its_name(
    client: AsyncHoldfast, hook: str, field: str, value: Any
) -> None:
    await client.create_hook(hook)
    before = await client.hook_info(hook)

    with pytest.raises(InvalidHookError) as caught:
        await client.configure_hook(hook, {field: value})
    with pytest.raises(InvalidHookError):
        await client.create_hook(f"{hook}.b", {field: value})

    assert field in str(caught.value)
    assert "hunter22" not in f"{caught.value} {caught.value.detail} {caught.value.hint}"
    assert await client.hook_info(hook) == before
    assert await client.hook_info(f"{hook}.b") is None


async def test_bad_names_slugs_and_rotations_are_refused(client: AsyncHoldfast, hook: str) -> None:
    await client.create_hook(hook)

    for call in (
        lambda: client.create_hook("a b"),
        lambda: client.create_hook("b", slug="short"),
        lambda: client.create_hook("b", slug="hunter22 hunter22 hunter22"),
        lambda: client.rotate_hook(hook),
        lambda: client.rotate_hook(hook, slug="short"),
        lambda: client.rotate_hook(hook, secret="short"),
        lambda: client.rotate_hook(hook, slug=True, overlap=timedelta(days=91)),
    ):
        with pytest.raises(InvalidHookError):
            await call()


async def test_a_hook_that_is_not_there_is_said_so(client: AsyncHoldfast, hook: str) -> None:
    for call in (
        lambda: client.configure_hook(hook, {}),
        lambda: client.rotate_hook(hook, slug=True),
        lambda: client.hook_calls(hook),
    ):
        with pytest.raises(HookNotFoundError):
            await call()
    assert await client.hook_info(hook) is None
