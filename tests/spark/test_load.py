"""Load: files and tables into a queue.

1. Every row is one message, in chunks that are the same however many cores there are.
2. The same load again sends nothing; one that was killed goes on behind the last chunk that was sent.
3. A bad row, whoever refuses it, fails the load before anything is sent, or is set aside with its reason.
4. A dry run says what would be sent and what refused, and leaves nothing behind.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.client import QueueNotFoundError
from holdfast.spark.pipelines._chunks import Chunks
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines.load import Load
from tests.engine.engine import Engine, payloads
from tests.spark.loads import loaded, numbers, write_lines
from tests.spark.runs import Screen, a_run

pytestmark = pytest.mark.verify

CHUNK = 2048  # bytes: some of them to a file


def sent(engine: Engine) -> Counter[Any]:
    """What the queue holds, by the number of the row."""
    rows = engine.conn.execute("select (payload ->> 'id')::int from holdfast.message").fetchall()
    return Counter(number for (number,) in rows)


def staged(engine: Engine) -> int:
    return int(engine.look("select count(*) from holdfast.staged"))


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


def test_every_line_is_a_message_in_order_and_in_chunks(run: Run, queue: Engine, tmp_path: Path) -> None:
    rows = numbers(500)
    path = write_lines(tmp_path / "a.jsonl", *rows)

    figures = loaded(run, path, chunk=CHUNK)

    assert (figures["sent"], figures["sent_before"], figures["rejected"]) == (500, 0, 0)
    assert (figures["files"], figures["bytes"]) == (1, path.stat().st_size)
    assert figures["chunks"] == -(-path.stat().st_size // CHUNK)
    assert payloads(queue.claim(1000)) == rows
    assert staged(queue) == 0


def test_the_same_again_sends_nothing_and_a_changed_file_does(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(100))

    first = loaded(run, path, chunk=CHUNK)
    again = loaded(run, tmp_path / "*.jsonl", chunk=CHUNK)
    write_lines(path, *numbers(101))
    changed = loaded(run, path, chunk=CHUNK)

    assert (first["sent"], again["sent"], again["sent_before"], changed["sent"]) == (100, 0, 100, 101)
    assert first["write_id"] == again["write_id"] != changed["write_id"]
    assert sum(sent(queue).values()) == 201


def test_a_load_that_was_broken_off_goes_on_with_the_first_chunk_that_was_not_sent(
    run: Run, queue: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(400))
    real, calls = Chunks.send, iter(range(100))

    def dying(chunks: Chunks, staged: Any) -> int:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(chunks, staged)

    monkeypatch.setattr(Chunks, "send", dying)
    with pytest.raises(KeyboardInterrupt):
        loaded(run, path, chunk=CHUNK)
    before = sum(sent(queue).values())
    monkeypatch.undo()

    figures = loaded(run, path, chunk=CHUNK)

    assert 0 < before < 400
    assert (figures["sent_before"], figures["sent"]) == (before, 400 - before)
    assert sent(queue) == Counter(range(400))
    assert staged(queue) == 0


def test_chunks_of_another_size_are_refused_once_a_part_was_sent(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(200))
    loaded(run, path, chunk=CHUNK)

    with pytest.raises(PipelineError, match=rf"expected --chunk {CHUNK}, to go on"):
        loaded(run, path, chunk=4 * CHUNK)
    with pytest.raises(PipelineError, match="name it anew with --write-id"):
        loaded(run, path, atomic=True)

    assert sum(sent(queue).values()) == 200


def test_a_name_is_not_taken_for_other_files_whose_number_of_chunks_begins_alike(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    for number in range(12):
        write_lines(tmp_path / "many" / f"{number}.jsonl", *numbers(1))
    write_lines(tmp_path / "one.jsonl", *numbers(12))
    twelve = loaded(run, tmp_path / "many", write_id="monday", chunk=CHUNK)

    with pytest.raises(PipelineError, match="expected the files of that time"):
        loaded(run, tmp_path / "one.jsonl", write_id="monday", chunk=CHUNK)

    assert twelve["chunks"] == 12
    assert sum(sent(queue).values()) == 12


def test_a_name_is_what_a_load_is_known_by(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(10))

    loaded(run, path, write_id="monday")
    write_lines(path, *numbers(20))
    again = loaded(run, path, write_id="monday")
    tuesday = loaded(run, path, write_id="tuesday")

    assert (again["sent"], again["sent_before"], tuesday["sent"]) == (0, 10, 20)


def test_a_name_may_be_the_beginning_of_another(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(10))
    names = ("orders/2030", "orders/2030/1", "orders")

    found = [loaded(run, path, write_id=name) for name in names]
    again = [loaded(run, path, write_id=name) for name in names]

    assert [(each["sent"], each["sent_before"]) for each in found] == [(10, 0)] * 3
    assert [(each["sent"], each["sent_before"]) for each in again] == [(0, 10)] * 3


def test_an_atomic_load_is_one_write(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(300))

    figures = loaded(run, path, chunk=CHUNK, atomic=True)

    assert figures["sent"] == 300
    assert queue.look("select count(*) from holdfast.write") == 1
    assert payloads(queue.claim(1000)) == numbers(300)


def test_fields_become_options_of_messages(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(30))

    loaded(run, path, mapping={"tag": "who", "priority": "p"})
    found = queue.claim(30)

    assert {row["tag"] for row in found} == {"c0", "c1", "c2"}
    assert [row["payload"] for row in found if row["tag"] == "c1" and row["priority"] == 10] == [
        {"id": 10, "who": "c1", "p": 10}
    ]


def test_what_is_mapped_stays_digit_by_digit_or_is_taken_out_by_another_load(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", '{"id": 7, "price": 1.0, "who": "c"}')

    kept = loaded(run, path, mapping={"tag": "id"})
    dropped = loaded(run, path, mapping={"tag": "id"}, drop_mapped=True)
    again = loaded(run, path, mapping={"tag": "id"})

    assert (kept["sent"], dropped["sent"], again["sent"]) == (1, 1, 0)
    assert kept["write_id"] != dropped["write_id"]
    texts = queue.conn.execute("select payload::text from holdfast.message order by id").fetchall()
    assert sorted(texts) == [('{"id": 7, "who": "c", "price": 1.0}',), ('{"who": "c", "price": 1}',)]


def test_a_query_is_loaded_in_one_piece_and_once(run: Run, queue: Engine) -> None:
    query = "select id, id % 3 as p from range(0, 100, 1, 4)"
    pipeline = Load(to="q", query=query, mapping={"priority": "p"})

    first, again = pipeline.run(run), pipeline.run(run)

    assert (first["sent"], again["sent"], again["sent_before"]) == (100, 0, 100)
    assert queue.look("select count(*) from holdfast.write") == 1


def test_a_bad_row_fails_the_load_before_anything_is_sent(run: Run, queue: Engine, tmp_path: Path) -> None:
    rows = [*numbers(300), {"id": 300, "who": "x" * 300, "p": 1}, {"id": 301, "p": 99}, "{"]
    path = write_lines(tmp_path / "a.jsonl", *rows)

    with pytest.raises(PipelineError) as failed:
        loaded(run, path, chunk=CHUNK, mapping={"tag": "who", "priority": "p"})

    assert str(failed.value).startswith("3 of 303 rows are no messages, so none was sent: ")
    for reason in ("tag is too long", "priority is out of range", "{: this is not JSON"):
        assert reason in str(failed.value)
    assert sent(queue) == Counter()
    assert staged(queue) == 0


def test_bad_rows_are_set_aside_with_their_reasons(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(10), {"id": 11, "p": 99}, {"id": 12, "p": "x"}, "{")
    aside = tmp_path / "aside"

    figures = loaded(run, path, mapping={"priority": "p"}, quarantine=str(aside))
    unreadable = run.spark.read.parquet(str(aside / "unreadable")).orderBy("row").collect()
    (refused,) = run.spark.read.parquet(str(aside / "refused")).collect()

    assert (figures["sent"], figures["rejected"], figures["quarantine"]) == (10, 3, str(aside))
    assert [(row.content, row.reason) for row in unreadable] == [
        ('{"id": 12, "p": "x"}', "p: got x; expected int"),
        ("{", "this is not JSON"),
    ]
    assert unreadable[0].file.endswith("/a.jsonl")
    assert (refused.priority, json.loads(refused.payload)) == (99, {"id": 11, "p": 99})
    assert refused.reason == "priority is out of range: Got 99. [QH204]"


def test_rows_that_do_not_fit_the_schema_of_the_queue_are_set_aside(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    queue.value("set_schema", queue="q", definition={"properties": {"id": {"type": "integer"}}})
    path = write_lines(tmp_path / "a.jsonl", *numbers(10), {"id": "x"})
    aside = tmp_path / "aside"

    with pytest.raises(PipelineError, match=r"1 of 11 rows .*payload\.id.*QH240"):
        loaded(run, path)
    figures = loaded(run, path, quarantine=str(aside))

    (refused,) = run.spark.read.parquet(str(aside / "refused")).collect()
    assert (figures["sent"], figures["rejected"]) == (10, 1)
    assert refused.reason == 'payload.id: "x" is not of type "integer" [QH240]'


def test_lines_that_are_no_json_are_refused_by_the_database(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", '{"a": 1}', "{")

    with pytest.raises(PipelineError, match=r"1 of 2 rows .*invalid input syntax for type json"):
        loaded(run, path)

    assert sent(queue) == Counter()


def test_a_dry_run_says_what_would_be_sent_and_refused_and_leaves_nothing(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(20), {"id": 20, "p": 99})
    run = a_run(spark, database_url, dry_run=True)

    figures = loaded(run, path, mapping={"priority": "p"})

    assert (figures["rows"], figures["would_be_sent"], figures["rejected"]) == (21, 20, 1)
    assert figures["schema"] == "struct<priority:int,payload:string>"
    assert figures["sample"][:2] == [
        {"priority": n, "payload": {"id": n, "who": f"c{n}", "p": n}} for n in (0, 1)
    ]
    assert "priority is out of range" in figures["reasons"][0]
    assert sent(queue) == Counter()
    assert staged(queue) == 0
    assert queue.look("select count(*) from holdfast.write") == 0


def test_progress_counts_chunks(
    spark: SparkSession, database_url: str, queue: Engine, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", *numbers(100))
    screen = Screen()

    figures = loaded(a_run(spark, database_url, screen=screen), path, chunk=CHUNK)

    assert screen.steps == ["listing files", "staging and checking", "sending to q"]
    assert screen.advances[-1] == (figures["chunks"], figures["chunks"])


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"paths": []}, "got nothing to load; expected paths, --table or --query"),
        ({"table": "t"}, "got paths and table; expected paths, --table or --query"),
        ({"format": "xml"}, "--format: got xml; expected one of json, json-array, csv, parquet"),
        ({"mapping": {"colour": "c"}}, "--map: got colour; expected some of body, content_type"),
        ({"mapping": {"ttl": "a", "expires_at": "b"}}, "got ttl and expires_at; expected one of them"),
        ({"mapping": {"body": "a"}, "payload": "p"}, "got payload and body; expected one of them"),
        ({"text": True}, "--text: got no column that is text"),
        ({"drop_mapped": True}, "--drop-mapped: got no row to take out of; expected --map"),
        ({"drop_mapped": True, "mapping": {"key": "k"}, "payload": "p"}, "expected --map, and no --payload"),
        ({"write_id": "x" * 151}, "--write-id: expected 1 to 150 characters"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_without_spark(
    parameters: dict[str, Any], told: str
) -> None:
    with pytest.raises(PipelineError) as refused:
        Load(**{"to": "q", "paths": ["a.json"], **parameters}).check()

    assert told in str(refused.value)


def test_what_is_not_there_is_named(run: Run, queue: Engine, tmp_path: Path) -> None:
    write_lines(tmp_path / "a.csv", "id,name", "1,a")
    write_lines(tmp_path / "a.data", "1")

    for parameters, told in (
        ({"mapping": {"key": "who"}}, "--map: got who; expected some of id, name"),
        ({"payload": "who"}, "--payload: got who; expected some of id, name"),
        ({"schema": "who INT"}, "--schema: got who; expected some of id, name"),
        ({"schema": "id NUMBER"}, "--schema: got 'id NUMBER'; expected columns as DDL"),
    ):
        with pytest.raises(PipelineError, match=told):
            loaded(run, tmp_path / "a.csv", **parameters)
    with pytest.raises(PipelineError, match="whose name does not tell; expected --format"):
        loaded(run, tmp_path / "a.data")
    with pytest.raises(Exception, match="PATH_NOT_FOUND"):
        loaded(run, tmp_path / "none.json")
    with pytest.raises(QueueNotFoundError):
        Load(to="nowhere", paths=[str(tmp_path / "a.csv")]).run(run)
