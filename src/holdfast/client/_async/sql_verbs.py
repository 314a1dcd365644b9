"""The verbs that need a connection to the database: COPY, LISTEN, and what counts for a transaction."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.client._async.bulk import async_copy_messages
from holdfast.client._async.schema_checks import AsyncCheckedVerbs
from holdfast.client._async.session import AsyncSqlSession
from holdfast.client._async.verbs import AsyncVerbs
from holdfast.client._bulk import COPY_ROWS
from holdfast.client._calls import unqualified
from holdfast.client._concurrency import AsyncMessages
from holdfast.client._rules import KnownRules
from holdfast.client._types import Duration


@unqualified
class AsyncSqlVerbs(AsyncCheckedVerbs, AsyncVerbs):
    """What can be done with queues and messages, over SQL."""

    _session: AsyncSqlSession

    def __init__(self, session: AsyncSqlSession, known: KnownRules | None = None) -> None:
        """known: of the rules of queues already."""
        super().__init__(session)
        self._known = KnownRules() if known is None else known

    async def bulk_send(
        self,
        queue: str,
        messages: AsyncMessages,
        *,
        chunk: int = COPY_ROWS,
        progress: Callable[[int], object] | None = None,
        atomic: bool = True,
    ) -> int:
        """Send any number of payloads or NewMessage values by COPY, and return how many.

        `progress` is called after every chunk with the number sent so far. With atomic=False every chunk
        is committed by itself, so that what was sent before an error stays sent.
        """
        return await async_copy_messages(
            self._session,
            queue,
            messages,
            chunk=chunk,
            progress=progress,
            atomic=atomic,
            look=self._rules,
        )

    async def fast_mode(self) -> None:
        """Let the open transaction, with all that is in it, not wait for the disk when it commits."""
        await self._value(object, "fast_mode")

    async def listen(self, queue: str, patience: Duration | None = None) -> str:
        """Ask for a notification on the next send, for so long; returns the channel to LISTEN on."""
        return await self._value(str, "listen", queue=queue, patience=patience)
