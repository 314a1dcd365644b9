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
    foreign: tuple[str, ...] = ()  # but for these
    endpoints: tuple[Endpoint, ...]
    refuse: Refuse  # an error, as this dialect says it
    jobs: tuple[Job, ...] = ()  # what servers that offer it do from time to time

    def owns(self, path: str) -> bool:
        """Whether a path is this dialect's."""
        return is_below(path, self.paths) and not is_below(path, self.foreign)


def is_below(path: str, roots: Iterable[str]) -> bool:
    """Whether a path is one of these, or below one."""
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def refusal(scope: Scope, error: Exception) -> Response:
    """An error, as it is said at a path."""
    dialects: Iterable[Dialect] = scope["app"].state.dialects
    for dialect in dialects:
        if dialect.owns(scope["path"]):
            return dialect.refuse(error)
    return error_response(error)
