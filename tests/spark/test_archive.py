"""Archive: ended messages into a lake.

1. Every ended message is in the lake as it was, in the folder of its queue and day, and no more in the table.
2. Files are compared with the database before anybody sees them, and before anything is removed.
3. A run that ended anywhere is finished by the next: nothing is lost, and nothing is there twice.
4. What ends, is purged or dropped meanwhile does no harm.
5. A copy removes nothing and goes on where it stopped; what was copied can be removed later.
6. A dry run says what would be done, and leaves nothing behind. A lake belongs to one database.
7. What cannot be archived is told, and in the way of nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from holdfast.client import InvalidBatchError, QueueNotFoundError
from holdfast.spark._database import DatabaseError
from holdfast.spark.lake import SCHEMA, read_lake
from holdfast.spark.pipelines._batches import Content, Ledger
from holdfast.spark.pipelines._lake_files import LakeFiles
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines.archive import Archive
from tests.engine.engine import T0, Engine
from tests.fix_database import fresh_database
from tests.spark.archives import files, fill, fill_oddly, in_lake, journal
from tests.spark.runs import Screen, a_run

pytestmark = pytest.mark.verify

DAY = timedelta(days=1)


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


@pytest.fixture
def kept(engine: Engine) -> Engine:
    """The engine, with a queue `q` that keeps what is done."""
    engine.create("q", keep=["done"])
    return engine


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "the lake"


def archived(run: Run, lake: Path, **parameters: Any) -> dict[str, Any]:
    pipeline = Archive(lake=str(lake), **parameters)
    pipeline.check()
    return dict(pipeline.run(run))


def test_every_message_moves_as_it_is_to_the_folder_of_its_queue_and_day(
    run: Run, kept: Engine, lake: Path, spark: SparkSession
) -> None:
    kept.create("other:1", keep=["done"])
    kept.at(T0)
    fill_oddly(kept)
    fill(kept, 5, queue="other:1")
    kept.at(T0 + DAY)
    fill(kept, 25)
    kept.at(T0 + 2 * DAY)
    before = journal(kept)

    figures = archived(run, lake, rows=10)

    assert figures == {"lake": f"file:{lake}", "files": 5, "messages": 36, "removed": 36, "finished": 0}
    assert journal(kept) == {}
    assert in_lake(lake) == before
    visible = [name for name in files(lake) if not Path(name).name.startswith((".", "_"))]
    assert visible == [
        "_holdfast/lake.json",
        "queue=other%3A1/day=2030-01-01/batch-1.parquet",
        "queue=q/day=2030-01-01/batch-2.parquet",
        "queue=q/day=2030-01-02/batch-3.parquet",
        "queue=q/day=2030-01-02/batch-4.parquet",
        "queue=q/day=2030-01-02/batch-5.parquet",
    ]
    read = read_lake(spark, str(lake), queues=["other:1"])
    assert (read.schema, read.count()) == (SCHEMA, 5)


def test_files_are_zstd_with_times_that_everybody_reads(run: Run, kept: Engine, lake: Path) -> None:
    fill(kept, 3)

    archived(run, lake)

    (name,) = lake.glob("queue=q/*/*.parquet")
    column = pq.ParquetFile(name).metadata.row_group(0).column(0)
    assert column.compression == "ZSTD"
    assert pq.read_schema(name).field("ended_at").type == pa.timestamp("us", tz="UTC")


def test_only_the_queues_and_the_time_that_are_named(run: Run, kept: Engine, lake: Path) -> None:
    kept.create("other", keep=["done"])
    kept.at(T0)
    fill(kept, 3)
    fill(kept, 4, queue="other")
    kept.at(T0 + DAY)
    fill(kept, 5)

    by_time = archived(run, lake, queues=["q"], until=(T0 + timedelta(hours=1)).isoformat())
    by_age = archived(run, lake, older_than=3600.0)

    assert (by_time["messages"], by_age["messages"]) == (3, 4)
    assert {row[0] for row in journal(kept)} == {"q"}
    with pytest.raises(QueueNotFoundError):
        archived(run, lake, queues=["nowhere"])


def test_a_dry_run_counts_by_queue_and_day_and_leaves_nothing_behind(
    spark: SparkSession, database_url: str, kept: Engine, lake: Path
) -> None:
    kept.at(T0)
    fill(kept, 3)
    kept.at(T0 + DAY)
    before = journal(kept)

    figures = archived(a_run(spark, database_url, dry_run=True), lake)

    assert figures == {"lake": f"file:{lake}", "messages": 3, "queues": {"q": {"2030-01-01": 3}}}
    assert not lake.exists()
    assert journal(kept) == before
    assert kept.look("select count(*) from holdfast.lake") == 0


def test_progress_is_told_in_messages(
    spark: SparkSession, database_url: str, kept: Engine, lake: Path
) -> None:
    fill(kept, 25)
    screen = Screen()

    archived(a_run(spark, database_url, screen=screen), lake, rows=10)

    assert screen.advances == [(0, 25), (10, 25), (20, 25), (25, 25)]


STEPS = [
    (Ledger, "register", "before"),
    (Ledger, "register", "after"),
    (LakeFiles, "claim", "after"),
    (Ledger, "open", "after"),
    (LakeFiles, "write", "before"),
    (LakeFiles, "write", "after"),
    (LakeFiles, "publish", "before"),
    (LakeFiles, "publish", "after"),
    (Ledger, "close", "after"),
]


@pytest.mark.parametrize(("owner", "step", "when"), STEPS)
def test_a_run_that_ends_anywhere_is_finished_by_the_next(
    run: Run,
    kept: Engine,
    lake: Path,
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    step: str,
    when: str,
) -> None:
    fill(kept, 30)
    before = journal(kept)
    real = getattr(owner, step)

    def dying(*given: Any, **named: Any) -> Any:
        if when == "after":
            real(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, step, dying)
    with pytest.raises(KeyboardInterrupt):
        archived(run, lake, rows=20)
    monkeypatch.undo()

    archived(run, lake, rows=20)

    assert in_lake(lake) == before
    assert journal(kept) == {}
    assert kept.look("select count(*) from holdfast.lake_batch where state <> 'done'") == 0
    assert not (lake / "_holdfast" / "writing").exists()


def test_files_that_lack_a_message_are_not_published(
    run: Run, kept: Engine, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kept, 3)
    before = journal(kept)
    real = LakeFiles._read_back

    def lossy(files: LakeFiles, paths: Any) -> Any:
        found = real(files, paths)
        return {number: Content(content.rows.slice(0, 2)) for number, content in found.items()}

    monkeypatch.setattr(LakeFiles, "_read_back", lossy)
    with pytest.raises(PipelineError, match="not what was read"):
        archived(run, lake)

    assert journal(kept) == before
    assert in_lake(lake) == {}


def test_a_file_that_was_changed_removes_nothing(
    run: Run, kept: Engine, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kept, 3)
    before = journal(kept)
    archived(run, lake, keep=True)
    (path,) = lake.glob("queue=q/*/*.parquet")
    table = pq.read_table(path, partitioning=None)
    changed = table.set_column(table.schema.get_field_index("tag"), "tag", pa.array(["x", None, None]))
    path.with_name(f".{path.name}.crc").unlink()
    pq.write_table(changed, path)

    with pytest.raises(PipelineError, match=r"batch 1 of q: a file differs from the database \[QH811\]"):
        archived(run, lake)

    assert journal(kept) == before


def test_a_batch_that_cannot_be_finished_is_told_and_in_nobodys_way(
    run: Run, kept: Engine, lake: Path
) -> None:
    for queue in ("bad", "good"):
        kept.create(queue, keep=["done"])
        fill(kept, 3, queue=queue)
    archived(run, lake, keep=True)
    (bad,) = lake.glob("queue=bad/*/*.parquet")
    bad.with_name(f".{bad.name}.crc").unlink()
    bad.write_bytes(b"not Parquet")
    for queue in ("bad", "good", "q"):
        fill(kept, 2, queue=queue)

    with pytest.raises(PipelineError, match=r"^not all could be archived: batch 1 of bad: "):
        archived(run, lake)

    assert Counter(row[0] for row in journal(kept).elements()) == {"bad": 5}
    bad.unlink()
    assert Counter(row[0] for row in in_lake(lake).elements()) == {"good": 5, "q": 2}
    assert archived(run, lake)["removed"] == 5
    assert journal(kept) == {}


def test_a_queue_that_another_lake_is_not_done_with_stays_and_others_go(
    run: Run, kept: Engine, lake: Path
) -> None:
    kept.create("busy", keep=["done"])
    fill(kept, 2, queue="busy")
    fill(kept, 3)
    kept.row("open_batch", lake=kept.value("register_lake", place="elsewhere"), queue="busy")

    with pytest.raises(PipelineError, match=r"queue busy: .* \[QH811\]\. .* it goes to elsewhere"):
        archived(run, lake)

    assert {row[0] for row in journal(kept)} == {"busy"}
    assert sum(in_lake(lake).values()) == 3


def test_a_queue_whose_name_no_folder_can_have_stays_and_others_go(
    run: Run, kept: Engine, lake: Path
) -> None:
    colons = ":" * 100
    kept.create(colons, keep=["done"])
    fill(kept, 2, queue=colons)
    fill(kept, 3)

    with pytest.raises(PipelineError, match=r"^not all could be archived: queue :+: its name takes 300 "):
        archived(run, lake)

    assert {row[0] for row in journal(kept)} == {colons}
    assert sum(in_lake(lake).values()) == 3
    assert kept.look("select count(*) from holdfast.lake_batch where state = 'open'") == 0


def test_a_batch_with_no_place_is_closed_once_its_messages_are_gone(
    run: Run, kept: Engine, lake: Path
) -> None:
    colons = ":" * 100
    kept.create(colons, keep=["done"])
    fill(kept, 1)
    archived(run, lake)
    fill(kept, 2, queue=colons)
    kept.row("open_batch", lake=kept.look("select id from holdfast.lake"), queue=colons)
    fill(kept, 3)

    with pytest.raises(PipelineError, match="its name takes 300 characters"):
        archived(run, lake)
    moved = kept.look("select count(*) from holdfast.lake_batch where state = 'done'")
    kept.rows("purge", queue=colons, states=["archive"])
    kept.value("drop_queue", queue=colons)
    figures = archived(run, lake)

    assert moved == 2
    assert (figures["messages"], figures["finished"]) == (0, 1)
    assert kept.look("select count(*) from holdfast.lake_batch where state <> 'done'") == 0


@pytest.mark.parametrize("queue", ["__HIVE_DEFAULT_PARTITION__", "2030", "a:b"])
def test_a_lake_is_read_wherever_it_is_and_however_its_queues_are_called(
    run: Run, kept: Engine, tmp_path: Path, spark: SparkSession, queue: str
) -> None:
    lake = tmp_path / "l k%20[1]{x}*?"
    kept.create(queue, keep=["done"])
    fill(kept, 2, queue=queue)
    archived(run, lake)

    read = read_lake(spark, str(lake), queues=[queue])

    assert [row.queue for row in read.select("queue").collect()] == [queue, queue]


def test_what_was_kept_may_go_to_another_lake_too(run: Run, kept: Engine, lake: Path, tmp_path: Path) -> None:
    fill(kept, 3)
    before = journal(kept)
    archived(run, lake, keep=True)

    moved = archived(run, tmp_path / "other")
    after = archived(run, lake)

    assert (moved["removed"], after["removed"]) == (3, 0)
    assert in_lake(lake) == in_lake(tmp_path / "other") == before
    assert kept.look("select count(*) from holdfast.lake_batch where state <> 'done'") == 0


def test_what_is_purged_after_the_read_is_in_the_lake_once(
    run: Run, kept: Engine, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kept, 5)
    before = journal(kept)
    real = LakeFiles.write

    def purging(*given: Any) -> Any:
        found = real(*given)
        kept.rows("purge", queue="q", states=["archive"], limit=2)
        return found

    monkeypatch.setattr(LakeFiles, "write", purging)
    figures = archived(run, lake)

    assert (figures["messages"], figures["removed"]) == (5, 3)
    assert in_lake(lake) == before


def test_what_is_purged_before_the_read_leaves_no_file(
    run: Run, kept: Engine, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(kept, 5)
    real = LakeFiles.write

    def purged(*given: Any) -> Any:
        kept.rows("purge", queue="q", states=["archive"])
        return real(*given)

    monkeypatch.setattr(LakeFiles, "write", purged)
    figures = archived(run, lake)

    assert (figures["messages"], figures["files"]) == (0, 0)
    assert kept.look("select state from holdfast.lake_batch") == "done"


def test_what_ends_meanwhile_stays_for_the_next_run_and_a_dropped_queue_is_finished(
    run: Run, kept: Engine, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.create("gone", keep=["done"])
    fill(kept, 5)
    fill(kept, 5, queue="gone")
    before = journal(kept)
    real = LakeFiles.write

    def busy(*given: Any) -> Any:
        fill(kept, 2)
        kept.value("drop_queue", queue="gone")
        return real(*given)

    monkeypatch.setattr(LakeFiles, "write", busy)
    figures = archived(run, lake)

    assert figures["removed"] == 10
    # Whose lanes are gone has no priority any more; all else is as it was.
    assert in_lake(lake) == before
    assert sum(journal(kept).values()) == 2


def test_a_copy_removes_nothing_goes_on_and_can_be_removed_later(run: Run, kept: Engine, lake: Path) -> None:
    fill(kept, 5)
    first = archived(run, lake, keep=True)
    fill(kept, 3)
    before = journal(kept)
    second = archived(run, lake, keep=True)
    third = archived(run, lake, keep=True)
    copied = in_lake(lake)

    moved = archived(run, lake)

    assert [each["messages"] for each in (first, second, third)] == [5, 3, 0]
    assert (moved["removed"], moved["finished"]) == (8, 2)
    assert copied == in_lake(lake) == before
    assert journal(kept) == {}


def test_a_lake_belongs_to_one_database(
    run: Run, spark: SparkSession, server_url: str, template_database: str, kept: Engine, lake: Path
) -> None:
    fill(kept, 1)
    archived(run, lake)

    with fresh_database(server_url, template_database) as url, pytest.raises(InvalidBatchError):
        archived(a_run(spark, url), lake)
    (lake / "_holdfast" / "lake.json").unlink()
    with pytest.raises(PipelineError, match="of which database"):
        archived(run, lake)


def test_a_user_who_may_not_remove_is_told_which_role_that_takes(
    spark: SparkSession, database_url: str, kept: Engine, lake: Path
) -> None:
    fill(kept, 1)
    options = "options=-c%20role%3Dholdfast_consumer"
    url = f"{database_url}{'&' if '?' in database_url else '?'}{options}"

    with pytest.raises(DatabaseError, match="holdfast_admin"):
        archived(a_run(spark, url), lake)

    assert not lake.exists()


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [({"rows": 0}, "--rows"), ({"until": T0.isoformat(), "older_than": 1.0}, "one of them")],
)
def test_what_cannot_be_meant_is_refused(lake: Path, parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(PipelineError, match=reason):
        Archive(lake=str(lake), **parameters).check()


def test_the_note_of_a_lake_says_which_it_is(run: Run, kept: Engine, lake: Path) -> None:
    fill(kept, 1)
    archived(run, lake)

    note = json.loads((lake / "_holdfast" / "lake.json").read_text())

    assert note == {"lake": str(kept.look("select id from holdfast.lake"))}
