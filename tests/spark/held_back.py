"""A function for a stream whose batches stop half way: they make the file NOTE, and wait for the file GO."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

NOTE, GO = "HOLDFAST_TEST_NOTE", "HOLDFAST_TEST_GO"
PATIENCE = 120.0  # seconds


def held_back(messages: DataFrame) -> DataFrame:
    """The payloads, once GO is there."""
    return messages.select("payload").mapInArrow(_wait, "payload string")


def _wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    Path(os.environ[NOTE]).touch()
    deadline = time.monotonic() + PATIENCE
    while not Path(os.environ[GO]).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    yield from batches
