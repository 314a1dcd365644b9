"""What a route is: a method and a path, what it takes and answers with, and who may call it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from starlette.requests import Request

from holdfast.wire.routes import ROUTES

if TYPE_CHECKING:
    from .callers import Caller
    from .service import Service

B = TypeVar("B")

SEND, CONSUME, READ, ADMIN = "send", "consume", "read", "admin"
ANY = "any"  # whatever a key is for


@dataclass(frozen=True, slots=True)
class Call(Generic[B]):
    """One request to a route: who calls, and what was understood of it."""

    service: Service
    request: Request
    caller: Caller
    asked: B  # the body, or the query
    queue: str  # of the path; "" where it names none

    def part(self, name: str) -> str:
        """A part of the path."""
        return str(self.request.path_params[name])


Handler: TypeAlias = Callable[[Call[Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One route of the native API."""

    method: str
    path: str
    scope: str | None  # None: without a key
    handler: Handler
    body: type[Any] | None = None
    query: type[Any] | None = None
    needs_body: bool = False  # a request without a body is refused, and is not one without fields
    answer: Any = None
    status: int = 200
    told: bool = True  # in the OpenAPI document
    write: Callable[[Any], Any] | None = None  # makes the answer of what the handler returns
    query_key: bool = False  # on loopback a query may have the key as `token`: browsers send no headers
    takes_if_match: bool = False
    takes_idempotency_key: bool = False
    anywhere: bool = False  # whatever queues the key is for; without a queue in the path, it takes all

    @property
    def is_strict(self) -> bool:
        """Whether what it does not take is refused; others are pages, or as another API has them."""
        return self.path.startswith("/v1/")

    @property
    def name(self) -> str:
        """What it is called."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """What it does, in a sentence."""
        return self._said[0]

    @property
    def description(self) -> str:
        """What else is to be known of it."""
        return self._said[2]

    @property
    def _said(self) -> tuple[str, str, str]:
        return cleandoc(self.handler.__doc__ or "").partition("\n\n")


Register: TypeAlias = Callable[[Handler], Handler]


class Book:
    """The routes of one noun."""

    def __init__(self, noun: str) -> None:
        self.noun = noun
        self.endpoints: list[Endpoint] = []

    def verb(self, scope: str, **options: Any) -> Register:
        """Register the handler of a verb, which returns what the verb returns."""

        def register(handler: Handler) -> Handler:
            route = ROUTES[handler.__name__]
            return self.add(
                route.method,
                route.path,
                scope,
                body=route.body,
                query=route.query,
                answer=route.answer.type,
                status=route.status,
                write=route.answer.write,
                **options,
            )(handler)

        return register

    def add(self, method: str, path: str, scope: str | None, **options: Any) -> Register:
        """Register a handler that is no verb's, and returns the answer itself."""

        def register(handler: Handler) -> Handler:
            self.endpoints.append(Endpoint(method=method, path=path, scope=scope, handler=handler, **options))
            return handler

        return register
