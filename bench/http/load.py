"""wrk, which asks as fast as it is answered, on so many connections."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
US_PER_S = 1_000_000
US_PER_MS = 1_000
GRACE_S = 60  # for wrk to end by itself


class LoadError(Exception):
    """wrk did not do what it was told, or was told no."""


@dataclass(frozen=True, slots=True)
class Load:
    """What was done. of: requests, or what counts in their place."""

    of: int
    requests: int
    seconds: float
    p50_ms: float
    p99_ms: float


def post(url: str, path: str, body: str, *, connections: int, seconds: float) -> Load:
    """Post the same again and again."""
    return _wrk("post.lua", url, ["POST", path, body], connections, seconds)


def get(url: str, path: str, *, connections: int, seconds: float) -> Load:
    """Get the same again and again."""
    return _wrk("post.lua", url, ["GET", path, ""], connections, seconds)


def drain(url: str, words: Sequence[str], *, connections: int, seconds: float) -> Load:
    """Claim and settle, as drain.lua is told in so many words; what counts is what was settled."""
    return _wrk("drain.lua", url, words, connections, seconds)


def _wrk(script: str, url: str, words: Sequence[str], connections: int, seconds: float) -> Load:
    options = ["-t1", f"-c{connections}", f"-d{seconds:g}s", "-s", str(FOLDER / script)]
    command = ["wrk", *options, url, "--", *words]
    run = subprocess.run(command, capture_output=True, text=True, timeout=seconds + GRACE_S)
    if run.returncode != 0:
        raise LoadError(f"wrk ended with {run.returncode}: {run.stderr or run.stdout}")
    told = json.loads(run.stdout.strip().splitlines()[-1])
    if told["failed"]:
        raise LoadError(f"{told['failed']:,} of {told['requests']:,} requests to {url} failed")
    return Load(
        of=told.get("settled", told["requests"]),
        requests=told["requests"],
        seconds=told["us"] / US_PER_S,
        p50_ms=told["p50_us"] / US_PER_MS,
        p99_ms=told["p99_us"] / US_PER_MS,
    )
