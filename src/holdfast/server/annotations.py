"""Annotations: what programs keep with queues, and with the defaults of all of them, looked up by name."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import AsyncConnection

from holdfast.client._async.session import run

from .engine import Engine, as_it_is
from .sends import as_tuples

OF_QUEUES = (
    b"select i.queue, i.effective -> 'annotations' from holdfast.queues() i "
    b"where i.effective -> 'annotations' ? %s and i.effective ->> 'kind' = 'queue' order by i.queue"
)
# What a queue does not say itself, it has from the defaults.
OF_DEFAULTS = (
    b"select i.effective #> array['annotations', %s] from holdfast.queues() i "
    b"where not coalesce(i.config -> 'annotations', '{}') ? %s limit 1"
)


class Annotations:
    """Looks up what is kept under a name."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def of_queues(
        self, name: str, connection: AsyncConnection[Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """All annotations of the queues, not logs, that have this one; connection: of a transaction."""
        if connection is not None:
            rows = await run(connection, OF_QUEUES, [name], as_tuples, as_it_is)
        else:
            rows = await self._engine.fetch("queues", OF_QUEUES, [name], as_tuples)
        return {queue: msgspec.json.decode(annotations) for queue, annotations in rows}

    async def of_defaults(self, name: str) -> Any:
        """What the defaults have under a name; None: nothing."""
        rows = await self._engine.fetch("queues", OF_DEFAULTS, [name, name], as_tuples)
        if rows:
            return None if rows[0][0] is None else msgspec.json.decode(rows[0][0])
        async with self._engine.transaction() as connection:  # there is no queue to look at, or to be locked
            found = msgspec.json.decode(await self._engine.configured_defaults(connection, "{}"))
        return found["annotations"].get(name)
