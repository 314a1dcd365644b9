"""The few things that differ between tasks and threads, in pairs: AsyncX, and X for the generated client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import suppress
from typing import Any, TypeAlias

from ._arguments import several
from ._types import Delivery

AsyncMessages: TypeAlias = Iterable[Any] | AsyncIterable[Any]
Messages: TypeAlias = Iterable[Any]

AsyncDeliveries: TypeAlias = AsyncGenerator[Delivery, None]
Deliveries: TypeAlias = Generator[Delivery, None, None]

AsyncLock = asyncio.Lock
Lock = threading.Lock


async def async_each(messages: AsyncMessages) -> AsyncIterator[Any]:
    """Walk over either kind of iterable."""
    if isinstance(messages, AsyncIterable):
        async for message in messages:
            yield message
    else:
        for message in several("messages", messages):
            yield message


def each(messages: Messages) -> Iterator[Any]:
    """Walk over an iterable."""
    return iter(several("messages", messages))


class AsyncSignal:
    """Something to wait for, with a time limit."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake whoever waits, or will wait."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109 - the twin of threading.Event.wait
        """Wait until it is set, and take it back; False when time ran out."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), timeout)
        was_set = self._event.is_set()
        self._event.clear()
        return was_set


class Signal:
    """Something to wait for, with a time limit."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Wake whoever waits, or will wait."""
        self._event.set()

    def wait(self, timeout: float) -> bool:
        """Wait until it is set, and take it back; False when time ran out."""
        was_set = self._event.wait(min(timeout, threading.TIMEOUT_MAX))
        self._event.clear()
        return was_set


class AsyncBackground:
    """A loop that runs beside the caller."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        self._task = asyncio.create_task(run(), name=name)

    async def end(self) -> None:
        """Break the loop off and wait until it has ended."""
        self._task.cancel()
        await asyncio.wait({self._task})


class Background:
    """A loop that runs beside the caller; a thread can't be broken off, so the loop must end by itself."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until the loop has ended."""
        self._thread.join()
