"""One attempt: a request over a kept connection, and an answer of which no more is read than is wanted."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from time import perf_counter

import httpcore

from .connect import GuardedBackend
from .guard import ForbiddenAddress
from .request import Request
from .target import Target

READ_LIMIT = 65_536  # bytes of an answer that are read, so that its connection can be kept
BODY_SECONDS = 5.0  # for them: the status has come, and decides
IDLE_SECONDS = 4.0  # that a connection is kept: receivers close theirs after 5 s and more
EXCERPT = 1_024  # bytes of an answer that failed, where answers are not captured
LONGEST_ERROR = 300  # characters
BROKEN = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, OSError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of an attempt."""

    status: int | None  # None: there was no answer
    latency: float  # seconds, until the answer was there or was given up
    error: str | None
    excerpt: bytes
    retry_after: str | None = None


@dataclass(slots=True, eq=False)
class Pool:
    """Connections, and how many requests are on them."""

    connections: httpcore.AsyncConnectionPool
    used: int = 0
    retired: bool = False


class Line:
    """The connections to one endpoint: kept, HTTP/2 where TLS negotiates it, and nobody else's."""

    def __init__(self, target: Target, backend: GuardedBackend, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._backend = backend
        self._tls = tls
        self._url = httpcore.URL(
            scheme=target.place.scheme,
            host=target.place.host,
            port=target.place.port,
            target=target.place.target,
        )
        self._host = target.place.origin.partition("://")[2]
        self._pool = self._open()

    def _open(self) -> Pool:
        config = self._target.config
        return Pool(
            httpcore.AsyncConnectionPool(
                ssl_context=self._tls or trusting(),
                max_connections=config.concurrency,
                max_keepalive_connections=config.concurrency,
                keepalive_expiry=IDLE_SECONDS,
                http2=self._target.place.scheme == "https",
                network_backend=self._backend,
            )
        )

    async def send(self, request: Request) -> Answer:
        """One attempt, in bounded time; it raises nothing but the caller's cancellation."""
        pool = self._pool
        pool.used += 1
        began = perf_counter()
        try:
            async with asyncio.timeout(self._target.config.timeout) as limit:
                return await self._sent(pool, request, began, limit)
        except TimeoutError:
            return failed(began, "no answer in time")
        except ForbiddenAddress as error:
            return failed(began, f"refused: {error}")
        except BROKEN as error:
            return failed(began, told(error))
        finally:
            pool.used -= 1
            if pool.retired and not pool.used:
                await pool.connections.aclose()

    async def _sent(
        self, pool: Pool, request: Request, began: float, limit: asyncio.Timeout
    ) -> Answer:
        asked = httpcore.Request(
            request.method,
            self._url,
            headers=[
                ("host", self._host),
                ("content-length", str(len(request.body))),
                ("accept-encoding", "identity"),
                *request.headers,
            ],
            content=request.body,
            extensions={"timeout": self._timeouts()},
        )
        response = await pool.connections.handle_async_request(asked)
        # The status decides from here on: what is left of the answer can cost time, and nothing else.
        limit.reschedule(None)
        latency = perf_counter() - began
        head, whole = await beginning(response)
        if not whole and response.extensions.get("http_version") == b"HTTP/2":
            self._retire(pool)
        return self._answer(response, latency, head[: self._wanted(response.status)])

    def _answer(self, response: httpcore.Response, latency: float, excerpt: bytes) -> Answer:
        status = response.status
        asked = next((value for name, value in response.headers if name.lower() == b"retry-after"), None)
        return Answer(
            status=status,
            latency=latency,
            error=None if 200 <= status < 300 else phrase(status),
            excerpt=excerpt,
            retry_after=asked.decode("latin-1") if asked is not None else None,
        )

    def _wanted(self, status: int) -> int:
        """How many bytes of an answer are kept."""
        config = self._target.config
        if config.capture_response:
            return min(config.capture_limit, READ_LIMIT)
        return 0 if 200 <= status < 300 else EXCERPT

    def _retire(self, pool: Pool) -> None:
        """Use these connections for nothing more: over HTTP/2, an answer that was cut off goes on coming."""
        pool.retired = True
        if self._pool is pool:
            self._pool = self._open()

    async def close(self) -> None:
        """Begin nothing more; let go of all connections, as soon as what is on them has ended."""
        self._pool.retired = True
        if not self._pool.used:
            await self._pool.connections.aclose()

    def _timeouts(self) -> dict[str, float]:
        config = self._target.config
        return {
            "connect": min(config.connect_timeout, config.timeout),
            "read": config.timeout,
            "write": config.timeout,
            "pool": config.timeout,
        }


async def beginning(response: httpcore.Response) -> tuple[bytes, bool]:
    """The beginning of an answer's body, and whether that is all of it; what is too much is cut off."""
    read, whole = bytearray(), False
    try:
        with suppress(TimeoutError, *BROKEN):
            async with asyncio.timeout(BODY_SECONDS):
                async for part in response.aiter_stream():
                    read += part
                    if len(read) > READ_LIMIT:
                        break
                else:
                    whole = True
    finally:
        with suppress(*BROKEN):
            await response.aclose()
    return bytes(read), whole


def failed(began: float, error: str) -> Answer:
    """What came of an attempt that got no answer."""
    return Answer(status=None, latency=perf_counter() - began, error=error, excerpt=b"")


def unmade(error: Exception) -> Answer:
    """What came of an attempt for which no request could be made."""
    return Answer(status=None, latency=0.0, error=f"no request: {type(error).__name__}", excerpt=b"")


def told(error: Exception) -> str:
    """What a library says of a broken attempt, in the words of the log."""
    if isinstance(error, httpcore.TimeoutException):
        step = "connect" if isinstance(error, httpcore.ConnectTimeout) else "network"
        return f"{step}: no answer in time"
    if isinstance(error, httpcore.ConnectError):
        return f"connect: {' '.join(str(error).split()) or 'refused'}"[:LONGEST_ERROR]
    if isinstance(error, httpcore.ProtocolError):
        return f"protocol: {' '.join(str(error).split())}"[:LONGEST_ERROR]
    return "network: the connection was lost"


def phrase(status: int) -> str:
    """A status with its name."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


@cache
def trusting() -> ssl.SSLContext:
    """TLS that trusts whom the machine trusts; SSL_CERT_FILE names others."""
    return ssl.create_default_context()
