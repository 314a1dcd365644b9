"""Connections of deliveries: a host is looked up once, what it means is checked, and that is connected to.

Between the check and the connection nothing is looked up again, so a name that changes its meaning meanwhile
changes nothing. Host and TLS's server name stay those of the URL. A proxy of the environment is not asked.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import Any, TypeAlias

from httpcore import (
    AnyIOBackend,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    ConnectTimeout,
)

from .guard import Address, ForbiddenAddress, Guard

Lookup: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
Connecting: TypeAlias = Callable[[str, Address, int], None]


class LookupFailed(ConnectError):
    """A host means nothing, or nobody says what."""


class GuardedBackend(AsyncNetworkBackend):
    """Connects to what the guard has checked, and to nothing else."""

    def __init__(
        self, guard: Guard, *, lookup: Lookup | None = None, connecting: Connecting | None = None
    ) -> None:
        """lookup: says what a host means; connecting: is told of each connection before it is made."""
        self._guard = guard
        self._lookup = lookup or look_up
        self._connecting = connecting
        self._backend = AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as httpcore calls it
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> AsyncNetworkStream:
        """A connection to the first of a host's addresses that takes one, all of which may be reached."""
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._meant(host, port)
                return await self._connect_first(host, addresses, port, socket_options)
        except TimeoutError:
            raise ConnectTimeout("no connection in time") from None

    async def _meant(self, host: str, port: int) -> Sequence[Address]:
        try:
            addresses: Sequence[Address] = (ip_address(host),)
        except ValueError:
            try:
                addresses = await self._lookup(host, port)
            except OSError:
                raise LookupFailed("the host has no address") from None
        if not addresses:
            raise LookupFailed("the host has no address")
        if not self._guard.allows(host, None, port):
            self._guard.check_all(host, addresses, port)
        return addresses

    async def _connect_first(
        self, host: str, addresses: Sequence[Address], port: int, socket_options: Iterable[Any] | None
    ) -> AsyncNetworkStream:
        problem: Exception | None = None
        for address in addresses:
            if self._connecting is not None:
                self._connecting(host, address, port)
            try:
                return await self._backend.connect_tcp(str(address), port, socket_options=socket_options)
            except ConnectError as error:
                problem = error
        raise problem or LookupFailed("the host has no address")

    async def connect_unix_socket(self, *_: Any, **__: Any) -> AsyncNetworkStream:
        """Never: no URL of an endpoint names a file."""
        raise ForbiddenAddress("a delivery goes to a host, not to a file")

    async def sleep(self, seconds: float) -> None:
        """A pause between two attempts to connect."""
        await self._backend.sleep(seconds)


async def look_up(host: str, port: int) -> Sequence[Address]:
    """Every address that a host means now, in the order in which to try them."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    # A zone, as in fe80::1%eth0, belongs to link-local addresses alone, and these are not public.
    return tuple(dict.fromkeys(ip_address(str(place[0]).partition("%")[0]) for *_, place in found))
