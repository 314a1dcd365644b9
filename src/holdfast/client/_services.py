"""Services, their queues and tasks, as they are told; and how to connect to a service, sealed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from ._errors import InvalidServiceError

NOT_HERE = {"passfile", "service", "servicefile"}  # files of the machine that connects
SHOWN = ("host", "hostaddr", "port", "dbname", "user")
LOCAL = "local"
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LONGEST_URL = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceInfo:
    """A PostgreSQL service on which queues can be made, without its secret."""

    id: UUID
    name: str
    address: str
    queues: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceQueue:
    """A queue that was asked for on a service."""

    id: UUID
    service_id: UUID
    service: str
    name: str
    database_name: str
    visibility_timeout_seconds: int
    max_attempts: int
    dlq_enabled: bool
    status: str
    error_message: str | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTask:
    """Something to be done on a service, and what came of it so far."""

    id: UUID
    kind: str
    status: str
    result: Any
    error_message: str | None
    attempts: int
    created_at: datetime
    updated_at: datetime
    completed_at: datetime | None


def purpose_of(service: str) -> str:
    """What the address of a service is sealed for."""
    return f"service:{service}"


def check_name(name: str) -> None:
    """Refuse what the database will refuse, before anything is done for it."""
    if not NAME.fullmatch(name) or name == LOCAL or ID.fullmatch(name):
        raise InvalidServiceError(
            "QH850",
            "a service cannot have this name",
            f"Got {name[:100]!r}.",
            "A name has 1 to 63 characters out of a-z 0-9 _ -, begins with a letter or a digit, and is"
            f" neither an id nor {LOCAL}, which is this database.",
        )


def shown(url: str) -> str:
    """Where a service is, for people: what it takes to connect, without what is secret."""
    try:
        # An error would quote what it cannot read, and there may be a password in it.
        given = conninfo_to_dict(url) if len(url) <= LONGEST_URL else {}
    except ProgrammingError:
        given = {}
    named = {name: str(given[name]) for name in SHOWN if given.get(name)}
    if not named.keys() & {"host", "hostaddr"} or NOT_HERE & set(given) or may_hold_secrets(named):
        raise InvalidServiceError(
            "QH850",
            "this is no address of a service",
            "It is not shown, since there may be a password in it.",
            "It is like postgresql://user:password@host:5432/database, and names a host. "
            "In a password @ is written as %40, and / as %2F.",
        )
    where = named.get("host") or named["hostaddr"]
    port = f":{named['port']}" if "port" in named else ""
    user = f"{named['user']}@" if "user" in named else ""
    return f"postgresql://{user}{f'[{where}]' if ':' in where else where}{port}/{named.get('dbname', '')}"


def may_hold_secrets(named: Mapping[str, str]) -> bool:
    """Whether a password with an @ or a / may have been taken for what comes after it."""
    where = (named.get(name, "") for name in ("host", "hostaddr", "dbname"))
    port = named.get("port", "").replace(",", "")
    return any("@" in each or "=" in each for each in where) or not (port.isdecimal() or not port)
