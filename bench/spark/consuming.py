"""Working a queue off: a stream in leased batches, beside Python processes that claim and ack."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

from bench.arena import Arena
from bench.contenders.contender import QUEUE
from bench.spark.case import HOLDFAST, Rival, Setting, SparkCase
from bench.spark.ground import Ground
from bench.spark.meter import Action
from holdfast import Holdfast

CONSUMERS = os.cpu_count() or 1
STARTING_S = 60.0
WORKING_S = 600.0


def cases() -> list[SparkCase]:
    rivals = [
        Rival(HOLDFAST, _by_stream),
        Rival("claims of 100", _by_claims(100), share=0.2, spark=False),
        Rival("claims of 1", _by_claims(1), share=0.01, spark=False),
    ]
    return [SparkCase("consume", f"consume and ack; claims by {CONSUMERS} processes", rivals)]


@contextmanager
def _by_stream(ground: Ground, messages: int) -> Iterator[Action]:
    with ground.filled(messages) as arena, tempfile.TemporaryDirectory(dir=ground.folder) as checkpoint:
        stream = ground.spark.readStream.format("holdfast").option("mode", "consume").option("url", arena.url)
        writer = stream.load(QUEUE).writeStream.format("noop").option("checkpointLocation", checkpoint)

        def drain() -> int:
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination()
            finally:
                query.stop()
            return messages

        yield drain
        _expect_left(arena, 0)


def _by_claims(size: int) -> Setting:
    @contextmanager
    def setting(ground: Ground, messages: int) -> Iterator[Action]:
        each = max(1, messages // size // CONSUMERS) * size
        with ground.filled(each * CONSUMERS) as arena, ExitStack() as stack:
            spawning = get_context("spawn")
            gate = spawning.Barrier(CONSUMERS + 1)
            for _ in range(CONSUMERS):
                process = spawning.Process(target=_consume, args=(arena.url, size, each, gate), daemon=True)
                process.start()
                stack.callback(process.join)
                stack.callback(process.terminate)
            gate.wait(STARTING_S)

            def work() -> int:
                gate.wait(STARTING_S)
                gate.wait(WORKING_S)
                return each * CONSUMERS

            waiting = _waiting(arena)
            yield work
            _expect_left(arena, waiting - each * CONSUMERS)

    return setting


def _consume(url: str, size: int, messages: int, gate: Barrier) -> None:
    """One process: claims and acks, from when the gate opens until it has done its share."""
    with Holdfast(url) as client:
        client.queue_stats(QUEUE)
        gate.wait(STARTING_S)
        gate.wait(STARTING_S)
        done = 0
        while done < messages:
            deliveries = client.claim(QUEUE, max=size)
            if deliveries:
                client.ack(QUEUE, deliveries[0].token)
                done += len(deliveries)
        gate.wait(WORKING_S)


def _waiting(arena: Arena) -> int:
    return int(arena.admin.value("select count(*) from holdfast.message"))


def _expect_left(arena: Arena, left: int) -> None:
    if (found := _waiting(arena)) != left:
        raise AssertionError(f"{found:,} messages are left, not {left:,}")
