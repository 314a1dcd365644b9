# Made from ../_async/schema_checks.py by tools/generate_sync.py: change that file, then run make generate.
"""Over SQL the client checks what it sends, and what a queue's schema is changed to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from holdfast.client._arguments import text
from holdfast.client._errors import SchemaChangedError
from holdfast.client._explain import explained
from holdfast.client._queue_schema import LOOK, InForce, KnownSchemas, SchemaFinding
from holdfast.client._rows import record
from holdfast.client._schema_rules import DEFAULT_KIND, SENDS, findings, refuse_change, refuse_misfits
from holdfast.client._sync.schemas import SchemaVerbs
from holdfast.client._sync.session import SqlSession
from holdfast.client._types import Json

T = TypeVar("T")
TRIES = 5  # of a change, while others change the same


class CheckedVerbs(SchemaVerbs):
    """Sends that are checked against the schemas of queues, which are remembered for some seconds."""

    _session: SqlSession
    _schemas: KnownSchemas

    def _value(self, kind: type[T], verb: str, /, **arguments: Any) -> T:
        if verb in SENDS and (schema := self._schema(arguments["queue"])) is not None:
            refuse_misfits(schema, verb, arguments)
        return super()._value(kind, verb, **arguments)

    def _schema(self, queue: str) -> InForce | None:
        """The schema that a message to a queue has to fit."""
        known = self._schemas.fresh(text("queue", queue))
        if known is not None:
            return known.schema
        state = self._schemas.state
        found = self._look(queue, "send")
        self._schemas.remember(queue, found, state)
        return found

    def _look(self, queue: str, verb: str) -> InForce | None:
        with explained(verb):
            found = self._session.fetch(LOOK, [text("queue", queue)], record(InForce))
        return found[0] if found else None

    def _changed(self, queue: str) -> None:
        """Forget a schema; what a transaction has changed is nothing that others may know of already."""
        if self._session.alone:
            self._schemas.forget(queue)
        else:
            self._schemas = KnownSchemas()

    def set_schema(
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
        for tries in range(TRIES):
            before = self._look(queue, "set_schema")
            refuse_change(before, definition, kind or DEFAULT_KIND, compatibility)
            expected = (before.version if before else 0) if expected_version is None else expected_version
            try:
                return super().set_schema(
                    queue, definition, kind=kind, compatibility=compatibility, expected_version=expected
                )
            except SchemaChangedError:
                # Judged against a version that is none any more. Within a transaction all is over.
                if expected_version is not None or tries == TRIES - 1 or not self._session.alone:
                    raise
            finally:
                self._changed(queue)
        raise AssertionError

    def drop_schema(self, queue: str) -> bool:
        """Let the payloads of a queue be anything; False if it had no schema."""
        try:
            return super().drop_schema(queue)
        finally:
            self._changed(queue)

    def check_schema(
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
        before = self._look(queue, "queue_schema")
        return findings(before, payloads, definition, kind or DEFAULT_KIND, compatibility)
