"""The same with asyncio: several workers in one process, sharing one client and one LISTEN connection."""

from __future__ import annotations

import asyncio
import sys

from holdfast import AsyncHoldfast, EmbeddedError
from holdfast.database import database

QUEUE = "example.async"


async def work(holdfast: AsyncHoldfast, name: str) -> int:
    """Work until a second passes without a message; how many were done."""
    done = 0
    while deliveries := await holdfast.claim(QUEUE, max=5, consumer=name, wait=1):
        settlement = await holdfast.ack(QUEUE, deliveries[0].token)
        done += len(settlement.settled)
    return done


async def main() -> None:
    with database(create=False) as url:
        async with AsyncHoldfast(url) as holdfast:
            await holdfast.create_queue(QUEUE)
            workers = [asyncio.create_task(work(holdfast, f"worker {number}")) for number in range(3)]
            await holdfast.send_batch(QUEUE, [{"n": n} for n in range(30)])
            print(f"done by all workers: {sum(await asyncio.gather(*workers))}")


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except EmbeddedError as error:
        sys.exit(f"{error.message}. {error.hint}")
