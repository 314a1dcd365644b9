"""What is measured: deliveries to one endpoint and to fifty, by a dispatcher and by the bare loop."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench import payload
from bench.arena import Arena
from bench.link import Link
from bench.sample import Sample
from bench.tally import NS_PER_US
from holdfast.vault import KEY_VARIABLE, Vault

KEY = "A" * 43 + "="
SECRET = "whsec_" + "c2VjcmV0" * 4
CONCURRENCY = 10  # of an endpoint
AT_ONCE = 100  # of a process
US_PER_S = 1_000_000
START_S = 60.0
PAUSE_S = 0.02
BATCH = 1_000
MOST_PER_S = 4_000  # more than anybody delivers: the queues must not run dry


class DeliveryError(Exception):
    """What is measured did not work."""


@dataclass(frozen=True, slots=True)
class WebhookCase:
    """So many endpoints, to which deliveries are made."""

    name: str
    title: str
    endpoints: int

    @property
    def tasks(self) -> int:
        """How many requests of the bare loop are on their way: as many as of the dispatcher."""
        return min(self.endpoints * CONCURRENCY, AT_ONCE)


CASES = [
    WebhookCase("one-endpoint", "1 endpoint", 1),
    WebhookCase("fifty-endpoints", "50 endpoints", 50),
]


class Receiver:
    """The process that is delivered to."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{self._line()}"

    def count(self) -> int:
        """How many deliveries it has got."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def started(words: Sequence[str], **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process, which is gone afterwards."""
    process = subprocess.Popen(
        words,
        env=os.environ | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver."""
    with started([sys.executable, "-m", "bench.webhook.receiver"]) as process:
        yield Receiver(process)


def dispatch(case: WebhookCase, arena: Arena, seconds: float, warm: float) -> Sample:
    """What holdfast dispatch delivers."""
    with receiving() as receiver:
        prepare(case, arena, receiver.url, round(MOST_PER_S * (seconds + warm)))
        program = [str(Path(sys.executable).with_name("holdfast")), "dispatch", "--log-level", "warning"]
        variables = {"HOLDFAST_DATABASE_URL": arena.url, KEY_VARIABLE: KEY}
        with started([*program, "--concurrency", str(AT_ONCE)], **variables) as process:
            sample = measure(process, receiver, arena, seconds, warm)
        left = arena.admin.value("select count(*) from holdfast.message")
        if int(left) == 0:
            raise DeliveryError("the queues ran dry: the figures mean nothing")
        return sample


def bare(case: WebhookCase, arena: Arena, seconds: float, warm: float) -> Sample:
    """What httpx alone delivers."""
    with receiving() as receiver:
        words = [receiver.url, str(case.endpoints), str(case.tasks)]
        with started([sys.executable, "-m", "bench.webhook.bare", *words]) as process:
            return measure(process, receiver, arena, seconds, warm)


def prepare(case: WebhookCase, arena: Arena, url: str, messages: int) -> None:
    """Make the endpoints, which sign, and fill their queues."""
    vault = Vault(KEY)
    link = Link(arena.url)
    try:
        for number in range(case.endpoints):
            name = f"endpoint-{number}"
            sealed = vault.seal(SECRET, f"webhook:{name}")
            link.run(
                f"select holdfast.create_endpoint('{name}', jsonb_build_object('url', '{url}/{number}', "
                f"'allow', array['127.0.0.1'], 'concurrency', {CONCURRENCY}, 'signing_secret', '{sealed}'))"
            )
            left = -(-messages // case.endpoints)
            while left > 0:
                batch = payload.documents(min(left, BATCH)).decode().replace("'", "''")
                link.run(f"select holdfast.send_batch('{name}', E'{escaped(batch)}'::jsonb[])")
                left -= BATCH
        link.run("analyze")
    finally:
        link.close()


def escaped(text: str) -> str:
    """Text within E''."""
    return text.replace("\\", "\\\\")


def measure(
    process: subprocess.Popen[str], receiver: Receiver, arena: Arena, seconds: float, warm: float
) -> Sample:
    """Warm up, then count what arrives, and what that takes."""
    until = time.monotonic() + START_S
    while receiver.count() == 0:
        if process.poll() is not None:
            raise DeliveryError(f"it ended with {process.returncode}: {process.communicate()[1][-2000:]}")
        if time.monotonic() > until:
            raise DeliveryError("nothing arrives")
        time.sleep(PAUSE_S)
    time.sleep(warm)
    whole = psutil.Process(process.pid)
    database, own = arena.cpu.read(()), spent(whole)
    before, began = receiver.count(), time.perf_counter()
    time.sleep(seconds)
    count, took = receiver.count() - before, time.perf_counter() - began
    used = arena.cpu.read(()) - database
    if not count:
        raise DeliveryError("nothing arrived while it was measured")
    return Sample(
        per_second=count / took,
        client_us=(spent(whole) - own) * US_PER_S / count,
        cpu_us=used.background / NS_PER_US / count,
    )


def spent(process: psutil.Process) -> float:
    """Seconds of CPU so far, of all threads."""
    times = process.cpu_times()
    return times.user + times.system
