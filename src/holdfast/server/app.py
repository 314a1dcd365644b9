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

from holdfast.client import HoldfastError, MethodNotAllowedError, NoSuchRouteError

from .answering import JsonResponse, error_response
from .endpoint import Call, Endpoint
from .frame import Frame
from .reading import check_media, parse_body, parse_query, read_body
from .routes import BOOKS
from .service import Service
from .settings import Settings

Handle = Callable[[Request], Awaitable[Response]]


def make_app(settings: Settings) -> Starlette:
    """The ASGI application of one server process."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with Service(settings).running() as running:
            app.state.service = running
            yield

    cors = Middleware(CORSMiddleware, allow_origins=settings.cors, allow_methods=["*"], allow_headers=["*"])
    return Starlette(
        routes=[as_route(endpoint) for endpoint in endpoints()],
        lifespan=lifespan,
        middleware=[Middleware(Frame), *([cors] if settings.cors else [])],
        exception_handlers={HTTPException: refuse_path, Exception: refuse},
    )


def endpoints() -> Iterable[Endpoint]:
    """Every endpoint there is."""
    return (endpoint for book in BOOKS for endpoint in book.endpoints)


def as_route(endpoint: Endpoint) -> Route:
    """An endpoint as Starlette takes it."""
    return Route(endpoint.path, handler(endpoint), methods=[endpoint.method], name=endpoint.name)


def handler(endpoint: Endpoint) -> Handle:
    """What a request to an endpoint goes through: who, what, do it, answer."""

    async def handle(request: Request) -> Response:
        service: Service = request.app.state.service
        try:
            service.refuse_if_ending()
            queue: str = request.path_params.get("queue", "")
            caller = await service.door.admit(request, endpoint.scope, queue)
            asked = await understood(endpoint, request, service.settings.max_body)
            answer = await endpoint.handler(Call(service, request, caller, asked, queue))
            return answered(endpoint, answer)
        except Exception as error:
            return error_response(error)

    return handle


def answered(endpoint: Endpoint, answer: Any) -> Response:
    """What a handler returned, as a response; one that is a response already stays as it is."""
    if isinstance(answer, Response):
        return answer
    return JsonResponse(answer if endpoint.write is None else endpoint.write(answer), endpoint.status)


async def understood(endpoint: Endpoint, request: Request, most: int) -> Any:
    """What a request asks for, by its body or its query."""
    if endpoint.body is not None:
        body = await read_body(request, most)
        check_media(request, body)
        return parse_body(body, endpoint.body)
    if endpoint.query is not None:
        return parse_query(request, endpoint.query)
    return None


async def refuse_path(request: Request, error: Exception) -> Response:
    """A path or a method that is not there."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        refusal: HoldfastError = MethodNotAllowedError(
            "QH915", "the path does not take this method", f"It takes {allowed}."
        )
        response = error_response(refusal)
        response.headers["Allow"] = allowed
        return response
    return error_response(
        NoSuchRouteError("QH914", "nothing is at this path", f"Got {request.url.path[:200]!r}.", "See /docs.")
    )


async def refuse(request: Request, error: Exception) -> Response:
    """Whatever else went wrong."""
    return error_response(error)
