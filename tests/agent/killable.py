"""An agent without a server, for tests that kill it: it stops at a place, and tells that it is there.

It goes on once it is sent a line, and tells whether it still had its task.

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
    """Tell, and wait to be killed, or for a line."""
    tell(place)
    if not await asyncio.to_thread(sys.stdin.readline):
        await asyncio.Event().wait()


def tell(word: str) -> None:
    """Let the test read it."""
    print(word, flush=True)  # noqa: T201 - on purpose


class Stopping(Tasks):
    """Tasks of an agent that stops at a place."""

    place = ""
    begun = 0
    went_on = False

    async def begin(self, task: Task) -> bool:
        """Each step makes sure of its task; the last time is before it commits."""
        held = await super().begin(task)
        type(self).begun += 1
        if self.went_on:
            tell(f"held {held}")
        last = 2 if task.kind == "provision" else 1
        if (self.place == "reached" and self.begun == 1) or (self.place == "worked" and self.begun == last):
            await stop(self.place)
            type(self).went_on = True
        return held

    async def put_off(self, task: Task, error: str, seconds: float) -> bool:
        """It was broken off."""
        held = await super().put_off(task, error, seconds)
        tell(f"held {held}")
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
