"""Dialects: other APIs beside the native one, each with paths, requests and errors of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Scope

from .answering import error_response
from .endpoint import Endpoint
from .ticks import Job

Refuse = Callable[[Exception], Response]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """An API that a server offers where it is told to."""

    name: str
    paths: tuple[str, ...]  # what is at them and below is this dialect's
    endpoints: tuple[Endpoint, ...]
    refuse: Refuse  # an error, as this dialect says it
    jobs: tuple[Job, ...] = ()  # what servers that offer it do from time to time

    def owns(self, path: str) -> bool:
        """Whether a path is this dialect's."""
        return any(path == own or path.startswith(f"{own}/") for own in self.paths)


def refusal(scope: Scope, error: Exception) -> Response:
    """An error, as it is said at a path."""
    dialects: Iterable[Dialect] = scope["app"].state.dialects
    for dialect in dialects:
        if dialect.owns(scope["path"]):
            return dialect.refuse(error)
    return error_response(error)
