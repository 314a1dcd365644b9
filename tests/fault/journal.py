"""The journal: what producers and consumers saw, in files of their own, outside PostgreSQL.

One file a process, one JSON object a line, on disk before the process goes on. So what a line says was true
when the process was killed; a last line that was cut off says nothing. Events:

    committing   keys                 from now on these messages may come to be
    intent       keys                 will be sent in a transaction that is not yet being committed
    sent         keys                 their commit was confirmed
    undone       keys                 their rollback was confirmed
    delivered    queue, token, lease, items [[key, id, deliveries, deadline], …],
                 held (the claim is committed), asked
    settling     verb, token, keys    the settlement may take effect from now on
    settled      verb, token, keys    it was confirmed, for these
    extended     token, keys, deadline     confirmed: held until then at least
    outage       kind, began, upto    a server crashed between these times: every lease has ended
    surprise     text                 an error that no fault explains
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Event = dict[str, Any]


class Journal:
    """An append-only file of events."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, event: str, **facts: Any) -> None:
        """Add an event; it is on disk when this returns."""
        line = json.dumps({"event": event, "at": time.time(), **facts}) + "\n"
        os.write(self._file, line.encode())
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_journals(folder: Path) -> list[Event]:
    """All events of all journals in a folder, by time."""
    events = [event for path in sorted(folder.glob("*.jsonl")) for event in _read(path)]
    return sorted(events, key=lambda event: float(event["at"]))


def _read(path: Path) -> Iterator[Event]:
    *complete, _rest = path.read_text().split("\n")
    for line in complete:
        yield json.loads(line)
