"""A way to Redis that is never in the way: a call returns nothing where Redis does not answer at once.

One task keeps a connection that listens on a channel. It alone finds out whether Redis is there, and again:
as long as it is not, nobody asks. What Redis says of a failure has no password in it; the URL is never shown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from .trouble import said

ANSWER_SECONDS = 0.1  # for a call that a request waits for
CONNECT_SECONDS = 2.0  # for one that nobody waits for
QUIET_SECONDS = 1.0  # without a message: then Redis has so long to say that it is there
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0  # until Redis is tried again
STEADY_SECONDS = 30.0  # that it was there; then a failure is a new one
MOST_CONNECTIONS = 64
MISSED = b""  # instead of a message: some may have been missed
SCHEMES = ("redis", "rediss", "unix")
OPTIONS = {"db", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}

Argument = str | bytes | int
Begin = Callable[[], Awaitable[str]]
logger = logging.getLogger("holdfast.server")


def problem_with(url: str) -> str | None:
    """Why this is no URL of a Redis, without what is in it; None: it is one."""
    try:
        parts = urlsplit(url)
        given = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        port = parts.port
    except ValueError:
        return "it is no URL"
    database = given["db"][0] if "db" in given else parts.path.removeprefix("/")
    if parts.scheme not in SCHEMES:
        return "it begins with none of redis://, rediss:// and unix://"
    if parts.scheme == "unix" and not parts.path:
        return "it names no socket"
    if parts.scheme != "unix" and (not parts.hostname or port == 0):
        return "it names no host, or a port that is none"
    if parts.fragment or not given.keys() <= OPTIONS:
        return f"it has options other than {', '.join(sorted(OPTIONS))}"
    is_number = database.isascii() and database.isdigit()
    if database and not is_number and (parts.scheme != "unix" or "db" in given):
        return "its database is no number"
    return None


class RedisLink:
    """Calls of scripts, and messages of one channel."""

    def __init__(self, url: str) -> None:
        options: dict[str, Any] = {
            "socket_connect_timeout": CONNECT_SECONDS,
            # Ours bound each call as a whole; by one of its own a cancellation may get lost (Python 3.11).
            "socket_timeout": None,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
        self._redis = Redis.from_url(url, max_connections=MOST_CONNECTIONS, **options)
        self._ears = Redis.from_url(url, **options)
        self._trouble: Exception | None = None
        self._told = False
        self.is_up = False

    async def call(self, script: str, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """What a script returns; None where Redis does not answer."""
        if not self.is_up:
            return None
        try:
            return await self.ask(script, keys, arguments, patient=False)
        # What is no Redis may say anything, which its client meets with errors of all kinds.
        except Exception as error:
            self.is_up = False
            self._trouble = error
            return None

    async def ask(
        self,
        script: str,
        keys: Sequence[str],
        arguments: Sequence[Argument],
        *,
        patient: bool = True,
    ) -> Any:
        """What a script returns, or an error."""
        async with asyncio.timeout(CONNECT_SECONDS if patient else ANSWER_SECONDS):
            return await self._redis.eval(script, len(keys), *keys, *arguments)

    async def listen(self, begin: Begin, heard: Callable[[bytes], None]) -> None:
        """Keep the connection, for ever, and hand on messages; begin: says of which channel."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            since = monotonic()
            try:
                await self._listen(begin, heard)
            except Exception as error:  # of the database too
                self._end(error)
            if monotonic() - since > STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _listen(self, begin: Begin, heard: Callable[[bytes], None]) -> None:
        channel = await begin()
        async with self._ears.pubsub() as messages:
            async with asyncio.timeout(CONNECT_SECONDS):
                await messages.subscribe(channel)
                await messages.get_message(timeout=CONNECT_SECONDS)
            self._trouble = None
            self.is_up = True
            if self._told:
                logger.warning("Redis answers again")
            self._told = False
            heard(MISSED)
            await self._hear(messages, heard)

    async def _hear(self, messages: PubSub, heard: Callable[[bytes], None]) -> None:
        asked = False
        while self._trouble is None:
            message = await messages.get_message(timeout=QUIET_SECONDS)
            if message is not None:
                asked = False
                if message["type"] == "message":
                    heard(message["data"])
            elif asked:
                raise TimeoutError("no answer")
            else:
                async with asyncio.timeout(QUIET_SECONDS):
                    await messages.ping()
                asked = True
        raise self._trouble

    def _end(self, error: Exception) -> None:
        self.is_up = False
        if not self._told:
            logger.warning("Redis is not used for now: %s", said(error))
        self._told = True

    async def close(self) -> None:
        """Let go of all connections."""
        self.is_up = False
        for client in (self._redis, self._ears):
            with suppress(Exception):
                await client.aclose()
