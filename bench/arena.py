"""A database in which one contender is measured, with the meters at hand."""

from __future__ import annotations

from types import TracebackType

from bench.contenders.contender import Contender, Session
from bench.cpu import CpuMeter
from bench.crew import WARM_CALLS, Crew, Work
from bench.link import Link
from bench.tally import Tally
from bench.wal import WalMeter
from bench.work import send

PRELOAD_BATCH = 1_000
PRELOAD_CLIENTS = 2


class Arena:
    def __init__(self, *, contender: Contender, url: str, postmaster: int) -> None:
        self.contender = contender
        self.url = url
        self.admin = Link(url)
        self.cpu = CpuMeter(postmaster)
        self.wal = WalMeter(self.admin)
        self._crews: list[Crew] = []
        self._sessions: list[Session] = []

    def __enter__(self) -> Arena:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self.admin.close()

    def session(self) -> Session:
        session = self.contender.session(self.url)
        self._sessions.append(session)
        return session

    def crew(self, size: int, work: Work, *, warm_calls: int = WARM_CALLS) -> Crew:
        crew = Crew(sessions=[self.session() for _ in range(size)], work=work, warm_calls=warm_calls)
        self._crews.append(crew)
        return crew

    def release(self) -> None:
        """Dismiss every crew, then close every session: libpq must not lose a connection that is in use."""
        while self._crews:
            self._crews.pop().dismiss()
        while self._sessions:
            self._sessions.pop().link.close()

    def checkpoint(self) -> None:
        self.admin.run("checkpoint")

    def preload(self, messages: int, clients: int = PRELOAD_CLIENTS, task: Work | None = None) -> None:
        """Send a backlog, then let the planner know of it, as autovacuum would have."""
        each = -(-messages // clients)
        crew = self.crew(clients, task or send(min(PRELOAD_BATCH, each)), warm_calls=0)
        crew.lap(each)
        self.release()
        self.admin.run("analyze")

    def lap(self, crew: Crew, quota: int, tally: Tally) -> Tally:
        """Let each client of the crew finish so many messages, and add what that took."""
        cpu, wal = self.cpu.read(crew.pids), self.wal.read()
        lap = crew.lap(quota)
        tally.add(lap, self.cpu.read(crew.pids) - cpu, self.wal.read() - wal)
        return tally
