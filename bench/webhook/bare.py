"""The limit: httpx, posting the same bodies to the same URLs as often as it is answered, and nothing else.

    python -m bench.webhook.bare BASE_URL ENDPOINTS TASKS

It posts until its standard input ends.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

import httpx

from bench import payload

DIFFERENT = 1_000  # bodies
TIMEOUT_S = 10.0
HEADERS = {
    "content-type": "application/json",
    "webhook-id": "msg_1099511627776",
    "webhook-timestamp": "1795000000",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
}


async def post(client: httpx.AsyncClient, urls: list[str], numbers: itertools.count[int]) -> None:
    """One after the other, for ever."""
    for number in numbers:
        body = payload.document(number % DIFFERENT)
        response = await client.post(urls[number % len(urls)], content=body, headers=HEADERS)
        response.raise_for_status()


async def main(base: str, endpoints: int, tasks: int) -> None:
    loop = asyncio.get_running_loop()
    urls = [f"{base}/{number}" for number in range(endpoints)]
    numbers = itertools.count()
    limits = httpx.Limits(max_connections=tasks, max_keepalive_connections=tasks)
    async with httpx.AsyncClient(limits=limits, timeout=TIMEOUT_S, trust_env=False) as client:
        posting = asyncio.gather(*(post(client, urls, numbers) for _ in range(tasks)))
        ended = loop.run_in_executor(None, sys.stdin.read)
        await asyncio.wait({posting, ended}, return_when=asyncio.FIRST_COMPLETED)
        if posting.done():
            posting.result()  # it failed
        posting.cancel()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
