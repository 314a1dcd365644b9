"""An agent without a server, for tests that kill it: it stops at a place, and tells that it is there.

python -m tests.agent.killable URL PLACE

PLACE: reached (the service answers, nothing is done), worked (before it commits on the service), or committed
(on the service, while the task has not ended).
"""

from __future__ import annotations

import asyncio
import sys

from holdfast.agent import agent
from holdfast.agent.tasks import Task, Tasks
from holdfast.server.service import Service
from holdfast.server.settings import Settings


async def stop(place: str) -> None:
    """Tell, and wait to be killed."""
    print(place, flush=True)  # noqa: T201 - the test reads it
    await asyncio.Event().wait()


class Stopping(Tasks):
    """Tasks of an agent that stops at a place."""

    place = ""
    begun = 0

    async def begin(self, task: Task) -> bool:
        """Each step makes sure of its task; the last time is before it commits."""
        held = await super().begin(task)
        type(self).begun += 1
        last = 2 if task.kind == "provision" else 1
        if (self.place == "reached" and self.begun == 1) or (self.place == "worked" and self.begun == last):
            await stop(self.place)
        return held

    async def end(self, task: Task, result: str | None) -> bool:
        """All is done but this."""
        if self.place == "committed":
            await stop(self.place)
        return await super().end(task, result)


async def main(url: str, place: str) -> None:
    """Run until somebody kills it."""
    Stopping.place = place
    vars(agent)["Tasks"] = Stopping  # the agent itself is the real one
    async with Service(Settings(database_url=url, upkeep=0)).running():
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
