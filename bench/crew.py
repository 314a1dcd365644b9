"""A crew of clients, one thread and one session each, that start together and are measured together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError, Event, Thread

from bench.contenders.contender import Session

STALL_S = 60.0
WARM_CALLS = 8  # PostgreSQL settles on a generic plan at the sixth call of a prepared statement

Step = Callable[[], int]
"""One turn of a client; how many messages it finished."""

Work = Callable[[Session], Step]
"""Makes the step for one session."""


@dataclass(frozen=True, slots=True)
class Lap:
    messages: int
    seconds: float


class CrewError(Exception):
    """A client failed or got stuck; the cause is chained."""


class Crew:
    """Its clients warm up at once, then wait at the gate. A lap is from `begin` to `end`."""

    def __init__(self, *, sessions: Sequence[Session], work: Work, warm_calls: int = WARM_CALLS) -> None:
        self.sessions = sessions
        self._work = work
        self._warm_calls = warm_calls
        self._done = [0] * len(sessions)
        self._quota: int | None = None
        self._gate = Barrier(len(sessions) + 1)
        self._enough = Event()
        self._error: BaseException | None = None
        self._threads = [Thread(target=self._guarded, args=(n,), daemon=True) for n in range(len(sessions))]
        for thread in self._threads:
            thread.start()
        self._meet()  # all are warm

    @property
    def pids(self) -> list[int]:
        return [session.link.pid for session in self.sessions]

    @property
    def messages(self) -> int:
        """Finished so far, over all laps."""
        return sum(self._done)

    def lap(self, quota: int) -> Lap:
        """Every client works until it has finished so many messages."""
        before, begun = self.messages, time.perf_counter()
        self.begin(quota)
        self._meet()
        return Lap(self.messages - before, time.perf_counter() - begun)

    def begin(self, quota: int | None) -> None:
        """Open the gate. Without a quota the clients work until `end`."""
        self._quota = quota
        self._meet()

    def end(self) -> None:
        self._enough.set()
        self._meet()
        self._enough.clear()

    def check(self) -> None:
        if self._error is not None:
            raise CrewError(f"a client failed: {self._error}") from self._error

    def dismiss(self) -> None:
        """Stop, wherever the clients are; they leave their connections alone afterwards."""
        self._enough.set()
        self._gate.abort()
        for thread in self._threads:
            thread.join(timeout=STALL_S)

    def _meet(self) -> None:
        try:
            self._gate.wait()
        except BrokenBarrierError:
            self.check()
            raise

    def _guarded(self, number: int) -> None:
        try:
            self._client(number)
        except BrokenBarrierError:
            return
        except BaseException as error:
            self._error = self._error or error
            self._enough.set()
            self._gate.abort()

    def _client(self, number: int) -> None:
        step = self._work(self.sessions[number])
        for _ in range(self._warm_calls):
            step()
        self._gate.wait()
        while True:
            self._gate.wait()
            self._run(number, step)
            self._gate.wait()

    def _run(self, number: int, step: Step) -> None:
        goal = None if self._quota is None else self._done[number] + self._quota
        progress = time.monotonic()
        while not self._enough.is_set() and (goal is None or self._done[number] < goal):
            finished = step()
            self._done[number] += finished
            progress = time.monotonic() if finished else _patient(progress)


def _patient(since: float) -> float:
    if time.monotonic() - since > STALL_S:
        raise CrewError(f"nothing to do for {STALL_S:.0f} s although messages wait")
    return since
