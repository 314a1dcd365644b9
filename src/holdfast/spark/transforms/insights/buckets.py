"""Buckets: equal stretches of time, counted from 1970 in UTC: a moment is always in the same one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as F

BUCKETS: Mapping[str, timedelta] = MappingProxyType(
    {
        "1m": timedelta(minutes=1),
        "5m": timedelta(minutes=5),
        "1h": timedelta(hours=1),
        "1d": timedelta(days=1),
    }
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def bucket_of(moment: Column, bucket: timedelta) -> Column:
    """When the bucket of a moment begins."""
    size = bucket // MICROSECOND
    return F.timestamp_micros(F.unix_micros(moment) - F.pmod(F.unix_micros(moment), F.lit(size)))


def floored(moment: datetime, bucket: timedelta) -> datetime:
    """The same for one moment."""
    return EPOCH + (moment - EPOCH) // bucket * bucket


def raised(moment: datetime, bucket: timedelta) -> datetime:
    """When the next bucket begins; a moment at which one begins stays."""
    return EPOCH - (EPOCH - moment) // bucket * bucket
