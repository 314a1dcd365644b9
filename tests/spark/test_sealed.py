"""Writes to a queue that has a public key: rows are sealed before they are staged.

1. Whatever columns rows have, their content is an envelope in the stage and in the queue; the rest stays.
2. Rows that cannot be sealed, or do not fit a schema, are refused without being told.
3. Under an idempotency key the same is sent once.
4. A key that changes while rows are staged fails the write, and sets nothing aside.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from holdfast import UnsealedMessageError, open_sealed, seal
from holdfast.spark import _intake
from holdfast.spark.options import Options, Use
from holdfast.spark.sink import BadRowsError, Stage
from tests.engine.engine import Engine
from tests.seals.plainly import pair
from tests.spark.loads import loaded, write_lines
from tests.spark.runs import a_run

KEYS = pair()
SECRET = "Heiligenstadt"


def stage(url: str, run: str = "a", **given: str) -> Stage:
    return Stage(Options.parse({"url": url, "queue": "q", **given}, Use.WRITE), run, run)


def batches(*columns: dict[str, list[Any]]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(each) for each in columns])


def written(write: Stage, rows: dict[str, list[Any]]) -> int:
    """Write rows; returns how many were sent."""
    return write.send([write.fill(batches(rows), 0)])


@pytest.fixture
def sealed(queue: Engine) -> Engine:
    """The engine, with a queue `q` that has a key."""
    queue.value("set_seal_key", queue="q", public_key=KEYS.public)
    return queue


def opened(engine: Engine) -> list[Any]:
    """What is in the queue."""
    return [open_sealed(row["body"], KEYS.private) for row in engine.rows("browse", queue="q")]


def test_rows_are_sealed_before_they_are_staged(database_url: str, sealed: Engine) -> None:
    write = stage(database_url)
    rows: dict[str, list[Any]] = {
        "tag": ["a", "b", "c", "d"],
        "payload": [f'{{"town": "{SECRET}"}}', None, None, "null"],
        "body": [None, SECRET.encode(), b"", None],
        "content_type": [None, "text/plain", None, None],
    }

    part = write.fill(batches(rows), 0)
    in_stage = sealed.conn.execute("select payload, body from holdfast.staged").fetchall()
    write.send([part])

    assert all(payload is None and SECRET.encode() not in body for payload, body in in_stage)
    assert [row["tag"] for row in sealed.rows("browse", queue="q")] == ["a", "b", "c", "d"]
    assert [(each.payload, each.body, each.content_type) for each in opened(sealed)] == [
        ({"town": SECRET}, None, None),
        (None, SECRET.encode(), "text/plain"),
        (None, b"", None),
        (None, None, None),
    ]


def test_envelopes_are_passed_on(database_url: str, sealed: Engine) -> None:
    envelope = seal("q", 1, public_key=KEYS.public)

    written(stage(database_url), {"body": [envelope]})

    assert [row["body"] for row in sealed.rows("browse", queue="q")] == [envelope]


def test_what_cannot_be_sealed_is_refused_and_not_told(
    database_url: str, sealed: Engine, tmp_path: Path
) -> None:
    sealed.value("set_schema", queue="q", definition={"type": "object"})
    rows: dict[str, list[Any]] = {"payload": ['{"a": 1}', f'"{SECRET}"', f'{{"{SECRET}": ', None]}

    with pytest.raises(BadRowsError, match=r"row 2: payload: does not fit; .*QH240") as caught:
        written(stage(database_url), rows)
    sent = written(stage(database_url, run="b", quarantine=str(tmp_path)), rows)

    (kept,) = tmp_path.glob("**/*.parquet")
    told = str(caught.value) + str(pq.read_table(kept)["reason"].to_pylist())
    assert (sent, SECRET in told) == (1, False)


def test_what_is_no_json_is_refused(database_url: str, sealed: Engine) -> None:
    rows: dict[str, list[Any]] = {"payload": ["1", "{", "NaN", "2"], "body": [None, None, None, b"x"]}

    with pytest.raises(BadRowsError, match=r"3 of 4 .*row 2: the payload is not JSON.*row 4: .*not both"):
        written(stage(database_url), rows)


def test_the_same_under_a_key_is_sent_once(database_url: str, sealed: Engine) -> None:
    rows = {"payload": ["1"], "idempotency_key": ["k"]}

    written(stage(database_url, run="a"), rows)
    written(stage(database_url, run="b"), rows)

    assert [each.payload for each in opened(sealed)] == [1]


def test_a_key_that_comes_while_rows_are_staged_fails_the_write(
    database_url: str, queue: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = _intake.Sending.taken

    def late(self: Any, connection: Any, batch: Any, found: Any) -> Any:
        rows = taken(self, connection, batch, found)
        queue.value("set_seal_key", queue="q", public_key=KEYS.public)
        return rows

    monkeypatch.setattr(_intake.Sending, "taken", late)
    write = stage(database_url, quarantine=str(tmp_path))
    with pytest.raises(UnsealedMessageError, match="has changed"):
        write.fill(batches({"payload": [f'"{SECRET}"']}), 0)
    monkeypatch.undo()
    write.drop([])

    assert list(tmp_path.glob("**/*.parquet")) == []
    assert queue.look("select count(*) from holdfast.staged") == 0
    written(stage(database_url, run="b"), {"payload": [f'"{SECRET}"']})
    assert [each.payload for each in opened(queue)] == [SECRET]


@pytest.mark.verify
def test_a_load_is_sealed(spark: SparkSession, database_url: str, sealed: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *({"town": SECRET, "id": number} for number in range(50)))

    figures = loaded(a_run(spark, database_url), path)

    assert figures["sent"] == 50
    assert sorted(each.payload["id"] for each in opened(sealed)) == list(range(50))
