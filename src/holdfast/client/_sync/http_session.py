# Made from ../_async/http_session.py by tools/generate_sync.py: change that file, then run make generate.
"""Verbs over HTTP: each is a request, which is repeated where that is safe."""

from __future__ import annotations

import logging
import random
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

import httpx

from holdfast.client._answers import read_answer, read_delivery, read_refusal
from holdfast.client._concurrency import Deliveries
from holdfast.client._errors import (
    EndpointNotFoundError,
    HookNotFoundError,
    MessageNotFoundError,
    NoSchemaError,
    OutcomeUnknownError,
    RequestError,
    TooManyRequestsError,
    UnavailableError,
)
from holdfast.client._events import Events
from holdfast.client._requests import Request, event_request, request
from holdfast.client._sync.session import Reader
from holdfast.client._traces import current_trace
from holdfast.client._urls import without_secrets

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")

CONNECT_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds between two tries
SILENCE_SECONDS = 60.0  # without even a heartbeat a stream is taken for lost
# The request was not sent.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

logger = logging.getLogger("holdfast.client")


class HttpSession:
    """A server that is reached over HTTP, and the connections to it."""

    alone: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        reader: Reader,
        *,
        key: str | None,
        timeout: float,
        patience: float,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        # Certificates take a while to load, and without TLS nobody looks at them.
        verify = ssl_context or url.startswith("https")
        self._client = httpx.Client(base_url=url, headers=headers, verify=verify)
        self._url = without_secrets(url)
        self._reader = reader
        self._timeout = timeout
        self._patience = patience

    def records(self, kind: type[D], verb: str, arguments: Mapping[str, Any]) -> list[D]:
        try:
            return cast("list[D]", self._call(verb, arguments))
        except (MessageNotFoundError, NoSchemaError):
            return []
        except (EndpointNotFoundError, HookNotFoundError):
            if verb not in ("endpoint_info", "hook_info"):
                raise
            return []

    def value(self, kind: type[T], verb: str, arguments: Mapping[str, Any]) -> T:
        found = self._call(verb, arguments)
        return cast(T, found[0] if verb == "send" else found)

    def close(self) -> None:
        self._client.close()

    def _call(self, verb: str, arguments: Mapping[str, Any]) -> Any:
        data = self._answer(request(verb, arguments))
        return read_answer(verb, data, self._reader)

    def _answer(self, asked: Request) -> bytes:
        """The answer to a request, which is repeated for a while where that is safe."""
        until = monotonic() + self._patience
        tries = 0
        while True:
            try:
                return self._try(asked)
            except RequestError as error:
                pause = patient(error, asked, tries, until)
            time.sleep(pause)
            tries += 1

    def _try(self, asked: Request) -> bytes:
        with reached(self._url):
            response = self._client.request(
                asked.method,
                asked.path,
                params=asked.query,
                content=asked.content,
                headers=in_trace({"Content-Type": "application/json"} if asked.content is not None else {}),
                timeout=allowed(self._timeout + asked.wait),
            )
        if not response.is_success:
            raise read_refusal(response.status_code, response.headers.get("retry-after"), response.content)
        return response.content

    def work(self, queue: str, **options: Any) -> Deliveries:
        """What a stream of work pushes; it is opened again whenever it breaks."""
        asked = event_request(queue, options)
        until = monotonic() + self._patience
        tries = 0
        while True:
            events, broken = Events(), None
            try:
                with closing(self._stream(asked, events)) as stream:
                    for delivery in stream:
                        yield delivery
            except RequestError as error:
                broken = error
            if events.retry is not None:  # it was open: from now on it is only a matter of time
                tries, until = 0, float("inf")
            pause = events.retry or 0.0
            if broken is not None:
                pause = max(pause, patient(broken, asked, tries, until))
                logger.warning("work on %s is interrupted: %s", queue, broken.message)
            time.sleep(pause)
            tries += 1

    def _stream(self, asked: Request, events: Events) -> Deliveries:
        """What one connection brings, until the server ends it."""
        headers = in_trace({"Accept": "text/event-stream"})
        opening = self._client.stream(
            asked.method, asked.path, params=asked.query, headers=headers, timeout=allowed(SILENCE_SECONDS)
        )
        with reached(self._url), opening as response:
            if not response.is_success:
                data = response.read()
                raise read_refusal(response.status_code, response.headers.get("retry-after"), data)
            for piece in response.iter_bytes():
                for event in events.feed(piece):
                    if event.name == "message":
                        yield read_delivery(event.data, self._reader)
                    elif event.name == "error":
                        raise read_refusal(response.status_code, None, event.data)


def in_trace(headers: dict[str, str]) -> dict[str, str]:
    """The headers of a request, with the trace that it is made in."""
    return headers | (current_trace() or {})


def allowed(seconds: float) -> httpx.Timeout:
    """How long the steps of a request may take."""
    return httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS))


def patient(error: RequestError, asked: Request, tries: int, until: float) -> float:
    """How long to wait before a request is repeated; raises the error where that is not to be."""
    uncertain = isinstance(error, OutcomeUnknownError) and not asked.repeatable
    if uncertain or not isinstance(error, UnavailableError | TooManyRequestsError):
        raise error
    pause = min(FIRST_PAUSE * 2.0**tries, LONGEST_PAUSE) * random.uniform(0.5, 1.0)
    if error.retry_after is not None:
        pause = error.retry_after
    if monotonic() + pause > until:
        raise error
    return pause


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Say of a server that cannot be reached what that means: nothing was done, or that is not known."""
    try:
        yield
    except NOT_SENT as error:
        raise UnavailableError(
            "QH930",
            f"no server answers at {url}",
            f"{said(error)}. Nothing was done.",
            "Look at the address; holdfast serve starts a server.",
        ) from error
    except httpx.TransportError as error:
        raise OutcomeUnknownError(
            "QH932",
            f"the connection to {url} was lost",
            f"{said(error)}. Whether the request took effect is not known.",
            "Ask again; with an idempotency key nothing is sent again while the first message lives.",
        ) from error


def said(error: Exception) -> str:
    """What httpx says, which may be nothing."""
    return str(error).rstrip(".") or type(error).__name__
