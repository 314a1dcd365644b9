"""Which changes of a schema are compatible, by mode.

none        every change
backward    readers of the new schema can read what was sent under the one before: consumers go first
forward     readers of the schema before can read what is sent under the new one: producers go first
full        both
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from holdfast.client._errors import IncompatibleSchemaError

from .avro_compatibility import unreadable
from .json_compatibility import excluded
from .objection import Objection

MOST_TOLD = 20
SHOWN = 3  # in an error
READS = {"avro": unreadable, "json": excluded}
HINT = (
    "Keep valid what was sent, or set it with compatibility none. What cannot be decided"
    " counts as not compatible: see docs/schemas.md."
)


def objections(mode: str, kind: str, old: Any, new: Any) -> list[Objection]:
    """What speaks against a change, the first few."""
    reads = READS[kind]
    found: list[Iterator[Objection]] = []
    if mode in ("backward", "full"):
        found.append(reads(old, new))
    if mode in ("forward", "full"):
        found.append(told_backwards(reads(new, old)))
    return [each for some in found for each in islice(some, MOST_TOLD)][:MOST_TOLD]


def told_backwards(found: Iterator[Objection]) -> Iterator[Objection]:
    """Objections of the reader of the schema before."""
    for each in found:
        yield Objection(each.path, f"for readers of the version before: {each.reason}")


def other_kind(old: str, new: str) -> Objection:
    """A schema of another kind cannot be compared."""
    return Objection("definition", f"it was a schema of the kind {old}, and is one of the kind {new}")


def incompatible(mode: str, found: list[Objection]) -> IncompatibleSchemaError:
    """The refusal of a change."""
    told = "; ".join(f"{each.path}: {each.reason}" for each in found[:SHOWN])
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return IncompatibleSchemaError("QH108", f"the schema is not {mode} compatible", f"{told}{more}.", HINT)
