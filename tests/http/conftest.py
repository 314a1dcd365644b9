"""A server for all requests of a module that are refused, and change nothing; and servers without HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from holdfast import Holdfast
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from holdfast.server.ticks import Job
from tests.fix_database import fresh_database
from tests.fix_http import Caller, served

UNTOUCHED = {"ready": 1, "in_flight": 0, "depth": 1, "paused": False}


@pytest.fixture(scope="module")
def refusing(server_url: str, template_database: str) -> Iterator[Caller]:
    """A server with the queue `orders`, which holds one message and must hold it afterwards."""
    with (
        fresh_database(server_url, template_database) as url,
        Holdfast(url) as engine,
        served(Settings(database_url=url, port=0)) as caller,
    ):
        engine.create_queue("orders")
        id = engine.send("orders", "still here")
        yield caller
        found = engine.queue_stats("orders")
        assert {name: getattr(found, name) for name in UNTOUCHED} == UNTOUCHED
        (left,) = engine.browse("orders")
        assert (left.id, left.deliveries) == (id, 0)


class OpenService(Protocol):
    """Starts one more server without HTTP over the test's database; fields of Settings by name."""

    async def __call__(self, *jobs: Job, **settings: Any) -> Service: ...


@pytest.fixture
async def open_service(database_url: str) -> AsyncIterator[OpenService]:
    """Starts servers without HTTP in the test's own loop, which end with the test."""
    async with AsyncExitStack() as stack:

        async def opened(*jobs: Job, **given: Any) -> Service:
            settings = {"database_url": database_url, "upkeep": 0.0, "pool_size": 2, **given}
            return await stack.enter_async_context(Service(Settings(**settings), jobs).running())

        yield opened
