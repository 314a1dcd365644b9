"""Over SQL the client holds what it sends to the rules of a queue, and judges what these are changed to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from holdfast.client._arguments import several, text
from holdfast.client._async.schemas import AsyncSchemaVerbs
from holdfast.client._async.seals import AsyncSealVerbs
from holdfast.client._async.session import AsyncSqlSession
from holdfast.client._errors import SchemaChangedError, UnsealedMessageError
from holdfast.client._explain import explained
from holdfast.client._queue_schema import LOOK, InForce, SchemaFinding
from holdfast.client._rows import record
from holdfast.client._rules import LOOK as LOOK_AT_RULES
from holdfast.client._rules import Found, KnownRules, Rules
from holdfast.client._schema_rules import DEFAULT_KIND, SENDS, findings, refuse_change, refuse_misfits
from holdfast.client._seal_rules import check_public_key, sealed_call
from holdfast.client._types import Json

T = TypeVar("T")
TRIES = 5  # of a change, while others change the same


class AsyncCheckedVerbs(AsyncSchemaVerbs, AsyncSealVerbs):
    """Sends that are checked and sealed by the rules of queues, which are remembered for some seconds."""

    _session: AsyncSqlSession
    _known: KnownRules

    async def _value(self, kind: type[T], verb: str, /, **arguments: Any) -> T:
        if verb not in SENDS:
            return await super()._value(kind, verb, **arguments)
        if verb == "send_batch":  # whatever brings them is read once
            arguments["payloads"] = list(several("payloads", arguments["payloads"]))
        rules = await self._rules(arguments["queue"], verb)
        try:
            return await self._sent(kind, verb, rules, arguments)
        except UnsealedMessageError:
            if not self._session.may_wait:  # the transaction is over
                self._known.forget(arguments["queue"])
                raise
            since = await self._rules(arguments["queue"], verb, again=True)
            if since.seal == rules.seal:
                raise
        return await self._sent(kind, verb, since, arguments)

    async def _sent(self, kind: type[T], verb: str, rules: Rules, arguments: dict[str, Any]) -> T:
        if rules.schema is not None:
            refuse_misfits(rules.schema, verb, arguments, hidden=rules.seal is not None)
        if rules.seal is not None:
            verb, arguments = sealed_call(rules.seal, verb, arguments)
        return await super()._value(kind, verb, **arguments)

    async def _rules(self, queue: str, verb: str, *, again: bool = False) -> Rules:
        """What a message to a queue is held to. again: what is known is out of date."""
        if again:
            self._known.forget(queue)
        known = self._known.fresh(text("queue", queue))
        if known is not None:
            return known
        state = self._known.state
        with explained(verb):
            (found,) = await self._session.fetch(LOOK_AT_RULES, [queue], record(Found))
        self._known.remember(queue, found.rules, state)
        return found.rules

    async def _look(self, queue: str, verb: str) -> InForce | None:
        with explained(verb):
            found = await self._session.fetch(LOOK, [text("queue", queue)], record(InForce))
        return found[0] if found else None

    def _changed(self, queue: str) -> None:
        """Forget rules; what a transaction has changed is nothing that others may know of already."""
        if self._session.alone:
            self._known.forget(queue)
        else:
            self._known = KnownRules()

    async def set_seal_key(self, queue: str, public_key: str | bytes) -> str:
        """Have messages sealed with this public key (PEM) from now on; returns its id."""
        check_public_key(public_key)
        try:
            return await super().set_seal_key(queue, public_key)
        finally:
            self._changed(queue)

    async def drop_seal_key(self, queue: str, key_id: str) -> bool:
        """Take a public key from a queue; False if it does not have it."""
        try:
            return await super().drop_seal_key(queue, key_id)
        finally:
            self._changed(queue)

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
        for tries in range(TRIES):
            before = await self._look(queue, "set_schema")
            refuse_change(before, definition, kind or DEFAULT_KIND, compatibility)
            expected = (before.version if before else 0) if expected_version is None else expected_version
            try:
                return await super().set_schema(
                    queue, definition, kind=kind, compatibility=compatibility, expected_version=expected
                )
            except SchemaChangedError:
                # Judged against a version that is none any more. Within a transaction all is over.
                if expected_version is not None or tries == TRIES - 1 or not self._session.alone:
                    raise
            finally:
                self._changed(queue)
        raise AssertionError

    async def drop_schema(self, queue: str) -> bool:
        """Let the payloads of a queue be anything; False if it had no schema."""
        try:
            return await super().drop_schema(queue)
        finally:
            self._changed(queue)

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
        before = await self._look(queue, "queue_schema")
        return findings(before, payloads, definition, kind or DEFAULT_KIND, compatibility)
