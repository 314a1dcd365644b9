"""Archiving: messages as the lake keeps them, and the checksums by which its files and the database compare.

A checksum is over one message: the first 60 bits of SHA-256 over all its columns as text. The view
holdfast.ended computes the same in SQL: what PostgreSQL has in its table is compared with what Spark read
from a file, and nothing in between is trusted.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, LongType, StructField, StructType

from holdfast.spark.lake import STORED

BATCH, CHECKSUM = "batch", "checksum"
# What tasks read from the database.
FETCHED = StructType([*STORED, StructField(CHECKSUM, LongType()), StructField(BATCH, LongType())])
# What is read back from files, to be compared.
COMPARED = (BATCH, "id", CHECKSUM)

# Numbers and times first: their text has no comma, so none can be taken for another.
NUMBERS = ("id", "root_id", "priority")
TIMES = ("enqueued_at", "claimed_at", "ended_at", "expires_at")
MORE_NUMBERS = ("deliveries", "failures", "max_deliveries", "order_no")
TEXTS = (
    "outcome",
    "consumer",
    "tag",
    "correlation_id",
    "key",
    "idempotency_key",
    "ordering_key",
    "content_type",
    "headers",
    "payload",
)
MORE_TEXTS = ("last_error", "origin")
# LAKE/queue=…/day=…/batch-17.parquet, or while it is being written …/batch=17/part-….parquet
BATCH_OF_FILE = r"batch[=-](\d+)(?:[.]parquet|/[^/]*)$"
HEXADECIMALS = 15  # of a checksum: 60 bits, which no sign is in the way of
SUM = DecimalType(38, 0)


def outgoing(fetched: DataFrame) -> DataFrame:
    """What is written: the columns of the lake, and the batch, by which rows are parted into files."""
    return fetched.select(*STORED.names, BATCH)


def read_back(files: DataFrame) -> DataFrame:
    """What is in files of the lake, to be compared: batch, id and checksum."""
    number = F.regexp_extract(F.col("_metadata.file_path"), BATCH_OF_FILE, 1).cast("bigint")
    return files.select(number.alias(BATCH), "id", checksum().alias(CHECKSUM)).select(*COMPARED)


def checksum() -> Column:
    """The checksum of a message of the lake."""
    body = F.coalesce(F.sha2("body", 256), F.lit(""))
    fields = [*map(_number, NUMBERS), *map(_time, TIMES), *map(_number, MORE_NUMBERS)]
    fields += [*map(_text, TEXTS), body, *map(_text, MORE_TEXTS)]
    digest = F.sha2(F.concat_ws(",", *fields), 256)
    return F.conv(F.substring(digest, 1, HEXADECIMALS), 16, 10).cast("bigint")


def totals() -> tuple[Column, Column]:
    """How many rows there are, and the sum of their checksums: the same whatever their order."""
    return F.count(F.lit(1)).alias("messages"), F.sum(F.col(CHECKSUM).cast(SUM)).alias(CHECKSUM)


def _number(name: str) -> Column:
    return F.coalesce(F.col(name).cast("string"), F.lit(""))


def _time(name: str) -> Column:
    return F.coalesce(F.unix_micros(F.col(name)).cast("string"), F.lit(""))


def _text(name: str) -> Column:
    """With its length before it: whatever is in it, it cannot be taken for the next field."""
    return F.coalesce(F.concat(F.length(name).cast("string"), F.lit(":"), F.col(name)), F.lit(""))
