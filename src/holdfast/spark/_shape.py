"""The columns that Spark wants: how PostgreSQL is asked for them, and its answers made to fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructType

from ._payload import parse, refuse_unreadable
from .options import Options
from .schema import payload_type, selection


class Shape:
    """A schema of Spark's, over rows of the database."""

    def __init__(self, options: Options, schema: StructType) -> None:
        kind = payload_type(schema)
        self._errors = options.payload_errors
        self._fixed: Mapping[str, Any] = {}
        self._target: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self._raw = isinstance(kind, BinaryType)
        self._parsed = kind is not None and not isinstance(kind, StringType | BinaryType)
        if self._parsed:
            refuse_unreadable(self._target.field("payload").type)

    @property
    def columns(self) -> list[str]:
        """Their names."""
        return list(self._target.names)

    def given(self, fixed: Mapping[str, Any]) -> Shape:
        """The same, of rows that all have these values: they are filled in here, and not asked for."""
        narrowed = copy(self)
        narrowed._fixed = fixed
        return narrowed

    @property
    def selection(self) -> str:
        """The select list over a row m."""
        names = [name for name in self._target.names if name not in self._fixed]
        # An error about a payload names its message; and a row has a column at least.
        extra = ["id"] if "id" not in names and (self._parsed or not names) else []
        return selection([*names, *extra], raw=self._raw)

    def fitted(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows in Spark's types, without other columns; nothing if there are none."""
        if batch.num_rows:
            columns = [self._column(batch, field) for field in self._target]
            yield pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        if field.name in self._fixed:
            return pa.repeat(pa.scalar(self._fixed[field.name], field.type), batch.num_rows)
        if self._parsed and field.name == "payload":
            return parse(batch["payload"], batch["id"], field.type, errors=self._errors)
        return batch[field.name].cast(field.type)
