"""What a pipeline needs: queues, rights, files. Looked for before Spark starts, which takes long."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from holdfast.client._schema import check_schema
from holdfast.spark._access import (
    check_archivable,
    check_condition,
    check_readable,
    check_redrivable,
    check_replayable,
    check_sendable,
)
from holdfast.spark._database import DatabaseError, LostConnectionError, calls
from holdfast.spark._table import MissingTableError, find_table
from holdfast.spark._where import checked_condition
from holdfast.spark.options import Secret

from ._pipeline import PipelineError

# What may say that paths without a scheme are not files of this machine.
OTHER_FILES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME")
OTHER_FILES_SETTING = "spark.hadoop.fs.default"
PATTERN = frozenset("*?")
# Patterns that Spark knows and we do not, or not in the same way.
FOREIGN_PATTERN = frozenset("[]{}\\")

MADE_BY = "Run it with --dry-run: that shows a statement which makes the table."
IN_POSTGRESQL = "Hint: --where is PostgreSQL's SQL: payload ->> 'country' = 'DE'"


@dataclass(frozen=True, slots=True)
class Ground:
    """What a pipeline will run on."""

    url: Secret
    local_files: bool = True
    dry_run: bool = False

    def is_local(self, path: str) -> bool:
        """Whether a path is on this machine, as far as that can be said without Spark."""
        return path.startswith("file:") or (self.local_files and ":" not in path)


class Need(Protocol):
    """Something without which a pipeline cannot work."""

    def check(self, ground: Ground) -> None:
        """Refuse what is not there."""
        ...


@runtime_checkable
class NeedyPipeline(Protocol):
    """A pipeline that can tell what it needs. Nothing is started, nor written down, if that is not there."""

    @property
    def needs(self) -> Sequence[Need]:
        """What has to be there."""
        ...


@dataclass(frozen=True, slots=True)
class Sends:
    """A queue to send to."""

    queue: str

    def check(self, ground: Ground) -> None:
        """Look for the queue, and the right."""
        check_sendable(ground.url, self.queue)


@dataclass(frozen=True, slots=True)
class Reads:
    """A queue whose messages are read."""

    queue: str
    state: str

    def check(self, ground: Ground) -> None:
        """Look for the queue, and the right."""
        check_readable(ground.url, self.queue, self.state)


@dataclass(frozen=True, slots=True)
class Selects:
    """A condition over the messages of a queue that is read; none: all of them."""

    queue: str
    state: str
    condition: str | None

    def check(self, ground: Ground) -> None:
        """Let PostgreSQL say what it thinks of it."""
        if self.condition is None:
            return
        try:
            check_condition(ground.url, self.queue, self.state, checked_condition(self.condition))
        except ValueError as error:
            raise PipelineError(f"--where: got {self.condition!r}; {error}\n{IN_POSTGRESQL}") from None
        except LostConnectionError:
            raise
        except DatabaseError as error:
            told = str(error).partition("\n")[0]  # below it, the statement that was made of the condition
            raise PipelineError(f"--where: {told} [{error.sqlstate}]\n{IN_POSTGRESQL}") from None


@dataclass(frozen=True, slots=True)
class Archives:
    """Queues whose ended messages are moved out of the database; none: all of them."""

    queues: Sequence[str]

    def check(self, ground: Ground) -> None:
        """Look for the queues, and the right."""
        check_archivable(ground.url, self.queues)


@dataclass(frozen=True, slots=True)
class Redrives:
    """A queue whose dead letters are sent back, or to another."""

    queue: str
    target: str | None

    def check(self, ground: Ground) -> None:
        """Look for the queues, and the right."""
        check_redrivable(ground.url, self.queue, self.target)


@dataclass(frozen=True, slots=True)
class Replays:
    """A queue to send ended messages to."""

    queue: str

    def check(self, ground: Ground) -> None:
        """Look for the queue, and the right."""
        check_replayable(ground.url, self.queue)


@dataclass(frozen=True, slots=True)
class Fills:
    """A table of the database that rows are written to."""

    table: str

    def check(self, ground: Ground) -> None:
        """Look for the table, and the rights. A dry run goes on without it, to say how to make it."""
        try:
            with calls(ground.url) as connection:
                find_table(connection, self.table)
        except MissingTableError as error:
            if not ground.dry_run:
                raise PipelineError(f"{error}\nHint: {MADE_BY}") from None


@dataclass(frozen=True, slots=True)
class Finds:
    """Files that are read: a path, a folder or a pattern."""

    path: str

    def check(self, ground: Ground) -> None:
        """Look for them, if they are on this machine."""
        if not ground.is_local(self.path) or FOREIGN_PATTERN & set(self.path):
            return
        path = local_path(self.path)
        if not (any(glob.iglob(path)) if PATTERN & set(path) else os.path.exists(path)):
            raise PipelineError(f"{self.path}: there is no such file or folder, seen from {os.getcwd()}")


@dataclass(frozen=True, slots=True)
class Makes:
    """A folder that is not there yet."""

    path: str

    def check(self, ground: Ground) -> None:
        """Refuse it if it is on this machine."""
        if ground.is_local(self.path) and os.path.exists(local_path(self.path)):
            raise in_the_way(self.path)


def in_the_way(folder: str) -> PipelineError:
    """The error of a folder that should not be there."""
    return PipelineError(f"there is something in {folder}; name another folder, or add --overwrite")


def check_needs(needs: Sequence[Need], ground: Ground) -> None:
    """Refuse what cannot work."""
    with calls(ground.url) as connection:
        check_schema(connection)
    for need in needs:
        need.check(ground)


def has_local_files(settings: Mapping[str, str]) -> bool:
    """Whether paths without a scheme are files of this machine; if in doubt, not."""
    told = any(name.startswith(OTHER_FILES_SETTING) for name in settings)
    return not told and not any(os.environ.get(name) for name in OTHER_FILES)


def local_path(path: str) -> str:
    """The path in a file: URI, or the path itself."""
    found = path.removeprefix("file:")
    return "/" + found.lstrip("/") if found != path else path
