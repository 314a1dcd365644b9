"""Services through every door.

1. A service is stored sealed, listed without its password, and removed.
2. Queues are asked for, listed, and asked to be removed.
3. No more than 50 queues; none of a service that goes, unless they are to be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast import (
    AsyncHoldfast,
    ServiceInUseError,
    ServiceQueueNotFoundError,
    TooManyServiceQueuesError,
)
from holdfast.server.settings import Settings
from holdfast.vault import KEY_VARIABLE
from tests.conformance.conftest import SECRET_KEY, World
from tests.fix_database import holdfast_database
from tests.fix_http import served

NOWHERE = "postgresql://me:hunter22@127.0.0.1:1/shop"


@pytest.fixture(scope="module")
def world(server_url: str, template_database: str) -> Iterator[World]:
    """A world with a key for secrets; what is asked for in it is not done while it is looked at."""
    with (
        pytest.MonkeyPatch.context() as patch,
        holdfast_database(server_url, template_database) as url,
    ):
        patch.setenv(KEY_VARIABLE, SECRET_KEY)
        with served(Settings(database_url=url, port=0, upkeep=0, task_attempts=1000)) as http:
            yield World(url, http.address)


@pytest.fixture
def service(name: str) -> str:
    """A name that no service has had."""
    return name.lower()


async def test_a_service_is_listed_without_its_password_and_removed(
    client: AsyncHoldfast, service: str
) -> None:
    id = await client.put_service(service, NOWHERE)
    again = await client.put_service(service, NOWHERE)

    found = {each.name: each for each in await client.services()}
    assert (id, found[service].id) == (again, id)
    assert found[service].address == "postgresql://me@127.0.0.1:1/shop"
    assert found["local"].address == "this database"
    assert await client.drop_service(service) is True
    assert await client.drop_service(service) is False


async def test_a_queue_is_asked_for_and_asked_to_go(client: AsyncHoldfast, service: str) -> None:
    id = await client.put_service(service, NOWHERE)

    asked = await client.create_service_queue(service, "orders", max_attempts=7, dlq_enabled=False)
    (listed,) = await client.service_queues(str(id))
    (named,) = await client.service_queues(service, "orders")
    going = await client.delete_service_queue(service, "orders")

    assert (asked.service, asked.service_id, asked.status) == (service, id, "Pending")
    assert (asked.max_attempts, asked.visibility_timeout_seconds, asked.dlq_enabled) == (7, 30, False)
    assert listed.id == named.id == going.id == asked.id
    assert going.status == "Deprovisioning"
    with pytest.raises(ServiceQueueNotFoundError):
        await client.service_queues(service, "bills")


async def test_a_service_with_queues_goes_only_if_they_are_forgotten(
    client: AsyncHoldfast, service: str
) -> None:
    await client.put_service(service, NOWHERE)
    await client.create_service_queue(service, "orders")

    with pytest.raises(ServiceInUseError):
        await client.drop_service(service)
    assert await client.drop_service(service, forget=True) is True


async def test_a_service_has_fifty_queues_at_most(client: AsyncHoldfast, service: str) -> None:
    await client.put_service(service, NOWHERE)
    for n in range(50):
        await client.create_service_queue(service, f"q{n}")

    with pytest.raises(TooManyServiceQueuesError):
        await client.create_service_queue(service, "one-more")
    await client.drop_service(service, forget=True)
