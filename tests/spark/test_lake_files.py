"""Files of the lake, as far as that takes no Spark: their places, and what a task reads for them.

1. A place is one that Spark reads as queue and day, and that tells the batch; so does the one before it.
2. A task reads all messages of its batch, page by page, each with what the lake wants of it.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

import pytest

from holdfast.spark._fetch import Fetcher, close_spare
from holdfast.spark.options import Secret
from holdfast.spark.pipelines import _lake_files
from holdfast.spark.pipelines._batches import Batch
from holdfast.spark.pipelines._lake_files import pages, place, too_long
from holdfast.spark.pipelines._pipeline import PipelineError
from holdfast.spark.transforms.archive import BATCH_OF_FILE, FETCHED
from tests.engine.engine import Engine
from tests.spark.archives import fill, fill_oddly

NOW = datetime(2030, 1, 31, tzinfo=UTC)


def a_batch(queue: str, number: int = 17) -> Batch:
    return Batch(number, queue, date(2030, 1, 31), "open", NOW, 1, NOW, 2, 2)


def test_a_place_names_queue_day_and_batch() -> None:
    assert place(a_batch("orders")) == "queue=orders/day=2030-01-31/batch-17.parquet"
    assert place(a_batch("eu:orders.v1")) == "queue=eu%3Aorders.v1/day=2030-01-31/batch-17.parquet"


def test_a_name_that_reads_as_nothing_is_written_another_way() -> None:
    # Of a path, Spark and Hive take this for null.
    nothing = "__HIVE_DEFAULT_PARTITION__"

    assert place(a_batch(nothing)).startswith("queue=%5F_HIVE_DEFAULT_PARTITION__/day=")


def test_a_name_that_no_folder_can_have_is_refused() -> None:
    longest, longer = ":" * 83, ":" * 83 + "a"

    assert len(place(a_batch(longest)).split("/")[0]) == 255
    assert too_long(longest) is None
    with pytest.raises(PipelineError, match="250 characters"):
        place(a_batch(longer))


@pytest.mark.parametrize(
    "path",
    [
        f"file:///lake/{place(a_batch('orders'))}",
        f"s3a://batch-1/batch=2/{place(a_batch('batch-3'))}",
        "file:///lake/_holdfast/writing/0a1b/batch=17/part-00003-4d5e.c000.zstd.parquet",
    ],
)
def test_a_file_tells_its_batch(path: str) -> None:
    found = re.search(BATCH_OF_FILE, path)

    assert found is not None
    assert found[1] == "17"


@pytest.mark.parametrize("size", [4, 9, 10_000])
def test_a_task_reads_all_of_its_batch_page_by_page(
    engine: Engine, database_url: str, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    engine.create("q", keep=["done"])
    fill_oddly(engine)
    fill(engine, 12)
    lake = engine.value("register_lake", place="x")
    batch = engine.row("open_batch", lake=lake, queue="q", limit=16)["id"]
    monkeypatch.setattr(_lake_files, "PAGE", size)

    with Fetcher(Secret(database_url), patience=0) as fetcher:
        read = list(pages(fetcher, batch))
    close_spare()

    rows = [row for page in read for row in page.to_pylist()]
    wanted = engine.rows("read_batch", batch=batch)
    assert [list(row) for row in rows] == [FETCHED.names] * 16
    assert [{**row, "queue_id": 1} for row in rows] == [{**row, "batch": batch} for row in wanted]
    assert max(page.num_rows for page in read) == min(size, 16)
