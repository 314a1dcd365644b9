"""Inbound hooks: one method for each SQL function. Slugs are hashed and secrets sealed on the way there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.client._arguments import text
from holdfast.client._async.calls import AsyncCalls
from holdfast.client._hooks import (
    SHOWN,
    HookCall,
    HookInfo,
    NewHook,
    RotatedHook,
    hash_of,
    new_secret,
    new_slug,
    path_of,
    sealed,
    sealed_config,
    signing_secret,
    slug,
)
from holdfast.client._types import Duration, Json
from holdfast.vault import Vault


class AsyncHookVerbs(AsyncCalls):
    """What can be done with inbound hooks, over some session."""

    vault: Vault | None = None  # by default that of the environment variable HOLDFAST_SECRET_KEY

    async def create_hook(
        self,
        hook: str,
        config: Mapping[str, Json] | None = None,
        *,
        queue: str | None = None,
        slug: str | None = None,
    ) -> NewHook:
        """Let others post messages to a queue: one of the hook's name unless `queue` names another.

        The answer holds the slug, a new one unless it is given; nobody can tell it again: keep it.
        """
        return await self._create_hook(text("hook", hook), config, queue, slug)

    async def configure_hook(self, hook: str, config: Mapping[str, Json]) -> dict[str, Json]:
        """Change fields of a hook (None: back to the default); returns what is in force, without secrets."""
        return await self._value(
            dict, "configure_hook", hook=hook, config=self._sealed_hook_config(hook, config)
        )

    async def rotate_hook(
        self,
        hook: str,
        *,
        slug: str | bool = False,
        secret: str | bool = False,
        overlap: Duration | None = None,
    ) -> RotatedHook:
        """Give a hook another slug, another signing secret, or both: True makes one, text is taken.

        What was before counts too, for `overlap`. The answer holds what is new: keep it.
        """
        return await self._rotate_hook(hook, slug, secret, overlap)

    async def drop_hook(self, hook: str, *, with_queue: bool = False) -> bool:
        """Remove a hook, and with_queue its queue and the messages in it; False if there was none."""
        return await self._value(bool, "drop_hook", hook=hook, with_queue=with_queue)

    async def hooks(self) -> list[HookInfo]:
        """All hooks, with what is in force, without their slugs and secrets."""
        return await self._records(HookInfo, "hooks")

    async def hook_info(self, hook: str) -> HookInfo | None:
        """One hook; None: there is none of this name."""
        found = await self._records(HookInfo, "hook_info", hook=hook)
        return found[0] if found else None

    async def hook_calls(
        self, hook: str, limit: int | None = None, *, before: int | None = None
    ) -> list[HookCall]:
        """The last calls of a hook, the last first; before: only those with a lower id."""
        return await self._records(HookCall, "hook_calls", hook=hook, limit=limit, before=before)

    def _sealed_hook_config(self, hook: str, config: Any) -> Any:
        """A configuration as it goes to the database."""
        return sealed_config(self.vault or Vault.found(), hook, config)

    async def _create_hook(self, hook: str, config: Any, queue: str | None, given: str | None) -> NewHook:
        """Over SQL the slug is made here, and its hash alone goes to the database."""
        chosen = new_slug() if given is None else slug(given)
        filled = await self._value(
            str,
            "create_hook",
            hook=hook,
            prefix=chosen[:SHOWN],
            hash=hash_of(chosen),
            config=self._sealed_hook_config(hook, config),
            queue=queue,
        )
        return NewHook(hook=hook, queue=filled, slug=chosen, path=path_of(chosen))

    async def _rotate_hook(
        self, hook: str, given: str | bool, secret: str | bool, overlap: Duration | None
    ) -> RotatedHook:
        """Over SQL slug and secret are made here."""
        chosen = new_slug() if given is True else None if given is False else slug(given)
        signing = new_secret() if secret is True else None if secret is False else signing_secret(secret)
        until: Any = await self._value(
            object,
            "rotate_hook",
            hook=hook,
            prefix=None if chosen is None else chosen[:SHOWN],
            hash=None if chosen is None else hash_of(chosen),
            sealed=None if signing is None else sealed(self.vault or Vault.found(), hook, signing),
            overlap=overlap,
        )
        return RotatedHook(slug=chosen, secret=signing, until=until)
