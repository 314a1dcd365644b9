"""What the cases work on: databases, a Spark session, and a folder for files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession

from bench.arena import Arena
from bench.contenders.contender import Contender
from bench.databases import Databases
from holdfast.spark.session import make_session

JDBC_JAR = Path("/usr/share/java/postgresql.jar")
PARTITIONS = 8  # of every read and write, whoever does it
JDBC_DRIVER = "org.postgresql.Driver"
# Without these the driver sends rows one by one, and refuses to put text into a jsonb column.
JDBC_SETTINGS = {"reWriteBatchedInserts": "true", "stringtype": "unspecified"}


@dataclass(frozen=True, slots=True)
class Ground:
    databases: Databases
    contender: Contender
    spark: SparkSession
    folder: Path

    @contextmanager
    def empty(self) -> Iterator[Arena]:
        """A database with an empty queue, gone afterwards."""
        with self.databases.fresh(self.contender) as arena:
            yield arena

    @contextmanager
    def filled(self, messages: int) -> Iterator[Arena]:
        """The same with so many messages in its queue."""
        with self.empty() as arena:
            arena.preload(messages)
            yield arena

    def lasting(self, messages: int) -> Arena:
        """A database that is filled once, and read by whoever wants."""
        arena, new = self.databases.kept(self.contender, f"filled {messages}")
        if new:
            arena.preload(messages)
        return arena


@contextmanager
def spark_session(jar: Path) -> Iterator[SparkSession]:
    """Spark with the settings that a user gets, and the JDBC driver."""
    session = make_session("holdfast bench", settings={"spark.jars": str(jar)}, quiet=True)
    try:
        yield session
    finally:
        session.stop()


def jdbc_options(url: str) -> dict[str, str]:
    """A database as Spark's JDBC source is told of it."""
    found = conninfo_to_dict(url)
    account = {"user": str(found["user"]), "password": str(found.get("password") or "")}
    host, port, name = (found.get(key) or "" for key in ("host", "port", "dbname"))
    address = f"jdbc:postgresql://{host}:{port or 5432}/{name}?{urlencode(account | JDBC_SETTINGS)}"
    return {"url": address, "driver": JDBC_DRIVER}
