"""How a verb is called: a statement over some session, its rows as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.client._async.session import AsyncSession
from holdfast.client._calls import call
from holdfast.client._explain import explained
from holdfast.client._rows import record, scalar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")


class AsyncCalls:
    """Calls SQL functions by name over some session."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def _records(self, kind: type[D], verb: str, **arguments: Any) -> list[D]:
        statement, parameters = call(verb, arguments)
        with explained(verb):
            return await self._session.fetch(statement, parameters, record(kind))

    async def _value(self, kind: type[T], verb: str, **arguments: Any) -> T:
        statement, parameters = call(verb, arguments)
        with explained(verb):
            return (await self._session.fetch(statement, parameters, scalar(kind)))[0]
