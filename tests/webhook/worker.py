"""A dispatcher as a process of its own, which writes down every address before it connects to it.

    python -m tests.webhook.worker DATABASE_URL CONTACTS_FILE LEASE_SECONDS
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from ipaddress import ip_address

from holdfast.server.service import Service
from holdfast.server.settings import Dispatch, Settings
from holdfast.webhook.guard import Address

METADATA_NAME, METADATA = "metadata.example.com", "169.254.169.254"


async def look_up(host: str, port: int) -> Sequence[Address]:
    """One name, which means what no name should."""
    assert host == METADATA_NAME
    return [ip_address(METADATA)]


async def main(database_url: str, contacts: str, lease: str) -> None:
    """Deliver until it is killed."""
    dispatch = Dispatch(lease=float(lease))
    service = Service(Settings(database_url=database_url, upkeep=0, pool_size=4, dispatch=dispatch))
    file = os.open(contacts, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(host: str, address: Address, port: int) -> None:
        os.write(file, f"{host} {address} {port}\n".encode())

    assert service.dispatcher is not None
    service.dispatcher.connecting, service.dispatcher.lookup = note, look_up
    async with service.running():
        await service.ending.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
