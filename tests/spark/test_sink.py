"""The batch write, without Spark: what tasks stage, and what the driver makes of it.

1. A write is sent whole, in the order of its parts, and once; attempts that do not count leave no trace.
2. Bad rows stop a write, or are set aside with the reason; the good ones are sent then.
3. A connection that is lost in the commit does not make a message twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import StringType, StructType

from holdfast.spark._database import LostConnectionError
from holdfast.spark.options import OptionError, Options, Use
from holdfast.spark.sink import BadRowsError, MessageWriter, Part, Stage
from tests.engine.engine import Engine, payloads
from tests.fix_proxy import Proxy


def stage(url: str, write: str = "w", run: str = "a", **given: str) -> Stage:
    return Stage(Options.parse({"url": url, "queue": "q", **given}, Use.WRITE), write, run)


def batches(*columns: dict[str, list[Any]]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict(each) for each in columns])


def staged(engine: Engine) -> int:
    return int(engine.look("select count(*) from holdfast.staged"))


def test_parts_are_sent_in_their_order(database_url: str, queue: Engine) -> None:
    write = stage(database_url)
    late = write.fill(batches({"payload": ["3"]}, {"payload": ["4", "5"]}), 1)
    early = write.fill(batches({"payload": ["1", "2"]}), 0)

    sent = write.send([late, early])

    assert (sent, payloads(queue.claim(10))) == (5, [1, 2, 3, 4, 5])
    assert staged(queue) == 0


def test_a_second_write_of_the_same_id_sends_nothing(database_url: str, queue: Engine) -> None:
    first, second, third = (stage(database_url, run=run) for run in "abc")
    begun = second.fill(batches({"payload": ["1"]}), 0)

    first.send([first.fill(batches({"payload": ["1"]}), 0)])
    again = second.send([begun])
    part = third.fill(batches({"payload": ["1"]}), 0)

    assert (again, part, third.send([part])) == (0, Part(0, None, 0, 0, None), 0)
    assert (len(queue.claim(10)), staged(queue)) == (1, 0)


def test_an_attempt_that_does_not_count_is_not_sent(database_url: str, queue: Engine) -> None:
    write = stage(database_url)
    write.fill(batches({"payload": ['"lost"']}), 0)

    write.send([write.fill(batches({"payload": ['"counts"']}), 0)])

    assert (payloads(queue.claim(10)), staged(queue)) == (["counts"], 0)


def test_a_write_that_is_aborted_leaves_nothing(database_url: str, queue: Engine) -> None:
    write = stage(database_url)

    write.drop([write.fill(batches({"payload": ["1"]}), 0)])

    assert (queue.stats()["depth"], staged(queue)) == (0, 0)


def test_rows_that_do_not_fit_the_schema_of_the_queue_are_set_aside(
    database_url: str, queue: Engine, tmp_path: Path
) -> None:
    queue.value("set_schema", queue="q", definition={"type": "object", "required": ["id"]})
    rows: dict[str, list[Any]] = {
        "payload": ['{"id": 1}', "{", '{"no": 1}', None, None],
        "body": [None, None, None, b"x", None],
    }
    strict = stage(database_url)
    lenient = stage(database_url, write="v", run="b", quarantine=str(tmp_path))

    with pytest.raises(BadRowsError, match=r'row 3: payload: "id" is a required property \[QH240\]'):
        strict.fill(batches(rows), 0)
    lenient.send([lenient.fill(batches(rows), 0)])

    (kept,) = tmp_path.glob("**/*.parquet")
    reasons = pq.read_table(kept)["reason"].to_pylist()
    assert payloads(queue.claim(10)) == [{"id": 1}]
    assert len(reasons) == 4
    assert any("no bodies" in reason for reason in reasons)
    assert "payload: is missing [QH240]" in reasons


BAD: dict[str, list[Any]] = {
    "payload": ["1", "{", '"\0"', "4", '"\\u0000"', "6"],
    "priority": [0, 0, 0, 11, 0, 0],
}
REASONS = {
    2: "payload: invalid input syntax for type json",
    3: "payload has a NUL character",
    4: "priority is out of range: Got 11. [QH204]",
    5: "payload: unsupported Unicode escape sequence",
}


def test_bad_rows_stop_a_write(database_url: str, queue: Engine) -> None:
    with pytest.raises(
        BadRowsError, match=r"4 of 6 rows of partition 7 .*row 2: payload: invalid input syntax"
    ):
        stage(database_url).fill(batches(BAD), 7)


def test_bad_rows_are_set_aside_with_the_reason(database_url: str, queue: Engine, tmp_path: Path) -> None:
    write = stage(database_url, "a/b", quarantine=str(tmp_path / "bad"))
    good = write.fill(batches({"payload": ["0"], "priority": [0]}), 0)
    mixed = write.fill(batches({"payload": ["0"], "priority": [0]}, BAD), 1)

    sent = write.send([good, mixed])

    assert (sent, payloads(queue.claim(10))) == (4, [0, 0, 1, 6])
    (file,) = (tmp_path / "bad").rglob("*.parquet")
    assert file.relative_to(tmp_path).as_posix() == "bad/write_id=a%2Fb/part-00001.parquet"
    rows = pq.read_table(file).to_pylist()
    assert {row["row"] - 1: row["payload"] for row in rows} == {n: BAD["payload"][n - 1] for n in REASONS}
    assert [row["reason"].startswith(REASONS[row["row"] - 1]) for row in rows] == [True] * 4


def test_the_quarantine_keeps_only_what_counts(database_url: str, queue: Engine, tmp_path: Path) -> None:
    write = stage(database_url, quarantine=str(tmp_path))
    write.fill(batches(BAD), 3)
    part = write.fill(batches(BAD), 1)

    write.send([part])
    kept = sorted(file.name for file in tmp_path.rglob("*.parquet"))
    stage(database_url, run="b", quarantine=str(tmp_path)).send([])

    assert kept == sorted(file.name for file in tmp_path.rglob("*.parquet")) == ["part-00001.parquet"]


def test_an_aborted_write_takes_its_quarantine_along(
    database_url: str, queue: Engine, tmp_path: Path
) -> None:
    write = stage(database_url, quarantine=str(tmp_path))

    write.drop([write.fill(batches(BAD), 0)])

    assert list(tmp_path.rglob("*.parquet")) == []


def test_overwriting_a_queue_is_refused(database_url: str) -> None:
    options = Options.parse({"url": database_url, "queue": "q"}, Use.WRITE)

    with pytest.raises(OptionError, match="option mode: got overwrite; expected append"):
        MessageWriter(options, StructType().add("payload", StringType()), True)


def test_a_commit_whose_answer_is_lost_is_asked_again(
    database_url: str, queue: Engine, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = stage(proxy.url)
    part = write.fill(batches({"payload": ["1"]}), 0)
    once = Stage._send

    def lossy(self: Stage, *arguments: Any) -> tuple[int, bool]:
        once(self, *arguments)
        monkeypatch.setattr(Stage, "_send", once)
        raise LostConnectionError("the answer was lost")

    monkeypatch.setattr(Stage, "_send", lossy)
    sent = write.send([part])

    assert (sent, len(queue.claim(10))) == (0, 1)


def test_a_database_that_stays_away_ends_a_commit_with_a_clear_error(queue: Engine, proxy: Proxy) -> None:
    write = stage(proxy.url, retry_for="200 ms")
    part = write.fill(batches({"payload": ["1"]}), 0)
    proxy.stop()

    with pytest.raises(LostConnectionError):
        write.send([part])
    proxy.start()

    assert write.send([part]) == 1
