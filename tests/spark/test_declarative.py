"""The Spark Declarative Pipelines project in examples/ runs as it is: each message counts once, over runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from holdfast.database import URL_VARIABLE
from holdfast.spark.java import java_home
from tests.engine.engine import Engine
from tests.spark.cluster import SPARK_HOME
from tests.spark.conftest import ROOT

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]

PROJECT = ROOT / "examples" / "spark-declarative"
STORAGE = "file:///data/holdfast-declarative"
PERSISTENT = ("--conf", "spark.sql.catalogImplementation=hive")
WORKING = 400.0  # seconds for a run


def copied(project: Path) -> Path:
    """The project, with a storage of its own."""
    shutil.copytree(PROJECT, project)
    specification = project / "spark-pipeline.yml"
    text = specification.read_text()
    assert STORAGE in text
    specification.write_text(text.replace(STORAGE, f"file://{project}/storage"))
    return project


def run(project: Path, url: str) -> None:
    """What a user does: spark-pipelines run, in the folder of the project."""
    told = {URL_VARIABLE: url, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [str(SPARK_HOME / "bin" / "spark-pipelines"), *PERSISTENT, "run"],
        cwd=project,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=WORKING,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-10_000:]


def table(project: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(project / "spark-warehouse" / name).to_pylist()
    return rows


def test_the_project_takes_each_order_once_and_goes_on_where_it_was(
    engine: Engine, database_url: str, tmp_path: Path
) -> None:
    project = copied(tmp_path / "project")
    for queue in ("orders", "alerts"):
        engine.create(queue)

    for prices in ((10, 2000), (5, 3000)):
        for price in prices:
            engine.send({"customer": "ann", "price": price}, queue="orders")
        run(project, database_url)

    assert sorted(row["price"] for row in table(project, "orders")) == [5, 10, 2000, 3000]
    assert table(project, "revenue") == [{"customer": "ann", "orders": 4, "revenue": 5015}]
    assert engine.stats(queue="orders")["depth"] == 0
    alerts = engine.conn.execute("select payload ->> 'price' from holdfast.message order by 1").fetchall()
    assert alerts == [("2000",), ("3000",)]
