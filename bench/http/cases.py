"""What is measured: a route that does nothing, a send, a claim with its ack, and streams of pushed work."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from bench.arena import Arena
from bench.http.load import Load, LoadError, drain, get, post
from bench.http.servers import Running, Served
from bench.http.streams import DRAIN_S, Pushed
from bench.sample import Sample
from bench.tally import NS_PER_US

WARM_S = 1.0
CLAIMED_PER_S = 8_000  # more than anybody settles: the queue must not run dry
US_PER_S = 1_000_000

Do = Callable[[Served, str, int, float], Load]


@dataclass(frozen=True, slots=True)
class HttpCase:
    """One kind of request. backlog: messages that must be there for each second."""

    name: str
    title: str
    do: Do
    backlog: int = 0


def _nothing(served: Served, url: str, connections: int, seconds: float) -> Load:
    return get(url, served.health, connections=connections, seconds=seconds)


def _send(served: Served, url: str, connections: int, seconds: float) -> Load:
    path, body = served.send
    return post(url, path, body, connections=connections, seconds=seconds)


def _drain(served: Served, url: str, connections: int, seconds: float) -> Load:
    return drain(url, served.drain, connections=connections, seconds=seconds)


CASES = [
    HttpCase("nothing", "a route that does nothing", _nothing),
    HttpCase("send", "send a message", _send),
    HttpCase("claim-ack", "claim a message, then ack it: two requests", _drain, CLAIMED_PER_S),
]


def measure(
    case: HttpCase, served: Served, server: Running, arena: Arena, connections: int, seconds: float
) -> Sample:
    """One turn: warm up, then count what the server and its database take."""
    if case.backlog:
        arena.preload(round(case.backlog * (seconds + WARM_S)))
    case.do(served, server.url, connections, WARM_S)
    database, own = arena.cpu.read(()), server.cpu_s()
    load = case.do(served, server.url, connections, seconds)
    used = arena.cpu.read(()) - database
    if case.backlog and arena.session().stats() == 0:
        raise LoadError(f"{served.contender.name} emptied the queue: the figures mean nothing")
    arena.release()
    return Sample(
        per_second=load.of / load.seconds,
        client_us=(server.cpu_s() - own) * US_PER_S / load.of,
        cpu_us=used.background / NS_PER_US / load.of,
        p50_ms=load.p50_ms,
        p99_ms=load.p99_ms,
    )


def push(server: Running, streams: int, rate: int, seconds: float) -> Pushed:
    """Streams in a process of their own."""
    words = [server.url, str(streams), str(rate), str(seconds)]
    run = subprocess.run(
        [sys.executable, "-m", "bench.http.streams", *words],
        capture_output=True,
        text=True,
        timeout=seconds + DRAIN_S + 60,
    )
    if run.returncode != 0:
        raise LoadError(f"the streams' client ended with {run.returncode}: {run.stderr[-2000:]}")
    return Pushed(**json.loads(run.stdout))
