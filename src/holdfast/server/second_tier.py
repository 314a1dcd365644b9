"""The second tier of what servers remember of queues: in Redis, for all servers of a database.

An entry is good for as long as two tokens are what they were when somebody began to look it up: that of its
queue, its generation, and that of the database, its era. A change replaces one of them, so what was looked up
before is worth nothing, however late it comes. Nothing in Redis is older than 30 seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any
from uuid import uuid4

from holdfast.client._rows import scalar

from .engine import Engine
from .redis_link import Argument, RedisLink

ENTRY_SECONDS = 30.0  # from the moment at which it was looked up in the database
TOKEN_SECONDS = 60
ERA_SECONDS = 86_400
LAST_SECONDS = 2.0  # for connections to close, when the server ends
RETRY_SECONDS = 0.2  # before a change is told again that could not be told
MOST_BYTES = 256 * 1024  # of an entry; larger ones are looked up in the database
EVERY = ""  # instead of a queue: all of them
LIKE = "holdfast:1"  # how keys begin, and what tokens and messages are like

# Of the cluster and the database in it: no other that is alive has both, unless it is a copy of the files.
IDENTITY = b"""
select c.system_identifier || '.' || d.oid from pg_control_system() c, pg_database d
where d.datname = current_database()
"""
LOOK = """
local function token(key, new, seconds)
  local found = redis.pcall('GET', key)
  if type(found) == 'string' then redis.call('EXPIRE', key, seconds) return found end
  redis.call('SET', key, new, 'EX', seconds)
  return new
end
local generation = token(KEYS[2], ARGV[1], ARGV[2])
local era = token(KEYS[3], ARGV[1], ARGV[3])
local entry = redis.pcall('GET', KEYS[1])
return {generation, era, redis.call('PTTL', KEYS[1]), type(entry) == 'string' and entry or ''}
"""
KEEP = """
if redis.call('GET', KEYS[2]) == ARGV[1] and redis.call('GET', KEYS[3]) == ARGV[2] then
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
  return 1
end
return 0
"""
CHANGE = """
redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2])
return redis.call('PUBLISH', KEYS[2], ARGV[3])
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is, or may be put by whoever looks it up now."""

    generation: bytes
    era: bytes
    since: float
    left: float = 0.0  # seconds that the entry is good
    entry: bytes | None = None

    @property
    def seal(self) -> bytes:
        """How an entry begins that is good."""
        return b"%b %b\n" % (self.generation, self.era)

    def found(self, stored: bytes, left: float) -> Place:
        """The same with what is stored there, if that is good."""
        if 0 < left <= ENTRY_SECONDS and stored.startswith(self.seal):
            return replace(self, left=left, entry=stored.removeprefix(self.seal))
        return self


@dataclass(frozen=True, slots=True)
class Change:
    """What others have to be told."""

    token: str = field(default_factory=lambda: uuid4().hex)
    at: float = field(default_factory=monotonic)


def is_found(answer: Any) -> bool:
    """Whether this is what the script returns: a Redis may be something else by now."""
    return isinstance(answer, list) and [type(part) for part in answer] == [bytes, bytes, int, bytes]


class SecondTier:
    """Entries by queue, as bytes that only their owner understands."""

    def __init__(self, url: str, engine: Engine, form: str) -> None:
        """form: of what entries are like; servers with another one have entries of their own."""
        self._link = RedisLink(url)
        self._engine = engine
        self._form = form
        self._own = uuid4().hex
        self._database = ""
        self._changed: Callable[[str], None] = lambda _: None
        self._changes: dict[str, Change] = {}
        self._news = asyncio.Event()
        self._keeping: set[asyncio.Task[object]] = set()

    def on_change(self, call: Callable[[str], None]) -> None:
        """Call this with a queue that another server has changed; with "" if it may be any."""
        self._changed = call

    async def look(self, queue: str) -> Place | None:
        """What is there of a queue; None: nothing can be said of it."""
        if self._is_changing(queue):
            return None  # what is there may be what was
        since = monotonic()
        tokens: list[Argument] = [uuid4().hex, TOKEN_SECONDS, ERA_SECONDS]
        answer = await self._link.call(LOOK, self._keys(queue), tokens)
        if not is_found(answer) or self._is_changing(queue):
            return None
        generation, era, left, stored = answer
        return Place(generation, era, since).found(stored, left / 1000)

    def _is_changing(self, queue: str) -> bool:
        return queue in self._changes or EVERY in self._changes

    def keep(self, queue: str, place: Place, entry: bytes) -> None:
        """Put an entry into its place, some time soon; not if the queue has changed meanwhile."""
        left = int((ENTRY_SECONDS - (monotonic() - place.since)) * 1000)
        if left > 0 and len(entry) <= MOST_BYTES:
            arguments: list[Argument] = [place.generation, place.era, place.seal + entry, left]
            task = asyncio.create_task(self._link.call(KEEP, self._keys(queue), arguments))
            self._keeping.add(task)
            task.add_done_callback(self._keeping.discard)

    def tell(self, queue: str) -> None:
        """A queue has changed, or with "" perhaps all: what is there is worth nothing."""
        self._changes[queue] = Change()
        self._news.set()

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Listen and tell as long as the block lasts."""
        tasks = [
            asyncio.create_task(self._link.listen(self._begin, self._hear), name="holdfast-redis"),
            asyncio.create_task(self._spread(), name="holdfast-redis-changes"),
        ]
        try:
            yield
        finally:
            for task in (*tasks, *self._keeping):
                task.cancel()
            await asyncio.wait({*tasks, *self._keeping}, timeout=LAST_SECONDS)
            for queue, change in list(self._changes.items()):
                await self._told(queue, change)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._link.close()

    async def _begin(self) -> str:
        if not self._database:
            self._database = (await self._engine.fetch("now", IDENTITY, [], scalar(str)))[0]
        # It is to be one that can be written to.
        await self._link.ask(CHANGE, [f"{self._prefix}:try", f"{self._prefix}:try"], ["", 1, ""])
        return f"{self._prefix}:changes"

    def _hear(self, message: bytes) -> None:
        teller, _, queue = message.decode(errors="replace").partition(" ")
        if teller != self._own:
            self._changed(queue)

    async def _spread(self) -> None:
        """Tell changes, until they are told, or no entry can be older."""
        while True:
            await self._news.wait()
            self._news.clear()
            for queue, change in list(self._changes.items()):
                is_over = monotonic() - change.at > ENTRY_SECONDS
                if (is_over or await self._told(queue, change)) and self._changes[queue] is change:
                    del self._changes[queue]
            if self._changes:
                await asyncio.sleep(RETRY_SECONDS)
                self._news.set()

    async def _told(self, queue: str, change: Change) -> bool:
        _, generation, era = self._keys(queue)
        key, seconds = (era, ERA_SECONDS) if queue == EVERY else (generation, TOKEN_SECONDS)
        arguments: list[Argument] = [change.token, seconds, f"{self._own} {queue}"]
        return await self._link.call(CHANGE, [key, f"{self._prefix}:changes"], arguments) is not None

    @property
    def _prefix(self) -> str:
        return f"{LIKE}:{{{self._database}}}"

    def _keys(self, queue: str) -> list[str]:
        prefix = self._prefix
        return [f"{prefix}:entry:{self._form}:{queue}", f"{prefix}:generation:{queue}", f"{prefix}:era"]
