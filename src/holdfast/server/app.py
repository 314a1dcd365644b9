"""The application: every endpoint behind one way in and one way out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.client import MethodNotAllowedError, NoSuchRouteError
from holdfast.client._arguments import text
from holdfast.client._requests import check_name
from holdfast.dialects import DIALECTS, chosen
from holdfast.wire.requests import Nothing

from .answering import JsonResponse, error_response
from .conditions import refuse_conditions, refuse_key
from .credentials import with_query_key
from .dialect import Dialect, Refuse, refusal
from .endpoint import Call, Endpoint
from .frame import Frame
from .reading import check_media, has_body, parse_body, parse_query, read_body
from .routes import BOOKS
from .service import Service
from .settings import Settings
from .visit import Visit

Handle = Callable[[Request], Awaitable[Response]]


def make_app(settings: Settings) -> Starlette:
    """The ASGI application of one server process."""
    dialects = chosen(settings.dialects, everything=settings.on_loopback)
    jobs = [job for dialect in dialects for job in dialect.jobs]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Service(settings, jobs).running() as running:
            app.state.service = running
            yield

    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.cors,
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["Allow", "ETag", "Retry-After", "X-Request-ID"],
    )
    app = Starlette(
        routes=routes(dialects),
        lifespan=lifespan,
        middleware=[Middleware(Frame), *([cors] if settings.cors else [])],
        exception_handlers={HTTPException: refuse_path},
    )
    app.state.dialects = dialects
    app.router.redirect_slashes = False  # a path with a slash too many is another path
    return app


def endpoints() -> Iterable[Endpoint]:
    """Every endpoint of the native API."""
    return (endpoint for book in BOOKS for endpoint in book.endpoints)


def routes(dialects: Iterable[Dialect] = ()) -> list[Route]:
    """One route for each path, so that a method it does not take is told all that it takes."""
    by_path: dict[str, dict[str, Handle]] = {}
    for endpoint in endpoints():
        by_path.setdefault(endpoint.path, {})[endpoint.method] = handler(endpoint)
    for dialect in dialects:
        for endpoint in dialect.endpoints:
            by_path.setdefault(endpoint.path, {})[endpoint.method] = handler(endpoint, dialect.refuse)
    return [as_route(path, handlers) for path, handlers in by_path.items()]


def as_route(path: str, handlers: dict[str, Handle]) -> Route:
    """The handlers of one path, by method: HEAD is a GET without the body, OPTIONS tells the methods."""
    if "GET" in handlers:
        handlers["HEAD"] = handlers["GET"]
    allowed = ", ".join(sorted([*handlers, "OPTIONS"]))

    async def tell(request: Request) -> Response:
        return Response(status_code=204, headers={"Allow": allowed})

    handlers["OPTIONS"] = tell

    async def handle(request: Request) -> Response:
        return await handlers[request.method](request)

    return Route(path, handle, methods=list(handlers))


def handler(endpoint: Endpoint, refuse: Refuse = error_response) -> Handle:
    """What a request to an endpoint goes through: who, what, do it, answer."""

    async def handle(request: Request) -> Response:
        service: Service = request.app.state.service
        visit: Visit = request.scope["visit"]
        visit.route = endpoint.path
        try:
            service.refuse_if_ending()
            visit.queue = queue = text("queue", request.path_params.get("queue", ""))
            if endpoint.query_key and service.settings.on_loopback:
                request.scope["headers"] = with_query_key(
                    request.scope["headers"], request.scope["query_string"]
                )
            caller = await service.door.admit(request, endpoint.scope, None if endpoint.anywhere else queue)
            if queue and endpoint.is_strict:
                check_name(queue)
            if endpoint.is_strict:
                refuse_key(request, takes_key=endpoint.takes_idempotency_key)
            refuse_conditions(request, takes_if_match=endpoint.takes_if_match)
            asked = await understood(endpoint, request, service.settings.max_body)
            answer = await endpoint.handler(Call(service, request, caller, asked, queue))
            return answered(endpoint, answer)
        except Exception as error:
            return refuse(error)

    return handle


def answered(endpoint: Endpoint, answer: Any) -> Response:
    """What a handler returned, as a response; one that is a response already stays as it is."""
    if isinstance(answer, Response):
        return answer
    return JsonResponse(answer if endpoint.write is None else endpoint.write(answer), endpoint.status)


async def understood(endpoint: Endpoint, request: Request, most: int) -> Any:
    """What a request asks for, by its body or its query."""
    asked = None
    if endpoint.is_strict or endpoint.query is not None:
        asked = parse_query(request, endpoint.query or Nothing, endpoint.body)
    if endpoint.body is None and not (endpoint.is_strict and has_body(request)):
        return asked
    body = await read_body(request, most)
    check_media(request, body)
    given = parse_body(body, endpoint.body or Nothing)
    return asked if endpoint.body is None else given


def nothing_there(path: str, offered: Iterable[Dialect]) -> NoSuchRouteError:
    """The refusal of a path; one of a dialect that is not offered could be there."""
    hint = "See /docs."
    for dialect in DIALECTS.values():
        if dialect not in offered and dialect.owns(path):
            hint = f"The dialect {dialect.name} is off here: HOLDFAST_DIALECTS={dialect.name} offers it."
    return NoSuchRouteError("QH914", "nothing is at this path", f"Got {path[:200]!r}.", hint)


async def refuse_path(request: Request, error: Exception) -> Response:
    """A path or a method that is not there."""
    assert isinstance(error, HTTPException)
    if error.status_code != 405:
        return refusal(request.scope, nothing_there(request.scope["path"], request.app.state.dialects))
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    response = refusal(
        request.scope,
        MethodNotAllowedError("QH915", "the path does not take this method", f"It takes {allowed}."),
    )
    response.headers["Allow"] = allowed
    return response
