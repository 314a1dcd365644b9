"""The servers that are compared: each a process of its own, and how it is asked for the same things."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import httpx
import psutil
from psycopg.conninfo import conninfo_to_dict

from bench import payload
from bench.contenders.contender import QUEUE, Contender
from bench.contenders.holdfast import Holdfast
from bench.contenders.pgmq import Pgmq
from bench.http.load import LoadError

HOST = "127.0.0.1"
START_S, STOP_S = 60.0, 20.0
PAUSE_S = 0.1
DOCUMENT = payload.document(1).decode()


class Served(Protocol):
    """A contender's HTTP server."""

    @property
    def contender(self) -> Contender: ...

    @property
    def health(self) -> str:
        """The path of the route that does nothing."""

    @property
    def send(self) -> tuple[str, str]:
        """Path and body."""

    @property
    def drain(self) -> Sequence[str]:
        """As drain.lua takes it."""

    def command(self, port: int) -> list[str]: ...

    def environment(self, url: str) -> dict[str, str]: ...


class HoldfastServed:
    contender: Contender = Holdfast()
    health = "/healthz"
    send = (f"/v1/queues/{QUEUE}/messages", f'{{"messages": [{{"payload": {DOCUMENT}}}]}}')
    drain = (
        f"/v1/queues/{QUEUE}/claim",
        "{}",
        '"token":"(%d+)"',
        "POST",
        f"/v1/queues/{QUEUE}/ack",
        '{"token": "%s"}',
    )

    def command(self, port: int) -> list[str]:
        program = [str(Path(sys.executable).with_name("holdfast")), "serve", "--log-level", "warning"]
        return [*program, "--host", HOST, "--port", str(port)]

    def environment(self, url: str) -> dict[str, str]:
        return {"HOLDFAST_DATABASE_URL": url}


class PgmqServed:
    contender: Contender = Pgmq()
    health = "/v1/health"
    send = (f"/v1/queues/{QUEUE}/messages", f'{{"message": {DOCUMENT}}}')
    drain = (
        f"/v1/queues/{QUEUE}/read",
        '{"vt": 30, "qty": 1}',
        '"msg_id":(%d+)',
        "DELETE",
        f"/v1/queues/{QUEUE}/messages/%s",
        "",
    )

    def command(self, port: int) -> list[str]:
        program = [sys.executable, "-m", "pgmq.api", "--log-level", "warning"]
        return [*program, "--host", HOST, "--port", str(port)]

    def environment(self, url: str) -> dict[str, str]:
        parts = conninfo_to_dict(url)
        return {
            "PG_HOST": str(parts["host"]),
            "PG_PORT": str(parts["port"]),
            "PG_DATABASE": str(parts["dbname"]),
            "PG_USERNAME": str(parts["user"]),
            "PG_PASSWORD": str(parts.get("password") or ""),
            "PG_INIT_EXTENSION": "false",
        }


SERVED: Sequence[Served] = (HoldfastServed(), PgmqServed())


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers."""

    url: str
    process: psutil.Process

    def cpu_s(self) -> float:
        """Seconds of CPU so far, of all threads."""
        spent = self.process.cpu_times()
        return spent.user + spent.system


@contextmanager
def running(served: Served, database_url: str) -> Iterator[Running]:
    """The server on a database, gone afterwards."""
    port = free_port()
    process = subprocess.Popen(
        served.command(port),
        env=os.environ | served.environment(database_url),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = f"http://{HOST}:{port}"
        _await(process, url + served.health)
        yield Running(url, psutil.Process(process.pid))
    finally:
        _stop(process)


def free_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def _await(process: subprocess.Popen[str], url: str) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            _, said = process.communicate()
            raise LoadError(f"a server ended with {process.returncode}: {said[-2000:]}")
        try:
            httpx.get(url, timeout=1.0).raise_for_status()
            return
        except httpx.HTTPError:
            time.sleep(PAUSE_S)
    raise LoadError(f"nothing answers at {url}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.communicate(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
