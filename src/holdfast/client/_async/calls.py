"""How a verb is called: by its name and arguments, over some session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client._async.session import AsyncSession

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")


class AsyncCalls:
    """Calls verbs over some session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def _records(self, kind: type[D], verb: str, /, **arguments: Any) -> list[D]:
        return await self._session.records(kind, verb, arguments)

    async def _value(self, kind: type[T], verb: str, /, **arguments: Any) -> T:
        return await self._session.value(kind, verb, arguments)
