"""What may go wrong between an agent and a service, and what is told of it.

1. Whatever an agent runs into, its task ends, and the tasks behind it are done.
2. What will not pass is told at once: a wrong password, a database that is not there, a template.
3. Where the end of a batch got lost, nobody is told that nothing was sent.
4. A clock that was set back keeps no task waiting.
"""

from __future__ import annotations

import psycopg
import pytest

from holdfast import AsyncHoldfast, InvalidServiceError
from holdfast.agent import target
from holdfast.server.service import Service
from tests.agent.conftest import Serve, becomes, ended, patiently, payloads
from tests.agent.test_agent import ready
from tests.fix_proxy import Proxy

LONG_LABEL = "postgresql://holdfast:geheim@" + "a" * 70 + ".example/shop"


async def test_a_host_that_no_resolver_takes_fails_as_one_that_is_not_there(service: Service) -> None:
    await service.engine.put_service("shop", LONG_LABEL)

    await service.services.create_queue("shop", "orders")
    failed = await becomes(service, "orders", "Failed")

    assert failed.error_message
    assert "agents that tried it" not in failed.error_message
    assert "geheim" not in failed.error_message


async def test_a_payload_that_is_nested_deeply_keeps_no_other_waiting(
    service: Service, shop_url: str, database_url: str
) -> None:
    await ready(service, shop_url)
    deep = "[" * 3000 + "]" * 3000
    with psycopg.connect(database_url, autocommit=True) as connection:
        row = connection.execute(
            "select holdfast.enqueue_task('shop', 'orders', %s)", [f'[{{"payload": {deep}}}]']
        ).fetchone()
    assert row is not None
    after = await service.services.enqueue("shop", "orders", [{"payload": "after"}])

    first = await ended(service, "orders", row[0])
    second = await ended(service, "orders", after)

    assert second.status == "completed"
    assert first.attempts == 1
    found = payloads(shop_url, "orders") if first.status == "failed" else []
    assert found in (["after"], [])


async def test_a_wrong_password_is_told_at_once(serve: Serve, shop_url: str) -> None:
    service = await serve(task_attempts=50, task_pause=60.0)
    password = psycopg.conninfo.conninfo_to_dict(shop_url)["password"]
    await service.engine.put_service("shop", shop_url.replace(f":{password}@", ":not-this-one@"))

    await service.services.create_queue("shop", "orders")
    failed = await becomes(service, "orders", "Failed")

    assert "password authentication failed" in (failed.error_message or "")
    assert "not-this-one" not in (failed.error_message or "")


@pytest.mark.parametrize("where", ["named", "own"])
async def test_a_database_that_is_not_there_is_told_at_once(serve: Serve, shop_url: str, where: str) -> None:
    service = await serve(task_attempts=50, task_pause=60.0)
    nowhere = shop_url.rpartition("/")[0] + "/nowhere"
    await service.engine.put_service("shop", shop_url if where == "named" else nowhere)

    await service.services.create_queue("shop", "orders", "nowhere" if where == "named" else None)
    failed = await becomes(service, "orders", "Failed")

    assert "nowhere" in (failed.error_message or "")


@pytest.mark.parametrize("template", ["template0", "template1"])
async def test_templates_stay_as_they_are(serve: Serve, shop_url: str, template: str) -> None:
    service = await serve(task_attempts=50, task_pause=60.0)
    await service.engine.put_service("shop", shop_url)

    await service.services.create_queue("shop", "orders", template)
    failed = await becomes(service, "orders", "Failed")

    assert template in (failed.error_message or "")
    with psycopg.connect(psycopg.conninfo.make_conninfo(shop_url, dbname="template1")) as connection:
        found = connection.execute("select to_regnamespace('holdfast') is null").fetchone()
    assert found == (True,)


async def test_a_lost_commit_is_not_told_as_nothing_sent(serve: Serve, shop_url: str) -> None:
    service = await serve(task_attempts=2)
    proxy = Proxy(target_url=shop_url)
    proxy.open()
    try:
        await ready(service, proxy.url)
        with psycopg.connect(shop_url) as holder:
            # The batch waits within its commit, until the line to the service is cut.
            holder.execute(DEFER)
            holder.execute("select pg_advisory_lock(7)")
            holder.commit()
            task = await service.services.enqueue("shop", "orders", [{"payload": 1}])
            await patiently(lambda: waits(shop_url), what="the batch is being committed")
            proxy.stop()
            holder.execute("select pg_advisory_unlock(7)")
            holder.commit()

        failed = await ended(service, "orders", task)
    finally:
        proxy.close()

    assert failed.status == "failed"
    assert "Whether the messages were sent is not known" in (failed.error_message or "")
    assert payloads(shop_url, "orders") == [1]


DEFER = """
create function public.wait_for_seven() returns trigger language plpgsql as $$
begin perform pg_advisory_lock_shared(7); return null; end $$;
create constraint trigger wait_for_seven after insert on holdfast.message
deferrable initially deferred for each row execute function public.wait_for_seven();
"""


async def waits(url: str) -> bool:
    """Whether somebody waits for the lock."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("select 1 from pg_locks where locktype = 'advisory' and not granted")
        return rows.fetchone() is not None


async def test_a_batch_that_never_reached_the_service_is_told_as_failed_alone(
    serve: Serve, shop_url: str
) -> None:
    service = await serve(task_attempts=2)
    proxy = Proxy(target_url=shop_url)
    proxy.open()
    try:
        await ready(service, proxy.url)
        proxy.stop()
        task = await service.services.enqueue("shop", "orders", [{"payload": 1}])

        failed = await ended(service, "orders", task)
    finally:
        proxy.close()

    assert failed.status == "failed"
    assert "not known" not in (failed.error_message or "")


async def test_a_clock_that_was_set_back_keeps_no_task_waiting(
    serve: Serve, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await home.put_service("shop", shop_url)
    for name in ("put-off", "under-way"):
        await home.create_service_queue("shop", name)
    with psycopg.connect(database_url, autocommit=True) as connection:
        # As it looks after the clock was an hour ahead, and the agent of one of them died.
        connection.execute(
            "update holdfast.service_task set try_at = try_at + interval '1 hour',"
            " updated_at = updated_at + interval '1 hour'"
        )
        connection.execute(
            "update holdfast.service_task t set status = 'running', attempts = 1, lease_until = try_at"
            " from holdfast.service_queue q where q.id = t.queue_id and q.name = 'under-way'"
        )

    service = await serve()

    for name in ("put-off", "under-way"):
        await becomes(service, name, "Active")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:ge@heim@db.example/shop",
        "postgresql://app:ge/heim@db.example/shop",
        "postgresql://app:12/heim@db.example/shop",
        "host=db.example dbname='user=app password=heim'",
    ],
)
async def test_a_password_that_reads_as_something_else_is_refused_and_not_shown(
    home: AsyncHoldfast, url: str
) -> None:
    with pytest.raises(InvalidServiceError) as refused:
        await home.put_service("shop", url)

    assert "heim" not in str(refused.value)
    assert [service.name for service in await home.services()] == ["local"]


async def test_a_service_that_is_deaf_is_left_in_time(
    serve: Serve, shop_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its URL says that there is no limit."""
    monkeypatch.setattr(target, "REACH_SECONDS", 0.5)
    service = await serve(task_attempts=2)
    proxy = Proxy(target_url=shop_url)
    proxy.open()
    try:
        proxy.deafen()
        await service.engine.put_service("shop", proxy.url + "?connect_timeout=0")
        await service.services.create_queue("shop", "orders")

        failed = await becomes(service, "orders", "Failed")
    finally:
        proxy.close()

    assert "did not answer in time" in (failed.error_message or "")
    assert not has_queue_at_all(shop_url)


def has_queue_at_all(url: str) -> bool:
    """Whether Holdfast came into a database."""
    with psycopg.connect(url) as connection:
        return connection.execute("select to_regnamespace('holdfast') is not null").fetchone() == (True,)
