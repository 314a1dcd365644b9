"""The description of the API: for programs, and as a page that loads nothing from anywhere else."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec
from starlette.responses import FileResponse, Response
from swagger_ui_bundle import swagger_ui_path

from holdfast.client import NoSuchRouteError
from holdfast.server.answering import encode
from holdfast.server.endpoint import ANY, Book, Call
from holdfast.server.openapi import document
from holdfast.server.openapi30 import older

OURS = Path(__file__).parents[1] / "page"
THEIRS = Path(swagger_ui_path)
FILES = {
    "start.js": OURS / "start.js",
    **{name: THEIRS / name for name in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")},
}
# Swagger UI sets style attributes, and has pictures inside its style sheet; it needs nothing else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DESCRIPTION = "description.json"
A_DAY = {"Cache-Control": "private, max-age=86400"}

book = Book("documents")


@book.add("GET", "/openapi.json", ANY, answer=dict)
async def openapi(call: Call[None]) -> Response:
    """This description, as an OpenAPI 3.1 document."""
    return Response(written(), media_type="application/json")


@book.add("GET", "/docs", ANY, told=False)
async def docs(call: Call[None]) -> Response:
    """The description as a page for people, which works without the internet."""
    return page()


@book.add("GET", "/docs/", ANY, told=False)
async def docs_too(call: Call[None]) -> Response:
    """The same page."""
    return page()


@book.add("GET", "/docs/{file}", ANY, told=False)
async def docs_file(call: Call[None]) -> Response:
    """A file of the page."""
    name = call.part("file")
    if name == DESCRIPTION:
        return Response(written_for_page(), media_type="application/json")
    if name not in FILES:
        raise NoSuchRouteError("QH914", "nothing is at this path", f"Got {name[:200]!r}.", "See /docs.")
    return FileResponse(FILES[name], headers=A_DAY)


def page() -> Response:
    """The page."""
    return FileResponse(OURS / "index.html", headers={"Content-Security-Policy": POLICY})


@cache
def written() -> bytes:
    """The document, made once."""
    from . import BOOKS

    return encode(document(BOOKS))


@cache
def written_for_page() -> bytes:
    """The document, as Swagger UI reads it."""
    return encode(older(msgspec.json.decode(written())))
