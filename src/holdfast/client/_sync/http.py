# Made from ../_async/http.py by tools/generate_sync.py: change that file, then run make generate.
"""The client over HTTP: the verbs of Holdfast, for programs without a connection to the database."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from holdfast.client._arguments import seconds, text
from holdfast.client._bulk import COPY_ROWS, Tally
from holdfast.client._concurrency import Deliveries, Messages
from holdfast.client._endpoints import RotatedSecret
from holdfast.client._hooks import NewHook, RotatedHook
from holdfast.client._json import reader
from holdfast.client._keys import NewKey
from holdfast.client._sync.bulk import chunks
from holdfast.client._sync.verbs import Verbs
from holdfast.client._types import Delivery, Duration
from holdfast.client._urls import api_key, server_url

if TYPE_CHECKING:
    from holdfast.client._sync.client import Transaction
    from holdfast.client._sync.http_session import HttpSession

SLICE_SECONDS = 20.0  # of a long wait: what proxies in between bear
REQUEST_MESSAGES = 1_000  # in one request
NO_PACKAGES = "a client over HTTP needs more packages: pip install 'holdfast[http]'"
NO_CONNECTION = (
    "{verb} needs a connection to the database, and over HTTP there is none: every call is a transaction "
    "of its own, committed before it returns; use a client with a postgresql:// URL"
)


class HttpHoldfast(Verbs):
    """A client of a Holdfast server, over HTTP. It has the verbs, values and errors of Holdfast."""

    _session: HttpSession

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 30.0,
        patience: float = 10.0,
        ssl_context: ssl.SSLContext | None = None,
        parse_float: Callable[[str], Any] = float,
    ) -> None:
        """Nothing is connected yet: that happens on first use.

        key: an API key; by default that of the environment variable HOLDFAST_API_KEY.
        timeout: how many seconds an answer may take, beside what a claim waits.
        patience: for how many seconds a call is repeated, where that is safe, before its error is raised.
        ssl_context: for https, in place of the certificates that httpx trusts.
        parse_float: makes what a JSON number with a fraction becomes; Decimal keeps every digit.
        """
        try:
            from holdfast.client._sync.http_session import HttpSession
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(NO_PACKAGES, name=error.name) from error
        session = HttpSession(
            server_url(url),
            reader(parse_float),
            key=api_key(key),
            timeout=timeout,
            patience=patience,
            ssl_context=ssl_context,
        )
        super().__init__(session)

    def __enter__(self) -> HttpHoldfast:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a closed client's calls raise RuntimeError."""
        self._session.close()

    def claim(
        self,
        queue: str,
        max: int = 1,
        *,
        lease: Duration | None = None,
        consumer: str | None = None,
        wait: Duration | None = None,
    ) -> list[Delivery]:
        """Take up to `max` messages; with `wait`, stay for so long until there is at least one."""
        until = monotonic() + (0.0 if wait is None else seconds("wait", wait))
        while True:
            left = until - monotonic()
            part = min(left, SLICE_SECONDS) if left > 0 else None
            deliveries = self._records(
                Delivery, "claim", queue=queue, max=max, lease=lease, consumer=consumer, wait=part
            )
            if deliveries or monotonic() >= until:
                return deliveries

    def work(
        self, queue: str, max: int = 1, *, lease: Duration | None = None, consumer: str | None = None
    ) -> Deliveries:
        """Messages as the server pushes them, at most `max` of them in flight.

        Settle each by its token and its id: ack(queue, delivery.token, [delivery.id]). The token alone
        settles everything that was handed out together.

        When the loop ends, and when the connection is lost, the server gives back what is in flight; then
        the stream is opened again.
        """
        return self._session.work(queue, max=max, lease=lease, consumer=consumer)

    def bulk_send(
        self,
        queue: str,
        messages: Messages,
        *,
        chunk: int = COPY_ROWS,
        progress: Callable[[int], object] | None = None,
        atomic: bool = True,
    ) -> int:
        """Send any number of payloads or NewMessage values, 1,000 a request, and return how many.

        Only one request is all or nothing: more messages need atomic=False, where what was sent before an
        error stays sent. `progress` is called after every request with the number sent so far.
        """
        if chunk < 1:
            raise ValueError(f"chunk is a number of messages, at least 1, not {chunk}")
        text("queue", queue)
        sent = Tally(progress)
        # With atomic, one message too many is read, so that too many are refused before any is sent.
        size = REQUEST_MESSAGES + 1 if atomic else min(chunk, REQUEST_MESSAGES)
        for part in chunks(messages, size):
            self.send_many(queue, part)
            sent.add(len(part))
        return sent.total

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Refused: a transaction needs a connection to the database."""
        raise RuntimeError(NO_CONNECTION.format(verb="transaction"))

    def fast_mode(self) -> None:
        """Refused: it counts for a transaction, which needs a connection to the database."""
        raise RuntimeError(NO_CONNECTION.format(verb="fast_mode"))

    def listen(self, queue: str, patience: Duration | None = None) -> str:
        """Refused: LISTEN needs a connection to the database; claims wait by themselves."""
        raise RuntimeError(NO_CONNECTION.format(verb="listen"))

    def _sealed_config(self, endpoint: str, config: Any) -> Any:
        """Over HTTP the server seals."""
        return config

    def _rotate(self, endpoint: str, secret: str | None, overlap: Duration | None) -> RotatedSecret:
        """Over HTTP the server makes the secret, and seals it."""
        made = self._records(
            RotatedSecret, "rotate_secret", endpoint=endpoint, secret=secret, overlap=overlap
        )
        return made[0]

    def _make_key(self, verb: str, **arguments: Any) -> NewKey:
        """Over HTTP the server makes the secret, and answers with it."""
        return (self._records(NewKey, verb, **arguments))[0]

    def _put_service(self, name: str, url: str) -> UUID:
        """Over HTTP the server seals it."""
        return self._value(UUID, "put_service", name=name, url=url)

    def _sealed_hook_config(self, hook: str, config: Any) -> Any:
        """Over HTTP the server seals."""
        return config

    def _create_hook(self, hook: str, config: Any, queue: str | None, given: str | None) -> NewHook:
        """Over HTTP the server makes the slug, and answers with it."""
        made = self._records(NewHook, "create_hook", hook=hook, config=config, queue=queue, slug=given)
        return made[0]

    def _rotate_hook(
        self, hook: str, given: str | bool, secret: str | bool, overlap: Duration | None
    ) -> RotatedHook:
        """Over HTTP the server makes slug and secret, and answers with them."""
        made = self._records(
            RotatedHook, "rotate_hook", hook=hook, slug=given, secret=secret, overlap=overlap
        )
        return made[0]
