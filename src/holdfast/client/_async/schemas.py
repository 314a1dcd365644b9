"""Schemas of queues: one method for each SQL function, and one that only looks."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.client._async.calls import AsyncCalls
from holdfast.client._queue_schema import QueueSchema, SchemaFinding
from holdfast.client._types import Json


class AsyncSchemaVerbs(AsyncCalls):
    """What can be done with schemas, over some session."""

    async def set_schema(
        self,
        queue: str,
        definition: Json,
        *,
        kind: str | None = None,
        compatibility: str | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Say what the payloads of a queue must look like; returns the version.

        kind: json, for JSON Schema, or avro. compatibility: none, backward, forward or full, at first
        backward; it holds from this change on. expected_version: what is to be in force until then, 0 for
        no schema.
        """
        return await self._value(
            int,
            "set_schema",
            queue=queue,
            definition=definition,
            kind=kind,
            compatibility=compatibility,
            expected_version=expected_version,
        )

    async def drop_schema(self, queue: str) -> bool:
        """Let the payloads of a queue be anything; False if it had no schema."""
        return await self._value(bool, "drop_schema", queue=queue)

    async def queue_schema(self, queue: str) -> QueueSchema | None:
        """The schema that is in force; None: payloads may be anything."""
        found = await self._records(QueueSchema, "queue_schema", queue=queue)
        return found[0] if found else None

    async def schema_versions(self, queue: str) -> list[QueueSchema]:
        """The versions that the schema of a queue had, the newest first."""
        return await self._records(QueueSchema, "schema_versions", queue=queue)

    async def check_schema(
        self,
        queue: str,
        payloads: Iterable[Json] | None = None,
        *,
        definition: Json = None,
        kind: str | None = None,
        compatibility: str | None = None,
    ) -> list[SchemaFinding]:
        """What would be refused, with nothing sent or changed: payloads, by the schema in force.

        With a definition: what speaks against setting it, and payloads by that one.
        """
        return await self._records(
            SchemaFinding,
            "check_schema",
            queue=queue,
            payloads=payloads,
            definition=definition,
            kind=kind,
            compatibility=compatibility,
        )
