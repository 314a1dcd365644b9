"""Files of the lake: written where nobody looks, read back, and given their place.

    LAKE/_holdfast/lake.json                  which lake this is
    LAKE/_holdfast/writing/ATTEMPT/batch=17/  what is being written; Spark passes it over
    LAKE/queue=orders/day=2030-01-31/batch-17.parquet
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from holdfast.spark._fetch import Fetcher
from holdfast.spark._paths import literal
from holdfast.spark.lake import STORED
from holdfast.spark.options import Secret
from holdfast.spark.transforms import archive as transforms
from holdfast.spark.transforms.archive import BATCH, CHECKSUM, FETCHED

from ._batches import Batch, Content
from ._pipeline import PipelineError
from ._storage import Storage

NOTE = "_holdfast/lake.json"
WRITING = "_holdfast/writing"
PAGE = 10_000  # messages that a task asks for at a time
PATIENCE = 60.0  # seconds for a database that is away
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # as a folder's name, read as null
LONGEST = 255  # characters of a folder's name, on most file systems
SINCE_1970 = "timestamptz 'epoch' + {} * interval '1 microsecond'"


class LakeFiles:
    """The files of one lake."""

    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage
        self._attempt = f"{WRITING}/{uuid4().hex}"

    def note(self) -> str | None:
        """Which lake this is; None if it is none yet."""
        if self._storage.exists(NOTE):
            return noted(self._storage.read(NOTE))
        if strays := [name for name in self._storage.names() if name.startswith("queue=")]:
            raise PipelineError(
                f"{self._storage}: got {strays[0]} and no {NOTE}, which says of which database it is;"
                " expected a lake, or a folder without such"
            )
        return None

    def claim(self, lake: str) -> None:
        """Note which lake this is."""
        self._storage.write(NOTE, json.dumps({"lake": lake}))

    def clear(self) -> None:
        """Remove what runs that were killed have left."""
        self._storage.remove(WRITING)

    def published(self, batch: Batch) -> bool:
        """Whether the file of a batch has its place."""
        return not too_long(batch.queue) and self._storage.exists(place(batch))

    def content(self, batches: Sequence[Batch]) -> dict[int, Content]:
        """What the files of batches hold that have their place."""
        return self._read_back([self._storage.address(place(batch)) for batch in batches])

    def write(self, batches: Sequence[Batch], url: Secret) -> dict[int, Content]:
        """Write batches where nobody looks; returns what is in their files: what the database had."""
        self._storage.remove(self._attempt)
        told = Observation()
        fetched = fetch(self._spark, [batch.id for batch in batches], url).observe(told, *transforms.totals())
        writer = transforms.outgoing(fetched).write.partitionBy(BATCH).option("compression", "zstd")
        writer.parquet(self._storage.address(self._attempt))
        found = self._read_back([self._storage.address(self._attempt)]) if told.get["messages"] else {}
        _refuse_other(told.get, found)
        return found

    def publish(self, batch: Batch) -> None:
        """Give the file of a batch its place."""
        folder = f"{self._attempt}/{BATCH}={batch.id}"
        (name,) = [name for name in self._storage.names(folder) if name.endswith(".parquet")]
        self._storage.move(f"{folder}/{name}", place(batch))

    def _read_back(self, paths: Sequence[str]) -> dict[int, Content]:
        reader = self._spark.read.schema(STORED)
        frame = reader.parquet(*map(literal, paths))
        table = transforms.read_back(frame).toArrow()
        numbers = table[BATCH].unique()
        return {number.as_py(): Content(table.filter(pc.equal(table[BATCH], number))) for number in numbers}


def known_lakes(storage: Storage) -> set[str]:
    """The lakes in a folder, or in those that are meant by a pattern, by what their notes say."""
    return {noted(text) for text in storage.read_all(NOTE)}


def noted(text: str) -> str:
    """Which lake a note is of."""
    return str(json.loads(text)["lake"])


def place(batch: Batch) -> str:
    """Where the file of a batch belongs."""
    if reason := too_long(batch.queue):
        raise PipelineError(reason)
    return f"{_folder(batch.queue)}/day={batch.day.isoformat()}/batch-{batch.id}.parquet"


def too_long(queue: str) -> str | None:
    """The reason, if no folder can be named after a queue."""
    length, most = len(_folder(queue)) - len(_folder("")), LONGEST - len(_folder(""))
    if length <= most:
        return None
    return (
        f"queue {queue}: its name takes {length} characters in a path, : takes three; expected {most} at most"
    )


def _folder(queue: str) -> str:
    """Of what the name of a queue may have, a path takes no colon."""
    named = queue.replace("_", "%5F", 1) if queue == NO_VALUE else queue.replace(":", "%3A")
    return f"queue={named}"


def fetch(spark: SparkSession, batches: Sequence[int], url: Secret) -> DataFrame:
    """The messages of batches, one partition each, as the database has them now."""

    def read(places: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Fetcher(url, patience=PATIENCE) as fetcher:
            for place in (number for each in places for number in each["id"].to_pylist()):
                yield from pages(fetcher, batches[place])

    return spark.range(0, len(batches), 1, len(batches)).mapInArrow(read, FETCHED)


def pages(fetcher: Fetcher, batch: int) -> Iterator[pa.RecordBatch]:
    """The messages of a batch, page by page."""
    wanted = to_arrow_schema(FETCHED, timezone="UTC")
    after = ""
    while True:
        query = f"select m.*, {batch}::bigint as {BATCH} from holdfast.read_batch({batch}, {PAGE}{after}) m"
        page = fetcher.table(query)
        if not page.num_rows:
            return
        last = page["ended_at"][-1].value, page["id"][-1].as_py()
        after = f", {SINCE_1970.format(last[0])}, {last[1]}"
        yield from page.select(wanted.names).cast(wanted).to_batches()


def _refuse_other(told: Mapping[str, int], found: Mapping[int, Content]) -> None:
    """Refuse files that hold anything else than what the database handed out."""
    messages = sum(len(content) for content in found.values())
    checksum = sum(sum(content.checksums) for content in found.values())
    if (messages, checksum) != (told["messages"], int(told[CHECKSUM] or 0)):
        raise PipelineError(
            f"what was written is not what was read: {messages:,} messages with checksum {checksum} in files,"
            f" {told['messages']:,} with {told[CHECKSUM]} in the database. Nothing was published or removed"
        )
