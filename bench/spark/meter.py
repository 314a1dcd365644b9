"""What an action takes: time, CPU of all processes that have a part in it, and peaks of memory.

A sampler looks at this process and its descendants, the server's excepted: the driver, its JVM, the Python
processes that the JVM starts. Memory is resident; pages that forked workers share count for each of them.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import psutil

from bench.cpu import CpuMeter
from bench.sample import Sample
from bench.tally import NS_PER_US

PAUSE_S = 0.5
MIB = 2**20
US_PER_S = 1_000_000
JVM = "java"

Action = Callable[[], int]
"""What is measured; how many messages it finished."""


class Meter:
    def __init__(self, postmaster: int) -> None:
        self._postmaster = postmaster
        self._server = CpuMeter(postmaster)

    def measure(self, action: Action) -> Sample:
        """Do it once. The CPU of looking for peaks is not counted."""
        peaks = Peaks(self._postmaster)
        with peaks:
            server, client = self._server.read(()), tree_cpu(self._postmaster)
            begun = time.perf_counter()
            messages = action()
            seconds = time.perf_counter() - begun
            served = self._server.read(()) - server
            used = tree_cpu(self._postmaster) - client - peaks.cost
        return Sample(
            cpu_us=served.background / NS_PER_US / messages,
            client_us=used * US_PER_S / messages,
            per_second=messages / seconds,
            jvm_mib=peaks.jvm / MIB,
            worker_mib=peaks.worker / MIB,
            driver_mib=peaks.driver / MIB,
        )


@dataclass(slots=True)
class Peaks:
    """The most memory that each kind of process had, while this was open."""

    postmaster: int
    jvm: int = 0
    worker: int = 0
    driver: int = 0
    cost: float = 0.0  # seconds of CPU that looking took
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> None:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        self._look()
        while not self._over.wait(PAUSE_S):
            self._look()

    def _look(self) -> None:
        for process in tree(self.postmaster):
            try:
                resident, name = process.memory_info().rss, process.name()
            except psutil.Error:
                continue
            if process.pid == os.getpid():
                self.driver = max(self.driver, resident)
            elif name == JVM:
                self.jvm = max(self.jvm, resident)
            else:
                self.worker = max(self.worker, resident)
        self.cost = time.thread_time()


def tree(postmaster: int) -> Iterator[psutil.Process]:
    """This process and all that descend from it, but the server."""
    waiting = [psutil.Process()]
    below: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        try:
            below.setdefault(process.ppid(), []).append(process)
        except psutil.Error:
            continue
    while waiting:
        process = waiting.pop()
        if process.pid != postmaster:
            yield process
            waiting += below.get(process.pid, [])


def tree_cpu(postmaster: int) -> float:
    """Seconds that the tree has used, with all threads, and with processes that ended and were waited for."""
    return sum(_used(process) for process in tree(postmaster))


def _used(process: psutil.Process) -> float:
    try:
        spent = process.cpu_times()
    except psutil.Error:
        return 0.0
    return spent.user + spent.system + spent.children_user + spent.children_system
