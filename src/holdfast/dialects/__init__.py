"""Dialects: documented APIs of other systems, over the same engine and the same server.

Each is a package that translates requests, answers and errors, and does nothing else: what a page needs,
and the engine or the server did not have, was added there.
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.server.dialect import Dialect

from . import foundrydb, queue_ti, topics

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (foundrydb.DIALECT, queue_ti.DIALECT, topics.DIALECT)
}


def chosen(names: Sequence[str] | None, *, everything: bool) -> tuple[Dialect, ...]:
    """The dialects of these names; where nothing is said of them, all or none."""
    if names is None:
        return tuple(DIALECTS.values()) if everything else ()
    return tuple(DIALECTS[name] for name in names)
