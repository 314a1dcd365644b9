"""Files that are loaded: what becomes of CSV, arrays and Parquet."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from holdfast.spark.pipelines._pipeline import PipelineError, Run
from tests.engine.engine import Engine, payloads
from tests.spark.loads import loaded, numbers, write_lines
from tests.spark.runs import a_run

pytestmark = pytest.mark.verify


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


def test_csv_with_types_and_compressed(run: Run, queue: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b'id,name,price\n1,"a, b",2.5\n2,,3\n'))

    loaded(run, tmp_path / "a.csv.gz", schema="id INT, name STRING, price DOUBLE")

    assert payloads(queue.claim(10)) == [
        {"id": 1, "name": "a, b", "price": 2.5},
        {"id": 2, "name": None, "price": 3.0},
    ]


def test_csv_without_types_is_text_and_files_must_have_one_header(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    write_lines(tmp_path / "a.csv", "id,name", "1,a")
    loaded(run, tmp_path / "a.csv")
    write_lines(tmp_path / "b.csv", "name,id", "b,2")

    with pytest.raises(Exception, match="CSV header does not conform to the schema"):
        loaded(run, tmp_path / "*.csv")

    assert payloads(queue.claim(10)) == [{"id": "1", "name": "a"}]


def test_csv_is_quoted_as_spreadsheets_do_and_otherwise_if_one_says_so(
    run: Run, queue: Engine, tmp_path: Path
) -> None:
    path = write_lines(
        tmp_path / "a.csv", "id,text", r'1,"He said ""hi"""', r'2,"6"" nails"', r'3,"C:\dir\"', '4,6" nails'
    )
    other = write_lines(tmp_path / "b.csv", "id;text", r'5;"a \"b\""')

    loaded(run, path)
    loaded(run, other, options={"ESCAPE": "\\", "sep": ";"})

    assert [each["text"] for each in payloads(queue.claim(10))] == [
        'He said "hi"',
        '6" nails',
        "C:\\dir\\",
        '6" nails',
        'a "b"',
    ]


def test_csv_with_other_columns_or_open_quotes_is_refused(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "a.csv", "id,text", "1", "2,a,b", '3,"one', 'two"', '4,a,"b', "5,good", "6,"
    )
    aside = tmp_path / "aside"

    loaded(run, path, quarantine=str(aside))

    found = run.spark.read.parquet(str(aside / "unreadable")).orderBy("row").collect()
    told = "expected as many columns as the header has, and quotes that end in the line"
    assert [(row.content, row.reason) for row in found] == [
        (line, told) for line in ("1", "2,a,b", '3,"one', 'two"', '4,a,"b')
    ]
    assert payloads(queue.claim(10)) == [{"id": "5", "text": "good"}, {"id": "6", "text": None}]


def test_csv_with_line_breaks_in_values(run: Run, queue: Engine, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.csv", "id,text", '1,"one', 'two ""2"""', "2,b")

    loaded(run, path, options={"multiLine": "true"})

    assert payloads(queue.claim(10)) == [{"id": "1", "text": 'one\ntwo "2"'}, {"id": "2", "text": "b"}]


def test_csv_in_another_encoding(run: Run, queue: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("naïve\ncafé\n".encode("iso-8859-1"))

    loaded(run, tmp_path / "a.csv", options={"encoding": "ISO-8859-1"})

    assert payloads(queue.claim(10)) == [{"naïve": "café"}]


@pytest.mark.parametrize(
    ("name", "content", "parameters"),
    [
        ("a.jsonl", b'{"a": "caf\xc3\xa9"}\n{"a": "caf\xe9"}\n', {}),
        ("a.jsonl", b'{"a": "caf\xc3\xa9"}\n{"a": "caf\xe9"}\n', {"mapping": {"tag": "a"}}),
        ("a.csv", b"a,b\ncaf\xc3\xa9,\xef\xbf\xbd\ncaf\xe9,2\n", {}),
        ("a.csv", b"a,b\ncaf\xc3\xa9,1\ncaf\xe9,2\n", {"options": {"multiLine": "true"}}),
    ],
)
def test_bytes_that_are_not_utf8_are_refused_or_set_aside(
    run: Run, queue: Engine, tmp_path: Path, name: str, content: bytes, parameters: dict[str, Any]
) -> None:
    (tmp_path / name).write_bytes(content)
    aside = tmp_path / "aside"

    with pytest.raises(PipelineError, match=rf"1 of 2 rows .*/{name}: .*caf\ufffd.*: this is not UTF-8"):
        loaded(run, tmp_path / name, **parameters)
    loaded(run, tmp_path / name, quarantine=str(aside), **parameters)

    (row,) = run.spark.read.parquet(str(aside / "unreadable")).collect()
    assert "caf\ufffd" in row.content
    assert (row.reason, row.file.endswith(f"/{name}")) == ("this is not UTF-8", True)
    assert [each["a"] for each in payloads(queue.claim(10))] == ["café"]


def test_a_file_that_is_one_array(run: Run, queue: Engine, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(numbers(5), indent=2))

    loaded(run, tmp_path / "a.json", format="json-array")

    assert payloads(queue.claim(10)) == numbers(5)


def test_parquet_in_folders_that_are_columns(run: Run, queue: Engine, tmp_path: Path) -> None:
    for year in (2030, 2031):
        (tmp_path / "lake" / f"year={year}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [year]}), tmp_path / "lake" / f"year={year}" / "a.parquet")

    loaded(run, tmp_path / "lake", mapping={"tag": "year"})

    assert sorted((row["tag"], row["payload"]["id"]) for row in queue.claim(10)) == [
        ("2030", 2030),
        ("2031", 2031),
    ]


def test_one_file_of_parquet(run: Run, queue: Engine, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")

    loaded(run, tmp_path / "a.parquet")

    assert payloads(queue.claim(10)) == [{"id": 1}, {"id": 2}]
