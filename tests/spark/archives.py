"""An archive for tests: messages of every kind that have ended, a journal of them, and where they are now."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, LiteralString

import pyarrow.dataset as ds
from psycopg.types.json import Jsonb

from tests.engine.engine import Engine

# Everything that is to be found again, as text: by other means than those of the pipeline.
JOURNAL: LiteralString = """
select q.name, a.id, a.outcome, a.payload::text, encode(a.body, 'hex'), a.headers::text, a.tag, a.key,
       a.ended_at, a.enqueued_at, a.last_error, a.origin::text, a.deliveries
from holdfast.archive a join holdfast.queue q on q.id = a.queue_id
"""
COLUMNS = [
    *("queue", "id", "outcome", "payload", "body", "headers", "tag", "key"),
    *("ended_at", "enqueued_at", "last_error", "origin", "deliveries"),
]
ODD: dict[str, Any] = {"text": "ü \u2028 , 1:x \\ \"", "big": 12345678901234567890.5, "none": None}

Row = tuple[Any, ...]


def fill(engine: Engine, count: int, *, queue: str = "q", **options: Any) -> None:
    """End messages of a queue as done."""
    engine.send_numbers(count, queue=queue, **options)
    while found := engine.claim(10_000, queue=queue):
        engine.settle("ack", found[0]["token"], queue=queue)


def fill_oddly(engine: Engine, queue: str = "q") -> None:
    """End messages with whatever a message may have."""
    for options in (
        {"payload": Jsonb(ODD), "headers": {"a": "b"}, "tag": "", "key": "k,1"},
        {"body": bytes(range(256)), "content_type": "application/octet-stream"},
        {"body": b""},
        {"payload": Jsonb(None), "ttl": "1 h", "correlation_id": "6f1d7d1e-0000-4000-8000-000000000000"},
        {"payload": Jsonb("x" * 1_000_000)},
        {},
    ):
        engine.value("send", queue=queue, **options)
        engine.settle("ack", engine.claim_one(queue=queue, consumer="ü")["token"], queue=queue)


def journal(engine: Engine) -> Counter[Row]:
    """What the database holds."""
    return Counter(engine.conn.execute(JOURNAL).fetchall())


def in_lake(lake: Path) -> Counter[Row]:
    """What the lake holds, read without Spark."""
    if not lake.exists():
        return Counter()
    table = ds.dataset(lake, format="parquet", partitioning="hive").to_table()
    if not table.num_rows:
        return Counter()
    return Counter(tuple(_plain(row[name]) for name in COLUMNS) for row in table.to_pylist())


def files(lake: Path) -> list[str]:
    """The files that readers see, and all that is beside them."""
    return sorted(str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file())


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
