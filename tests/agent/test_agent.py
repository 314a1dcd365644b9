"""What agents do on services, with real databases.

1. A queue is made where it was asked for, with its settings; Holdfast is installed there if need be.
2. Asking twice, also after a crash, makes nothing twice; what is somebody else's is refused and stays.
3. A removed queue is gone with its messages and dead letters, and its name is free.
4. A batch is sent whole or not at all, in the order of the request, and once.
5. Figures are those of the queue.
6. A service that is stopped leaves its queues Pending, then Failed, and a retry brings them back.
7. One service that is dead holds up no other.
8. No password is in a table, an answer or a log.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest

from holdfast import (
    AsyncHoldfast,
    Holdfast,
    ServiceQueueExistsError,
    ServiceQueueNotActiveError,
    TaskNotFoundError,
)
from holdfast.embedded import EmbeddedPostgres
from holdfast.server.service import Service
from tests.agent.conftest import Serve, becomes, ended, gone, has_queue, patiently, payloads


async def ready(service: Service, url: str, name: str = "orders", **settings: object) -> None:
    """A service `shop`, and an active queue on it."""
    await service.engine.put_service("shop", url)
    await service.services.create_queue("shop", name, **settings)  # type: ignore[arg-type]
    await becomes(service, name, "Active")


async def test_a_queue_is_made_with_its_settings_where_there_was_no_holdfast(
    service: Service, shop_url: str
) -> None:
    await service.engine.put_service("shop", shop_url)

    asked = await service.services.create_queue("shop", "orders", None, 60, 7, False)
    made = await becomes(service, "orders", "Active")

    assert (asked.status, asked.error_message) == ("Pending", None)
    assert (made.id, made.error_message, made.database_name) == (asked.id, None, "defaultdb")
    with psycopg.connect(shop_url) as connection:
        row = connection.execute(
            "select name, visibility_timeout_seconds, max_attempts, dlq_enabled from mdb_queue.queues"
        ).fetchone()
    assert row == ("orders", 60, 7, False)


async def test_local_is_this_database_itself(service: Service, database_url: str) -> None:
    await service.services.create_queue("local", "orders")

    await becomes(service, "orders", "Active", on="local")

    assert has_queue(database_url, "orders")


async def test_another_database_of_the_service_can_be_named(
    service: Service, shop_url: str, empty_database_url: str
) -> None:
    other = empty_database_url.rpartition("/")[2]
    await service.engine.put_service("shop", shop_url)

    await service.services.create_queue("shop", "orders", other)
    await becomes(service, "orders", "Active")

    assert has_queue(empty_database_url, "orders")


async def test_a_database_that_is_not_there_is_told(service: Service, shop_url: str) -> None:
    await service.engine.put_service("shop", shop_url)
    await service.services.create_queue("shop", "orders", "nowhere")

    failed = await becomes(service, "orders", "Failed")

    assert "nowhere" in (failed.error_message or "")
    await service.services.delete_queue("shop", "orders")
    await gone(service, "orders")


async def test_somebody_elses_queue_is_refused_and_stays(service: Service, shop_url: str) -> None:
    await ready(service, shop_url, "first")
    with Holdfast(shop_url, max_size=1) as shop:
        shop.create_queue("orders", {"lease": "7 s"})
        shop.send("orders", 1)
    await service.services.create_queue("shop", "orders")

    failed = await becomes(service, "orders", "Failed")
    await service.services.delete_queue("shop", "orders")
    await gone(service, "orders")

    assert "QH102" in (failed.error_message or "")
    with Holdfast(shop_url, max_size=1) as shop:
        assert shop.queue_stats("orders").ready == 1
        assert [q.config for q in shop.queues() if q.queue == "orders"] == [{"lease": "7 s"}]


async def test_dead_letters_of_somebody_else_are_not_mixed_with_ours(service: Service, shop_url: str) -> None:
    await ready(service, shop_url, "first")
    with Holdfast(shop_url, max_size=1) as shop:
        shop.create_queue("orders.dlq")
    await service.services.create_queue("shop", "orders")

    failed = await becomes(service, "orders", "Failed")

    assert "orders.dlq" in (failed.error_message or "")
    assert not has_queue(shop_url, "orders")


async def test_asking_again_for_what_failed_is_a_retry_with_other_settings(
    service: Service, shop_url: str
) -> None:
    await ready(service, shop_url, "first")
    with Holdfast(shop_url, max_size=1) as shop:
        shop.create_queue("orders")
        await service.services.create_queue("shop", "orders")
        failed = await becomes(service, "orders", "Failed")
        shop.drop_queue("orders")

    again = await service.services.create_queue("shop", "orders", visibility_timeout_seconds=99)
    made = await becomes(service, "orders", "Active")

    assert (again.id, again.status, again.error_message) == (failed.id, "Pending", None)
    assert (made.id, made.visibility_timeout_seconds) == (failed.id, 99)
    with pytest.raises(ServiceQueueExistsError):
        await service.services.create_queue("shop", "orders")


async def test_a_removed_queue_is_gone_with_its_messages_and_its_name_is_free(
    service: Service, shop_url: str
) -> None:
    await ready(service, shop_url, max_attempts=1)
    with Holdfast(shop_url, max_size=1) as shop:
        shop.send("orders", 1)
        shop.send("orders", 2)
        shop.nack("orders", shop.claim("orders")[0].token)
        assert shop.queue_stats("orders").dead == 1
    before = await service.services.queue("shop", "orders")

    first = await service.services.delete_queue("shop", "orders")
    assert first.status == "Deprovisioning"
    await gone(service, "orders")

    assert not has_queue(shop_url, "orders")
    assert not has_queue(shop_url, "orders.dlq")
    await service.services.create_queue("shop", "orders")
    again = await becomes(service, "orders", "Active")
    assert again.id != before.id
    assert payloads(shop_url, "orders") == []


async def test_deleting_twice_is_deleting_once(serve: Serve, home: AsyncHoldfast, shop_url: str) -> None:
    await home.put_service("shop", shop_url)
    await home.create_service_queue("shop", "orders")

    first = await home.delete_service_queue("shop", "orders")
    second = await home.delete_service_queue("shop", "orders")

    assert (first, first.status) == (second, "Deprovisioning")
    await gone(await serve(), "orders")


async def test_a_batch_is_sent_in_its_order(service: Service, shop_url: str) -> None:
    await ready(service, shop_url)
    batch = [{"payload": {"n": n}} for n in range(100)]

    done = await ended(service, "orders", await service.services.enqueue("shop", "orders", batch))

    assert (done.status, done.kind, done.error_message) == ("completed", "enqueue", None)
    with psycopg.connect(shop_url) as connection:
        rows = connection.execute("select id, (payload ->> 'n')::int from mdb_queue.messages order by id")
        found = rows.fetchall()
    assert msgspec.json.decode(done.result) == {"message_ids": [id for id, _ in found]}
    assert [n for _, n in found] == list(range(100))


async def test_digits_of_a_payload_stay_and_a_delay_holds(service: Service, shop_url: str) -> None:
    await ready(service, shop_url)
    raw = msgspec.Raw(b'{"n": 1.10, "big": 123456789012345678901234567890}')
    batch = [{"payload": raw, "delay_seconds": 3600}, {"payload": "now"}]

    await ended(service, "orders", await service.services.enqueue("shop", "orders", batch))

    with psycopg.connect(shop_url) as connection:
        found = connection.execute(
            "select payload::text, visible_at > now() + interval '59 min' from mdb_queue.messages order by id"
        ).fetchall()
    assert found == [('{"n": 1.10, "big": 123456789012345678901234567890}', True), ('"now"', False)]


async def test_batches_of_a_queue_are_sent_one_after_the_other(
    serve: Serve, service: Service, shop_url: str
) -> None:
    await ready(service, shop_url)
    await serve()
    tasks = [await service.services.enqueue("shop", "orders", [{"payload": n}]) for n in range(40)]

    for task in tasks:
        await ended(service, "orders", task)

    assert payloads(shop_url, "orders") == list(range(40))


async def test_a_batch_that_the_service_refuses_leaves_nothing(service: Service, shop_url: str) -> None:
    await ready(service, shop_url)
    with Holdfast(shop_url, max_size=1) as shop:
        shop.configure_queue("orders", {"max_payload": 20})
    batch = [{"payload": 1}, {"payload": "x" * 100}]

    failed = await ended(service, "orders", await service.services.enqueue("shop", "orders", batch))

    assert (failed.status, failed.result, failed.attempts) == ("failed", None, 1)
    assert "QH201" in (failed.error_message or "")
    assert payloads(shop_url, "orders") == []


async def test_a_task_that_was_done_on_the_service_is_not_done_again(
    serve: Serve, service: Service, home: AsyncHoldfast, shop_url: str, database_url: str
) -> None:
    await ready(service, shop_url)
    task = await service.services.enqueue("shop", "orders", [{"payload": 1}])
    first = await ended(service, "orders", task)
    with psycopg.connect(database_url, autocommit=True) as connection:
        # As it was when the agent was killed, after the service had committed.
        connection.execute(
            "update holdfast.service_task set status = 'running', lease_until = now() - interval '1 s',"
            " body = %s, result = null, completed_at = null where id = %s",
            ['[{"payload": 1}]', task],
        )

    again = await ended(service, "orders", task)

    assert (again.status, again.attempts) == ("completed", 2)
    assert msgspec.json.decode(again.result) == msgspec.json.decode(first.result)
    assert payloads(shop_url, "orders") == [1]


async def test_figures_are_those_of_the_queue(service: Service, shop_url: str) -> None:
    await ready(service, shop_url, max_attempts=1)
    empty = await ended(service, "orders", await service.services.ask_stats("shop", "orders"))
    with Holdfast(shop_url, max_size=1) as shop:
        for n in range(6):
            shop.send("orders", n)
        shop.send("orders", "later", delay=3600)
        shop.claim("orders", 2, lease=3600)
        shop.nack("orders", shop.claim("orders")[0].token)

    full = await ended(service, "orders", await service.services.ask_stats("shop", "orders"))

    nothing = {"ready_messages": 0, "inflight_messages": 0, "dead_messages": 0, "oldest_age_seconds": None}
    assert msgspec.json.decode(empty.result) == {"queue_name": "orders", **nothing}
    figures = msgspec.json.decode(full.result)
    assert figures.pop("oldest_age_seconds") >= 0
    counted = {"ready_messages": 3, "inflight_messages": 2, "dead_messages": 1}
    assert figures == {"queue_name": "orders", **counted}


async def test_a_queue_that_was_dropped_behind_our_back_takes_no_messages(
    service: Service, shop_url: str
) -> None:
    await ready(service, shop_url)
    with Holdfast(shop_url, max_size=1) as shop:
        shop.drop_queue("orders")
        shop.create_queue("orders")

    task = await service.services.enqueue("shop", "orders", [{"payload": 1}])
    failed = await ended(service, "orders", task)
    figures = await ended(service, "orders", await service.services.ask_stats("shop", "orders"))

    assert "not on the service any more" in (failed.error_message or "")
    assert figures.status == "failed"
    with Holdfast(shop_url, max_size=1) as shop:
        assert shop.queue_stats("orders").ready == 0


async def test_tasks_are_told_to_those_who_know_their_queue(service: Service, shop_url: str) -> None:
    await ready(service, shop_url)
    await ready(service, shop_url, "others")
    task = await service.services.ask_stats("shop", "orders")

    unknown: list[tuple[str, UUID | str]] = [("others", task), ("orders", uuid4()), ("orders", "none")]
    for name, id in unknown:
        with pytest.raises(TaskNotFoundError):
            await service.services.task("shop", name, id)


async def test_a_stopped_service_is_waited_for_then_failed_and_comes_back_by_a_retry(
    serve: Serve, elsewhere: EmbeddedPostgres
) -> None:
    url = elsewhere.ensure_running()
    service = await serve(task_attempts=6, task_pause=0.1)
    await service.engine.put_service("shop", url)
    elsewhere.release()

    await service.services.create_queue("shop", "orders")

    async def waits() -> bool:
        queue = await service.services.queue("shop", "orders")
        return queue.status == "Pending" and bool(queue.error_message)

    await patiently(waits, what="the queue waits, and says why")
    with pytest.raises(ServiceQueueNotActiveError):
        await service.services.enqueue("shop", "orders", [{"payload": 1}])
    failed = await becomes(service, "orders", "Failed")
    assert failed.error_message

    assert elsewhere.ensure_running() == url
    again = await service.services.retry_queue("shop", "orders")
    made = await becomes(service, "orders", "Active")

    assert (again.status, again.error_message, made.error_message) == ("Pending", None, None)


async def test_one_dead_service_holds_up_no_other(service: Service, shop_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes connections, and says nothing
        port = deaf.getsockname()[1]
        for n in range(3):
            await service.engine.put_service(f"dead{n}", f"postgresql://me:secret@127.0.0.1:{port}/x")
            for m in range(10):
                await service.services.create_queue(f"dead{n}", f"q{m}")

        await ready(service, shop_url)
        sent = await service.services.enqueue("shop", "orders", [{"payload": 1}])
        assert (await ended(service, "orders", sent)).status == "completed"

        statuses = {queue.status for queue in await service.services.queues("dead0")}
        assert statuses == {"Pending"}


async def test_two_agents_share_the_work_and_do_nothing_twice(
    serve: Serve, service: Service, shop_url: str
) -> None:
    await service.engine.put_service("shop", shop_url)
    second = await serve()
    names = [f"q{n}" for n in range(20)]

    await asyncio.gather(*(service.services.create_queue("shop", name) for name in names))
    for name in names:
        await becomes(second, name, "Active")
    tasks = {
        name: [await service.services.enqueue("shop", name, [{"payload": n}]) for n in range(3)]
        for name in names
    }

    for name in names:
        for task in tasks[name]:
            assert (await ended(second, name, task)).status == "completed"
        assert payloads(shop_url, name) == [0, 1, 2]


async def test_no_password_is_in_a_table_an_answer_or_a_log(
    service: Service, shop_url: str, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    password = psycopg.conninfo.conninfo_to_dict(shop_url)["password"]
    assert password
    await ready(service, shop_url)
    await service.engine.put_service("wrong", shop_url.replace(f":{password}@", ":not-this-one@"))
    await service.services.create_queue("wrong", "orders")
    failed = await becomes(service, "orders", "Failed", on="wrong")

    told = repr([await service.engine.services(), await service.services.queues("shop"), failed])
    with psycopg.connect(database_url) as connection:
        stored = repr(
            [
                connection.execute(f"select to_jsonb(t)::text from holdfast.{table} t").fetchall()
                for table in ("service", "service_queue", "service_task")
            ]
        )
    for secret in (str(password), "not-this-one"):
        assert secret not in told
        assert secret not in stored
        assert secret not in caplog.text
