"""One server for all requests of a module that are refused: they change nothing, so it stays as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.server.settings import Settings
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
