"""The data source `holdfast`: what Spark makes of the format's name. Its parts are in their own modules."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from .options import Options, Use
from .schema import schema_of


class HoldfastDataSource(DataSource):
    """Reads messages of a queue, and sends to it. Spark makes it more than once: no side effects."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "holdfast"

    def schema(self) -> str:
        """The columns of a read, as far as the options say."""
        if any(name.lower() == "mode" for name in self.options):
            # Spark asks for the schema without saying what for; only a stream has a mode.
            from .stream import stream_schema

            return stream_schema(Options.parse(self.options, Use.READ_STREAM))
        return schema_of(Options.parse(self.options, Use.READ))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch read."""
        from .source import MessageReader

        return MessageReader(Options.parse(self.options, Use.READ), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """The batch write."""
        from .sink import MessageWriter

        return MessageWriter(Options.parse(self.options, Use.WRITE), schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The stream read."""
        from .stream import stream_reader

        return stream_reader(Options.parse(self.options, Use.READ_STREAM), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """The stream write."""
        from .stream_sink import BatchWriter

        return BatchWriter(Options.parse(self.options, Use.WRITE_STREAM), schema, overwrite)
