"""A server without HTTP that has one job: it notes who began it, and who ended it. For tests that kill it.

python -m tests.http.ticking URL NAME SECONDS
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.client._rows import scalar
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from holdfast.server.ticks import Job

JOB = "test.job"
DIARY = b"insert into public.diary (who, what) values (%s, %s) returning who"


def job(who: str, seconds: float) -> Job:
    """A job that takes so long; every minute."""

    async def run(service: Service) -> None:
        await service.engine.fetch("schedules", DIARY, [who, "began"], scalar(str))
        await asyncio.sleep(seconds)
        await service.engine.fetch("schedules", DIARY, [who, "ended"], scalar(str))

    return Job(name=JOB, run=run, every=60.0)


async def main(url: str, who: str, seconds: str) -> None:
    """Run until somebody ends it."""
    async with Service(Settings(database_url=url, upkeep=0), [job(who, float(seconds))]).running():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
