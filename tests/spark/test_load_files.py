"""Files that are loaded: what becomes of CSV, arrays and Parquet."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from holdfast.spark.pipelines._pipeline import Run
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
