"""What a server is told: by options of `holdfast serve`, else by the environment."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long the server waits for a client, in seconds."""

    head: float = 10.0  # until path and headers of a request are there
    body: float = 60.0  # from then on, until its body is
    stall: float = 60.0  # until a client reads on that has stopped reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """How a server delivers messages to endpoints."""

    endpoints: tuple[str, ...] | None = None  # by name; None: all
    allow: tuple[str, ...] = ()  # networks, addresses and hosts beyond the public internet
    concurrency: int = 100  # deliveries at once, to all endpoints together
    lease: float = 15.0  # seconds that others wait for what a process that died was at


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a server works; the defaults suit one on loopback."""

    database_url: str
    listen_url: str | None = None  # for LISTEN, where database_url goes through PgBouncer
    listen: bool = True
    redis_url: str | None = field(default=None, repr=False)  # for what servers remember together
    host: str = "127.0.0.1"
    port: int = 8080
    max_body: int = 16 * MIB  # bytes, after unpacking
    pool_size: int = 8
    statement_timeout: float = 30.0  # seconds for one call of the database; then it is broken off
    prepare: bool = False
    patience: Patience = Patience()
    heartbeat: float = 15.0  # seconds between two signs of life in an event stream
    upkeep: float = 10.0  # seconds between two rounds of maintain(), of all servers together; 0: none
    task_attempts: int = 8  # of what is to be done on services; then it has failed
    task_pause: float = 1.0  # seconds after the first of them; then twice as long, up to a minute
    drain: float = 0.0  # seconds that it serves on after it was told to end, while /readyz says so
    grace: float = 15.0  # seconds for requests to end; then they are broken off
    metrics_queues: int = 100  # queues whose figures are among the metrics
    log_format: str = "text"  # or json
    log_level: str = "info"
    cors: tuple[str, ...] = ()  # origins whose pages may call
    trust_proxy: bool = False  # on this machine
    proxies: tuple[str, ...] = ()  # addresses and networks of others that are trusted
    key_folder: Path | None = None  # where the key is that secrets are sealed with, if no variable has it
    dialects: tuple[str, ...] | None = None  # by name; None: all on loopback, none elsewhere
    dispatch: Dispatch | None = None  # None: it delivers nothing
    agent: bool = True  # whether it works on what is to be done on services
    tls_certificate: str | None = None  # files
    tls_key: str | None = None

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
