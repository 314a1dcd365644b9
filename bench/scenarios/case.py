"""One line of the table: how to measure it, in an arena that someone else sets up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.arena import Arena
from bench.crew import Crew
from bench.sample import Sample

LAPS = 10


def lap_quota(quota: int) -> int:
    """How many of its messages a client is to finish in one lap; its last call may bring some more."""
    return -(-quota // LAPS)


@dataclass(frozen=True, slots=True)
class Course:
    """A warm crew, and how many messages each of its clients is to finish."""

    crew: Crew
    quota: int


@dataclass(frozen=True, slots=True)
class Case:
    """Cost per message (or call). `ready` fills the arena; the contenders then take turns in short laps.

    `lasting` names a database that is prepared once, kept over the rounds and shared by the cases that name
    it; otherwise each round has a fresh one.
    """

    name: str
    group: str
    title: str
    ready: Callable[[Arena], Course]
    shown: tuple[str, ...] = ("cpu_us", "background_us", "wal_bytes", "per_second")
    prepare: Callable[[Arena], None] | None = None
    lasting: str | None = None


@dataclass(frozen=True, slots=True)
class LongCase:
    """First and last window of a long run; each contender runs alone."""

    name: str
    group: str
    title: str
    measure: Callable[[Arena], Sample]


AnyCase = Case | LongCase
