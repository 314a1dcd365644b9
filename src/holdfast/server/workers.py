"""Several server processes on one socket: started, replaced when they die, and ended together."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from tempfile import TemporaryDirectory
from time import monotonic
from types import FrameType

from prometheus_client.multiprocess import mark_process_dead

from holdfast.client import UnavailableError

from .exporters import export
from .http import SIGNALS, WorkerServer
from .logs import configure
from .meters import FOLDER_VARIABLE
from .settings import Settings

SPAWN = multiprocessing.get_context("spawn")
MARGIN_SECONDS = 15.0  # beyond drain and grace: for releases, and for connections to close
SHORT_LIFE_SECONDS = 10.0
PAUSE_SECONDS = 1.0  # before a worker that lived shortly is replaced
MOST_SHORT_LIVES = 10  # in a row

logger = logging.getLogger("holdfast.server")


@dataclass(slots=True)
class Worker:
    """A process, and when it was started."""

    process: SpawnProcess
    since: float = field(default_factory=monotonic)


class Workers:
    """Keeps so many processes running until a signal comes."""

    def __init__(self, settings: Settings, listener: socket.socket, count: int) -> None:
        self._settings = settings
        self._listener = listener
        self._workers: list[Worker] = []
        self._count = count
        self._told = 0
        self._short_lives = 0
        self._ear, self._bell = os.pipe()

    def run(self) -> None:
        """Serve until a signal comes; a second one ends everything at once."""
        with counted_together(), self._signals():
            try:
                self._keep()
            finally:
                self._end()
        if self._told > 1:
            raise KeyboardInterrupt

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._tell) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self._bell)
            os.close(self._ear)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self._told += 1
        os.write(self._bell, b"!")

    def _keep(self) -> None:
        pause = 0.0
        while not self._told:
            if not pause:
                self._hire()
            self._sleep(pause or None)
            pause = self._bury()

    def _hire(self) -> None:
        while len(self._workers) < self._count:
            process = SPAWN.Process(target=work, args=(self._settings, self._listener, os.getpid()))
            process.start()
            self._workers.append(Worker(process))

    def _sleep(self, seconds: float | None) -> None:
        """Until a signal comes, a worker dies, or so long."""
        ready = wait([self._ear, *(worker.process.sentinel for worker in self._workers)], seconds)
        if self._ear in ready:
            os.read(self._ear, 100)

    def _bury(self) -> float:
        """Let go of workers that are dead; returns how long to wait before others are started."""
        dead = [worker for worker in self._workers if not worker.process.is_alive()]
        for worker in dead:
            self._workers.remove(worker)
            logger.error("worker %s ended with %s", worker.process.pid, worker.process.exitcode)
            mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]  # its gauges count no more
        lived = min((monotonic() - worker.since for worker in dead), default=None)
        if lived is None:
            return 0.0
        self._short_lives = self._short_lives + 1 if lived < SHORT_LIFE_SECONDS else 0
        if self._short_lives > MOST_SHORT_LIVES:
            raise UnavailableError(
                "QH930", "the server's workers end as soon as they start", "See above.", "Try --workers 1."
            )
        return PAUSE_SECONDS if self._short_lives else 0.0

    def _end(self) -> None:
        """Tell all workers to end, and wait for that."""
        self._listener.close()  # else connections would wait here for somebody to take them
        self._each(SpawnProcess.terminate)
        until = monotonic() + self._settings.drain + self._settings.grace + MARGIN_SECONDS
        while self._workers and self._told < 2 and (left := until - monotonic()) > 0:
            self._sleep(left)
            self._workers = [worker for worker in self._workers if worker.process.is_alive()]
        self._each(SpawnProcess.kill)

    def _each(self, do: Callable[[SpawnProcess], None]) -> None:
        for worker in self._workers:
            do(worker.process)


@contextmanager
def counted_together() -> Iterator[None]:
    """A folder in which the processes that are started meanwhile count for the metrics."""
    before = os.environ.get(FOLDER_VARIABLE)
    with TemporaryDirectory(prefix="holdfast-metrics-") as folder:
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            os.environ.pop(FOLDER_VARIABLE)
            if before is not None:
                os.environ[FOLDER_VARIABLE] = before


def work(settings: Settings, listener: socket.socket, supervisor: int) -> None:
    """What a worker does."""
    configure(settings.log_format, settings.log_level)
    export()
    WorkerServer(settings, supervisor).run(sockets=[listener])
