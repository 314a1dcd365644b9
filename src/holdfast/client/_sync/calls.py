# Made from ../_async/calls.py by tools/generate_sync.py: change that file, then run make generate.
"""How a verb is called: by its name and arguments, over some session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client._sync.session import Session

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")


class Calls:
    """Calls verbs over some session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _records(self, kind: type[D], verb: str, /, **arguments: Any) -> list[D]:
        return self._session.records(kind, verb, arguments)

    def _value(self, kind: type[T], verb: str, /, **arguments: Any) -> T:
        return self._session.value(kind, verb, arguments)
