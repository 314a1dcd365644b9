"""The synchronous client under the asynchronous one's interface, so that one scenario tests both."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any, cast

from holdfast import AsyncHoldfast, Client, Transaction


class Twin:
    """Runs every method of a synchronous client in a thread."""

    def __init__(self, client: Client | Transaction) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **options)

        return call

    @property
    def connection(self) -> Connected:
        """The connection of a transaction."""
        assert isinstance(self._client, Transaction)
        return Connected(self._client.connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Twin]:
        """The client's own context manager, entered and left in threads."""
        context: AbstractContextManager[Transaction] = self._client.transaction()
        inner = await asyncio.to_thread(context.__enter__)
        try:
            yield Twin(inner)
        except BaseException:
            if not await asyncio.to_thread(context.__exit__, *sys.exc_info()):
                raise
        else:
            await asyncio.to_thread(context.__exit__, None, None, None)


class Connected:
    """A synchronous connection, with what the scenarios use of it."""

    def __init__(self, connection: Any) -> None:
        self.raw = connection

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.raw, name)
        if not callable(attribute):
            return attribute

        async def call(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(attribute, *arguments, **options)

        return call


def twin(client: Client) -> AsyncHoldfast:
    """A synchronous client that looks like the asynchronous one."""
    return cast(AsyncHoldfast, Twin(client))
