"""FoundryDB: queues on real services, servers of PostgreSQL of their own, and on one that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.embedded import temporary_postgres
from holdfast.server.settings import Settings
from tests.dialects.foundrydb import AGENT, FoundryDb
from tests.dialects.pins import pins
from tests.dialects.test_foundrydb_sql import ACK, Shop
from tests.fix_folder import fast_folder
from tests.fix_http import Caller, served
from tests.fix_server import SETTINGS
from tests.waiting import eventually

NOWHERE = "postgresql://nobody:geheim@127.0.0.1:1/nothing"
OPEN = ("Pending", "Failed")  # how a queue is that cannot be made


@dataclass(frozen=True, slots=True)
class Site:
    """A service, by the dialect, and where it is."""

    foundrydb: FoundryDb
    id: str
    url: str


@pytest.fixture(scope="module")
def native(module_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Caller]:
    """A server whose agent gives up soon, and which makes itself a key that addresses are sealed with."""
    folder = tmp_path_factory.mktemp("keys")
    settings = Settings(
        database_url=module_url, port=0, key_folder=folder, task_attempts=3, task_pause=0.1
    )
    with served(settings) as caller:
        yield caller


def register(native: Caller, name: str, url: str) -> str:
    """Make a service of a server; its id."""
    id: str = native.ok("POST", "/v1/services", {"name": name, "url": url})["id"]
    return id


@pytest.fixture(scope="module")
def sites(native: Caller, foundrydb: FoundryDb) -> Iterator[list[Site]]:
    """Two services, each a server with an empty database."""
    with ExitStack() as stack:
        found = []
        for name in ("north", "south"):
            server = stack.enter_context(temporary_postgres(settings=SETTINGS, inside=fast_folder()))
            url = server.ensure_running()
            id = register(native, name, url)
            found.append(Site(stack.enter_context(foundrydb.of(name)), id, url))
        yield found


@pins(1, 6, 9, 18, 28)
def test_two_services_have_queues_of_their_own(
    foundrydb: FoundryDb, sites: list[Site], holdfast: Holdfast, name: str
) -> None:
    north, south = sites
    for site in sites:
        site.foundrydb.opened(name, max_attempts=2)

    ids = [site.foundrydb.enqueue(name, {"at": site.foundrydb.service}, 2) for site in sites]

    assert [site.foundrydb.get(name)["service_id"] for site in sites] == [site.id for site in sites]
    # The messages are there, and only there.
    assert name not in [queue.queue for queue in holdfast.queues()]
    assert name not in foundrydb.names()
    for site, sent in zip(sites, ids, strict=True):
        shop = Shop(site.url, name)
        with shop.conn, Holdfast(site.url) as native:
            ((id, payload, *_),) = shop.claim_rows(limit=1)
            (delivery,) = native.claim(name, 10)
            assert (id, payload) == (sent[0], {"at": site.foundrydb.service})
            assert (delivery.id, delivery.payload) == (sent[1], 2)
            assert site.foundrydb.stats(name)["inflight_messages"] == 2
            assert shop.count(ACK, id, "worker-1") == 1
            native.ack(name, delivery.token)
    # Nor does the end of one touch the other.
    north.foundrydb.deleted(name)
    assert south.foundrydb.get(name)["status"] == "Active"
    south.foundrydb.deleted(name)


@pins(12)
def test_a_queue_is_made_in_the_database_that_it_names(sites: list[Site], name: str) -> None:
    north = sites[0]
    with psycopg.connect(north.url, autocommit=True) as connection:
        connection.execute("create database warehouse")
    elsewhere = psycopg.conninfo.make_conninfo(north.url, dbname="warehouse")

    made = north.foundrydb.opened(name, database_name="warehouse")
    north.foundrydb.enqueue(name, 1)

    assert made["database_name"] == "warehouse"
    shop = Shop(elsewhere, name)
    with shop.conn:
        assert len(shop.claim()) == 1
    north.foundrydb.deleted(name)


@pins(12, 48, 52)
def test_a_queue_in_a_database_that_is_not_there_fails_and_can_be_asked_for_again(
    sites: list[Site], name: str
) -> None:
    south = sites[1]
    first = south.foundrydb.create(name, database_name="nowhere")
    failed = south.foundrydb.becomes(name, "Failed")
    (listed,) = [queue for queue in south.foundrydb.ok("GET")["queues"] if queue["name"] == name]

    refused = south.foundrydb.refused(
        "POST", f"/{name}/messages", {"messages": [{"payload": 1}]}, status=409, code="QH864"
    )
    with psycopg.connect(south.url, autocommit=True) as connection:
        connection.execute("create database nowhere")
    again = south.foundrydb.create(name, database_name="nowhere", max_attempts=7)
    active = south.foundrydb.becomes(name, "Active")

    assert failed["error_message"].startswith("could not be made: ")
    assert "nowhere" in failed["error_message"]
    assert listed["error_message"] == failed["error_message"]
    assert "Failed" in refused
    assert again.items() >= {"id": first["id"], "status": "Pending", "max_attempts": 7}.items()
    assert "error_message" not in active
    south.foundrydb.deleted(name)


@pins(10, 48)
def test_what_waits_for_a_service_that_is_not_there_takes_no_messages(
    native: Caller, foundrydb: FoundryDb, name: str
) -> None:
    register(native, "gone", NOWHERE)
    with foundrydb.of("gone") as gone:
        created = gone.create(name)
        batch = {"messages": [{"payload": 1}]}

        texts = [
            gone.refused("POST", f"/{name}/messages", batch, status=409, code="QH864"),
            gone.refused("POST", f"/{name}/stats", status=409, code="QH864"),
        ]
        trouble = eventually(
            lambda: gone.get(name).get("error_message"), what="the agent has tried", timeout=AGENT
        )

        assert created["status"] == "Pending"
        assert gone.get(name)["status"] in OPEN
        assert all("is not active" in text for text in texts)
        assert "geheim" not in trouble
