"""The query that a folder of Spark's file sink belongs to.

    FOLDER/_holdfast/stream.json   {"query": id}: whose batches these are; Spark passes it over
    FOLDER/_spark_metadata/17      Spark's note that batch 17 is written, of whichever query
    CHECKPOINT/metadata            {"id": id}: Spark's id of the query, kept for good
    CHECKPOINT/offsets/17          Spark's note that batch 17 was begun

Spark's sink knows batches by their numbers alone: a batch of a second query, whose number is there already,
would be taken for written and be lost. So a folder is noted to be one query's before its first batch.
"""

from __future__ import annotations

import json
import re
from uuid import uuid4

from ._pipeline import PipelineError
from ._storage import Storage

NOTE = "_holdfast/stream.json"
QUERY = "metadata"
WRITTEN = "_spark_metadata"
BEGUN = "offsets"
BATCH_FILE = re.compile(r"([0-9]+)(?:\.compact)?")


class Owner:
    """What a folder and a checkpoint say of one another."""

    def __init__(self, folder: Storage, checkpoint: Storage) -> None:
        self._folder = folder
        self._checkpoint = checkpoint

    def check(self) -> None:
        """Refuse a folder of another query, and one that has batches which the checkpoint does not know."""
        found = _noted(self._folder, NOTE, "query")
        written, begun = _latest(self._folder, WRITTEN), _latest(self._checkpoint, BEGUN)
        if found is None and written >= 0:
            raise PipelineError(
                f"{self._folder}: got {WRITTEN} and no {NOTE}, which says of which stream it is; expected a"
                " folder that no other program streams into"
            )
        if found is not None and found != _noted(self._checkpoint, QUERY, "id"):
            raise self._others(found)
        if written > begun:
            raise PipelineError(
                f"{self._folder} has batch {written} of this stream, {self._checkpoint} knows none after"
                f" {begun}: it is an old copy; name the checkpoint itself, or a new one and another folder"
            )

    def take(self) -> None:
        """Note whose folder it is. Of two that come at once, one is refused."""
        self._checkpoint.create(QUERY, json.dumps({"id": str(uuid4())}))
        query = _noted(self._checkpoint, QUERY, "id")
        self._folder.create(NOTE, json.dumps({"query": query}))
        found = _noted(self._folder, NOTE, "query")
        if found != query:
            raise self._others(found)

    def _others(self, query: str | None) -> PipelineError:
        return PipelineError(
            f"{self._folder} belongs to a stream with another checkpoint, query {query}; name that checkpoint"
            f" in place of {self._checkpoint}, or another folder"
        )


def _noted(storage: Storage, path: str, field: str) -> str | None:
    """What a note says; None if there is none."""
    if not storage.exists(path):
        return None
    try:
        return str(json.loads(storage.read(path))[field])
    except (ValueError, KeyError, TypeError):
        raise PipelineError(
            f"{storage.address(path)}: expected JSON with {field!r}, got something else"
        ) from None


def _latest(storage: Storage, folder: str) -> int:
    """The highest number among Spark's files of a folder; -1: there is none."""
    found = (BATCH_FILE.fullmatch(name) for name in storage.names(folder))
    return max((int(each[1]) for each in found if each), default=-1)
