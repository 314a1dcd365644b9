"""What is refused: messages that do not fit the schema in force, and changes of it that do not go with it."""

from __future__ import annotations

import json
from collections.abc import Iterable

from holdfast.client._errors import InvalidSchemaError, PayloadMismatchError
from holdfast.client._queue_schema import InForce, SchemaFinding

from .checker import Misfit, checker
from .compatibility import incompatible, objections, other_kind
from .json_values import same
from .objection import Objection

NO_PAYLOAD = Misfit("payload", "is missing")
NO_BODY = Misfit("body", "a queue with a schema takes payloads, and no bodies")
HIDDEN = Misfit("payload", "does not fit; it is to be sealed, so nothing of it is told")
MODES = ("none", "backward", "forward", "full")
KINDS = ("json", "avro")


def misfit(schema: InForce, payload: str | bytes | None, with_body: bool) -> Misfit | None:
    """What is wrong with a message."""
    if with_body:
        return NO_BODY
    return NO_PAYLOAD if payload is None else checker(schema.kind, schema.definition).misfit(payload)


def mismatch(
    schema: InForce, found: Misfit, nth: int | None, *, hidden: bool = False
) -> PayloadMismatchError:
    """The refusal of a message; nth: which of several, counted from 0. hidden: nothing of it is told."""
    place = "" if nth is None else f"messages[{nth}]: "
    found = told(found, hidden)
    return PayloadMismatchError(
        "QH240",
        "the message does not fit the schema of its queue",
        f"{place}{found.path}: {found.reason}.",
        f"Version {schema.version} of the schema is in force; holdfast.queue_schema has it.",
    )


def told(found: Misfit, hidden: bool) -> Misfit:
    """What is said of a misfit: paths and reasons show names and values."""
    return HIDDEN if hidden and found not in (NO_PAYLOAD, NO_BODY) else found


def unfit(schema: InForce, payloads: Iterable[str | bytes]) -> list[SchemaFinding]:
    """Which of several payloads do not fit."""
    check = checker(schema.kind, schema.definition)
    judged = ((index, check.misfit(payload)) for index, payload in enumerate(payloads))
    return [
        SchemaFinding(index=index, path=found.path, reason=found.reason)
        for index, found in judged
        if found is not None
    ]


def check_change(before: InForce | None, definition: str, kind: str, compatibility: str | None) -> None:
    """Refuse a definition that is none, or not compatible with the one in force."""
    found = against(before, definition, kind, compatibility)
    if before is not None and found:
        raise incompatible(compatibility or before.compatibility, found)


def objections_to(
    before: InForce | None, definition: str, kind: str, compatibility: str | None
) -> list[SchemaFinding]:
    """The same as findings; a definition that is none is refused all the same."""
    found = against(before, definition, kind, compatibility)
    return [SchemaFinding(index=None, path=each.path, reason=each.reason) for each in found]


def against(before: InForce | None, definition: str, kind: str, compatibility: str | None) -> list[Objection]:
    """What speaks against a change."""
    known(kind, KINDS, "kind of schema")
    known(compatibility or "none", MODES, "compatibility")
    checker(kind, definition)
    mode = compatibility or (before.compatibility if before else "none")
    if before is None or mode == "none":
        return []
    old, new = json.loads(before.definition), json.loads(definition)
    if before.kind != kind:
        return [other_kind(before.kind, kind)]
    return [] if same(old, new) else objections(mode, kind, old, new)


def known(word: str, words: tuple[str, ...], what: str) -> None:
    """Refuse a word that is none of those."""
    if word not in words:
        raise InvalidSchemaError(
            "QH106", f"there is no such {what}", f"Got {word[:100]!r}.", f"It is one of {', '.join(words)}."
        )
