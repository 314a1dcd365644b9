"""A Redis on a free port of loopback, which keeps nothing: Debian's, to be stopped, killed and held up."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import RedisError

from tests.waiting import eventually

PASSWORD = "open-sesame"
STOP_TIMEOUT = 10.0  # seconds
PATIENCE = 5.0  # seconds for an answer


class RedisServer:
    """redis-server, and somebody to look into it."""

    def __init__(self) -> None:
        program = shutil.which("redis-server")
        assert program, "redis-server is missing: `make test` as root installs it, or: apt-get install redis"
        self._program = program
        with socket.create_server(("127.0.0.1", 0)) as place:
            self.port = int(place.getsockname()[1])
        self.client = Redis(port=self.port, password=PASSWORD, socket_timeout=PATIENCE)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """With its password."""
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        nothing_kept = ["--save", "", "--appendonly", "no", "--maxmemory", "64mb"]
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--requirepass", PASSWORD]
        self._process = subprocess.Popen(
            [self._program, *place, *nothing_kept],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
        )
        eventually(self._answers, what="Redis answers")

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP holds it up, SIGCONT lets it go on."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT)
            self._process = None

    def _answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except RedisError:
            return False


@pytest.fixture
def redis_server() -> Iterator[RedisServer]:
    """A Redis of the test's own, running."""
    server = RedisServer()
    try:
        server.start()
        yield server
    finally:
        server.client.close()
        server.kill()
