# Made from ../_async/sql_verbs.py by tools/generate_sync.py: change that file, then run make generate.
"""The verbs that need a connection to the database: COPY, LISTEN, and what counts for a transaction."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.client._bulk import COPY_ROWS
from holdfast.client._calls import unqualified
from holdfast.client._concurrency import Messages
from holdfast.client._rules import KnownRules
from holdfast.client._sync.bulk import copy_messages
from holdfast.client._sync.schema_checks import CheckedVerbs
from holdfast.client._sync.session import SqlSession
from holdfast.client._sync.verbs import Verbs
from holdfast.client._types import Duration


@unqualified
class SqlVerbs(CheckedVerbs, Verbs):
    """What can be done with queues and messages, over SQL."""

    _session: SqlSession

    def __init__(self, session: SqlSession, known: KnownRules | None = None) -> None:
        """known: of the rules of queues already."""
        super().__init__(session)
        self._known = KnownRules() if known is None else known

    def bulk_send(
        self,
        queue: str,
        messages: Messages,
        *,
        chunk: int = COPY_ROWS,
        progress: Callable[[int], object] | None = None,
        atomic: bool = True,
    ) -> int:
        """Send any number of payloads or NewMessage values by COPY, and return how many.

        `progress` is called after every chunk with the number sent so far. With atomic=False every chunk
        is committed by itself, so that what was sent before an error stays sent.
        """
        return copy_messages(
            self._session,
            queue,
            messages,
            chunk=chunk,
            progress=progress,
            atomic=atomic,
            look=self._rules,
        )

    def fast_mode(self) -> None:
        """Let the open transaction, with all that is in it, not wait for the disk when it commits."""
        self._value(object, "fast_mode")

    def listen(self, queue: str, patience: Duration | None = None) -> str:
        """Ask for a notification on the next send, for so long; returns the channel to LISTEN on."""
        return self._value(str, "listen", queue=queue, patience=patience)
