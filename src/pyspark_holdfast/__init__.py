"""Lets Spark find the data source: it looks for `DefaultSource` in every module called `pyspark_…`."""

from __future__ import annotations

from holdfast.spark.datasource import HoldfastDataSource as DefaultSource

__all__ = ["DefaultSource"]
