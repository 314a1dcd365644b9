"""Files as Spark's own file systems see them, from the driver: local, HDFS, object stores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ._pipeline import PipelineError


class Storage:
    """A folder, wherever it is. Paths are relative to it, except where they are handed to Spark."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        given = self._path(root)
        self._files = given.getFileSystem(spark._jsc.hadoopConfiguration())
        self._root = self._files.makeQualified(given)

    def __str__(self) -> str:
        return str(self._root.toString())

    def address(self, path: str) -> str:
        """The whole path, with its file system."""
        return f"{self}/{path}"

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return bool(self._files.exists(self._at(path)))

    def names(self, path: str = "") -> list[str]:
        """What is in a folder; nothing, if there is no such folder."""
        folder = self._at(path)
        if not self._files.exists(folder):
            return []
        return sorted(each.getPath().getName() for each in self._files.listStatus(folder))

    def move(self, source: str, target: str) -> None:
        """Give a file its place. Where names are all that moves, nobody sees a part of it."""
        where = self._at(target)
        self._files.mkdirs(where.getParent())
        if not self._files.rename(self._at(source), where):
            raise PipelineError(f"{self.address(source)} could not be renamed to {self.address(target)}")
        self._secure(where)

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; if it is there."""
        self._files.delete(self._at(path), True)

    def read(self, path: str) -> str:
        """The text of a small file."""
        return self._text(self._at(path))

    def read_all(self, path: str) -> list[str]:
        """The text of each small file that is there, if the folder is a pattern; else of one or none."""
        found = self._files.globStatus(self._at(path)) or ()
        return [self._text(each.getPath()) for each in found]

    def write(self, path: str, text: str) -> None:
        """A small file, whole or not at all."""
        draft = f"{path}.draft"
        self._fill(self._files.create(self._at(draft), True), text)
        self.move(draft, path)

    def create(self, path: str, text: str) -> bool:
        """A small file, whole, unless there is one: then False. Of two that come at once, one makes it."""
        if self.exists(path):
            return False
        if self._on_disk:
            return self._link(path, text)
        try:
            self._fill(self._files.create(self._at(path), False), text)
        except Py4JJavaError:
            if self.exists(path):
                return False
            raise
        return True

    def _link(self, path: str, text: str) -> bool:
        """On a disk of this machine Hadoop looks whether a file is there, then makes it: so two could."""
        draft = f"{path}.{uuid4().hex}"
        self.write(draft, text)
        try:
            os.link(_local(self._at(draft)), _local(self._at(path)))
        except FileExistsError:
            return False
        finally:
            self.remove(draft)
        self._secure(self._at(path))
        return True

    def _fill(self, stream: Any, text: str) -> None:
        try:
            stream.write(bytearray(text, "utf-8"))
        finally:
            stream.close()

    @property
    def _on_disk(self) -> bool:
        return bool(self._files.getUri().getScheme() == "file")

    def _at(self, path: str) -> Any:
        return self._path(self._root, path) if path else self._root

    def _text(self, path: Any) -> str:
        stream = self._files.open(path)
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def _secure(self, path: Any) -> None:
        """On a disk of this machine: let the file and its name outlive a power failure."""
        if not self._on_disk:
            return  # others do so by themselves once a file is closed
        top = _local(self._root).parent
        local = _local(path)
        for each in (local, *local.parents):
            if each == top:
                break
            _flush(each)


def _local(path: Any) -> Path:
    return Path(path.toUri().getPath())


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
