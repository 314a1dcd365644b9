"""Looking: at messages by their state, at figures, and at why nothing moves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    Entry,
    Finding,
    InvalidLimitError,
    InvalidPeriodError,
    InvalidRollupError,
    InvalidStateError,
    PipelineRun,
    QueueStats,
    Rollup,
)
from holdfast.server.advice import advice
from tests.conformance.conftest import Clock, MakeQueue

PUT = "select holdfast.put_rollups(%s, bucket => '1 hour', since => %s, until => %s, rollups => %s)"
FIGURES: dict[str, Any] = {
    "sent": 9, "done": 8, "failed": 1, "dead": 2, "expired": 3, "discarded": 4, "retries": 5,
    "waiting_count": 8, "waiting_p50": 0.5, "waiting_p95": 1.0, "waiting_p99": 2.5e-7,
    "processing_count": 7, "processing_p50": None, "processing_p95": 0.75, "processing_p99": 123456.789,
    "estimated": ["dead", "sent"], "details": {"keys": [{"key": "a", "messages": 3}]},
}  # fmt: skip


async def test_browse_pages_through_each_state(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    queue = await make_queue(max_deliveries=1)
    await client.send(queue, "dead")
    (delivery,) = await client.claim(queue)
    await client.nack(queue, delivery.token)
    held = await client.send(queue, "held")
    await client.claim(queue)
    later = await client.send(queue, "later", delay=3600)
    ready = await client.send_batch(queue, [1, 2, 3])

    first = await client.browse(queue, limit=2)
    second = await client.browse(queue, limit=2, after=first[-1].id)

    assert [entry.id for entry in first + second] == ready
    assert {entry.state for entry in first} == {"ready"}
    assert [entry.id for entry in await client.browse(queue, "in_flight")] == [held]
    assert [entry.id for entry in await client.browse(queue, "scheduled")] == [later]
    assert [entry.payload for entry in await client.browse(queue, "dead")] == ["dead"]
    assert await client.browse(queue, "blocked") == []
    assert await client.browse(queue, "archive") == []


async def test_an_entry_tells_everything_about_a_message(
    client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock
) -> None:
    now = clock.stop()
    queue = await make_queue()
    id = await client.send(queue, {"n": 1}, headers={"h": 1}, tag="t", key="k", ttl=60, content_type="x/y")
    (delivery,) = await client.claim(queue)
    await client.nack(queue, delivery.token, error="no stock", delay=5)

    entry = await client.message(queue, id)

    assert entry == Entry(
        id=id,
        queue=queue,
        state="scheduled",
        payload={"n": 1},
        body=None,
        content_type="x/y",
        headers={"h": 1},
        priority=0,
        key="k",
        ordering_key=None,
        correlation_id=None,
        tag="t",
        deliveries=1,
        failures=1,
        max_deliveries=5,
        enqueued_at=now,
        due_at=now + timedelta(seconds=5),
        expires_at=now + timedelta(seconds=60),
        last_error="no stock",
        origin=None,
        ended_at=None,
        consumer=None,
        claimed_at=None,
    )


async def test_a_message_in_flight_for_the_second_time_is_shown(client: AsyncHoldfast, queue: str) -> None:
    id = await client.send(queue, 1)
    (first,) = await client.claim(queue)
    await client.nack(queue, first.token, delay=0)
    await client.claim(queue)

    (entry,) = await client.browse(queue, "in_flight")

    assert (entry.id, entry.state, entry.deliveries) == (id, "in_flight", 1)
    assert await client.message(queue, id) == entry


async def test_a_message_that_is_not_there_is_none(client: AsyncHoldfast, queue: str) -> None:
    id = await client.send(queue, 1)

    assert await client.message(queue, id + 1) is None
    assert await client.message(queue, 0) is None


async def test_queue_stats_counts_every_state(
    client: AsyncHoldfast, make_queue: MakeQueue, clock: Clock
) -> None:
    clock.stop()
    queue = await make_queue(max_deliveries=1)
    await client.send_batch(queue, ["dead", "held"])
    dead, _ = await client.claim(queue, 2)
    await client.nack(queue, dead.token, [dead.id])
    await client.send(queue, "later", delay=3600)
    await client.send_batch(queue, [1, 2, 3])
    clock.forward(seconds=2.5)

    stats = await client.queue_stats(queue)

    assert stats == QueueStats(
        queue=queue,
        kind="queue",
        ready=3,
        scheduled=1,
        blocked=0,
        in_flight=1,
        dead=1,
        blocked_lines=0,
        depth=5,
        oldest_age=timedelta(seconds=2.5),
        exact=True,
        paused=False,
        counters=stats.counters,
    )
    assert (stats.counters["sent"], stats.counters["dead"]) == (6, 1)


async def test_an_empty_queue_has_no_oldest_message(client: AsyncHoldfast, queue: str) -> None:
    stats = await client.queue_stats(queue)

    assert (stats.depth, stats.oldest_age) == (0, None)


async def test_why_returns_findings(client: AsyncHoldfast, queue: str) -> None:
    await client.send(queue)
    await client.pause_queue(queue)

    found = await client.why(queue)

    assert [replace(finding, remedy=advice(finding.remedy)) for finding in found] == [
        Finding(
            finding="paused",
            severity="blocking",
            message="The queue is paused: claims get nothing.",
            details={"ready": 1},
            remedy=f"Resume it: POST /v1/queues/{queue}/resume.",
        )
    ]


async def test_samples_are_what_maintain_wrote_down(client: AsyncHoldfast, clock: Clock, queue: str) -> None:
    now = clock.stop()
    await client.send_batch(queue, [1, 2, 3])
    await client.maintain(timedelta(seconds=10))

    (sample,) = await client.samples(queue)
    none = await client.samples(queue, now, now + timedelta(days=1))

    assert (sample.ended, sample.sent, sample.ready, sample.oldest_age) == (now, 3, 3, timedelta(0))
    assert sum(sample.waiting.values()) == sum(sample.processing.values()) == 0
    assert {type(name) for name in sample.waiting} == {str}
    assert none == []


async def test_rollups_are_what_insights_wrote_down(
    client: AsyncHoldfast, clock: Clock, queue: str, conn: psycopg.Connection[Any]
) -> None:
    now = clock.stop()
    hour = now.replace(minute=0, second=0, microsecond=0)
    found = Jsonb([{"start": hour.isoformat(), **FIGURES}])
    conn.execute(PUT, [queue, hour, hour + timedelta(hours=1), found])

    (rollup,) = await client.rollups(queue, hour, hour + timedelta(hours=1), timedelta(hours=1), 10)

    assert rollup == Rollup(start=hour, made_at=now, **FIGURES)
    assert type(rollup.waiting_p95) is float
    assert await client.rollups(queue, bucket=60) == []


async def test_runs_are_those_of_pipelines(
    client: AsyncHoldfast, clock: Clock, conn: psycopg.Connection[Any], name: str
) -> None:
    now = clock.stop()
    ((id,),) = conn.execute(
        "select holdfast.begin_run(pipeline => %s, parameters => %s)", [name, Jsonb({"from": "a", "n": 1})]
    ).fetchall()

    (run,) = await client.runs(name, 5)

    assert isinstance(run, PipelineRun)
    assert (run.id, run.pipeline, run.parameters, run.figures) == (id, name, {"from": "a", "n": 1}, None)
    assert (run.started_at, run.ended_at) == (now, None)
    assert name in [each.pipeline for each in await client.runs()]
    assert await client.runs("nothing") == []


async def test_questions_that_are_put_wrongly_are_refused(client: AsyncHoldfast, queue: str) -> None:
    now = await client.now()

    for limit in (0, -1, 10_001):
        with pytest.raises(InvalidLimitError):
            await client.browse(queue, limit=limit)
    for state in ("asleep", "", "READY"):
        with pytest.raises(InvalidStateError):
            await client.browse(queue, state)
    with pytest.raises(InvalidPeriodError):
        await client.samples(queue, now, now - timedelta(days=1))
    with pytest.raises(InvalidRollupError):
        await client.rollups(queue, bucket=7)
