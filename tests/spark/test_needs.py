"""What a pipeline needs, without Spark: looked for first, and refused with what helps.

1. A missing queue, role or file ends a run before Spark starts; it is not in the history.
2. Only what is surely on this machine is looked for here.
3. The same is asked when Spark plans a write.
4. A condition that PostgreSQL does not understand ends a run too. It is planned, with the rights of the user.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructType

from holdfast.client import HoldfastError, QueueNotFoundError, SchemaMissingError
from holdfast.spark._database import DatabaseError, LostConnectionError
from holdfast.spark.options import Options, Secret, Use
from holdfast.spark.pipelines._explain import Problem, explain
from holdfast.spark.pipelines._needs import Finds, Ground, Makes, Selects, check_needs, has_local_files
from holdfast.spark.pipelines._pipeline import Pipeline, PipelineError
from holdfast.spark.pipelines._runner import Runner
from holdfast.spark.pipelines.archive import Archive
from holdfast.spark.pipelines.function import Function
from holdfast.spark.pipelines.insights import Insights
from holdfast.spark.pipelines.load import Load
from holdfast.spark.pipelines.redrive import Redrive
from holdfast.spark.pipelines.stream import Stream
from holdfast.spark.sink import MessageWriter
from holdfast.spark.source import MessageReader
from holdfast.spark.stream_sink import BatchWriter
from tests.engine.engine import Engine
from tests.spark.runs import PATIENCE, Screen

NO_RIGHT = Problem(
    "permission denied for function writes",
    hint="send needs a role that this user does not have: holdfast_producer or holdfast_admin.",
)
POSTGRESQL = "--where is PostgreSQL's SQL: payload ->> 'country' = 'DE'"
ROW = StructType().add("payload", StringType())
GONE = "postgresql://nobody@127.0.0.1:1/nothing"


@pytest.fixture
def reader_url(database_url: str, conn: psycopg.Connection[tuple[object, ...]]) -> Iterator[str]:
    """A user who may read, and not send."""
    conn.execute("create role test_needs login password 'secret' in role holdfast_consumer")
    yield make_conninfo(database_url, user="test_needs", password="secret")
    conn.execute("drop role test_needs")


@pytest.fixture
def ground(database_url: str) -> Ground:
    return Ground(Secret(database_url))


def to_table(table: str) -> Stream:
    return Stream(source="q", to_table=table, checkpoint="nowhere")


def ended(pipeline: Pipeline, url: str, *, dry_run: bool = False) -> BaseException | None:
    """How a run ends that must not start Spark."""

    def never() -> AbstractContextManager[SparkSession]:
        raise AssertionError("Spark was started")

    runner = Runner(pipeline, url=Secret(url), session=never, display=Screen(), dry_run=dry_run)
    runner.start()
    assert runner.wait(PATIENCE)
    try:
        runner.result()
    except Exception as error:
        return error
    return None


def a_file(folder: Path) -> str:
    (folder / "a.json").write_text("{}")
    return str(folder / "a.json")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_missing_queue_ends_a_run_before_spark_starts(
    database_url: str, queue: Engine, tmp_path: Path, dry_run: bool
) -> None:
    load = Load(to="nowhere", paths=[a_file(tmp_path)])
    into = Function(function="builtins:id", source="q", to="nowhere")
    out_of = Function(function="builtins:id", source="nowhere", to="q")
    away = Archive(lake=str(tmp_path), queues=["q", "nowhere"])
    about = Insights(queues=["q", "nowhere"], report=str(tmp_path / "report.html"))

    pipelines: list[Pipeline] = [load, into, out_of, away, about]
    found = [type(ended(each, database_url, dry_run=dry_run)) for each in pipelines]
    assert found == [QueueNotFoundError] * len(pipelines)
    assert queue.rows("runs") == []


def test_a_missing_role_ends_a_run_with_its_name(reader_url: str, queue: Engine, tmp_path: Path) -> None:
    error = ended(Load(to="q", paths=[a_file(tmp_path)]), reader_url)

    assert error is not None
    assert explain(error) == NO_RIGHT


def test_who_may_not_remove_is_told_so_before_spark_starts(
    reader_url: str, queue: Engine, tmp_path: Path
) -> None:
    error = ended(Archive(lake=str(tmp_path)), reader_url)

    assert error is not None
    assert explain(error).hint == "close_batch needs a role that this user does not have: holdfast_admin."


@pytest.mark.parametrize(
    ("condition", "message", "code"),
    [
        ("payload:country = 'DE'", '--where: syntax error at or near ":"', "42601"),
        ("colour = 'red'", '--where: column "colour" does not exist', "42703"),
        ("shade(tag)", "--where: function shade(text) does not exist", "42883"),
        ("id = 'many'", '--where: invalid input syntax for type bigint: "many"', "22P02"),
        ("tag = 'a'; drop table x", "--where: got \"tag = 'a'; drop table x\"; it has a semicolon", None),
    ],
)
def test_a_condition_that_is_not_understood_ends_a_run_before_spark_starts(
    database_url: str, queue: Engine, condition: str, message: str, code: str | None
) -> None:
    given = Function(function="builtins:id", source="q", to="q", where=condition)

    errors = [ended(each, database_url) for each in (Redrive(queue="q", where=condition), given)]
    told = [explain(error) for error in errors if error is not None]

    assert told == [Problem(message, code, hint=POSTGRESQL)] * 2
    assert queue.rows("runs") == []


def test_a_condition_is_asked_with_the_rights_of_the_user(reader_url: str, queue: Engine) -> None:
    queue.conn.execute("create table salary (n int)")
    ground = Ground(Secret(reader_url))

    Selects("q", "ready", "tag like '%a%' and payload ? 'b' or m.priority > 3").check(ground)
    with pytest.raises(PipelineError, match=r"--where: permission denied for table salary \[42501\]"):
        Selects("q", "ready", "exists (select from salary)").check(ground)


def test_a_condition_is_planned_and_not_run(database_url: str, queue: Engine, ground: Ground) -> None:
    queue.conn.execute("create sequence counter")

    Selects("q", "ready", "(select nextval('counter')) > 0").check(ground)

    assert queue.conn.execute("select is_called from counter").fetchall() == [(False,)]


def test_a_missing_table_ends_a_run_unless_it_is_dry(database_url: str, queue: Engine) -> None:
    error = ended(to_table("shop.totals"), database_url)

    assert error is not None
    assert explain(error) == Problem(
        "table shop.totals does not exist",
        hint="Run it with --dry-run: that shows a statement which makes the table.",
    )
    assert queue.rows("runs") == []
    assert isinstance(ended(to_table("shop.totals"), database_url, dry_run=True), AssertionError)


def test_a_table_that_may_not_be_written_ends_a_run(
    database_url: str, reader_url: str, queue: Engine
) -> None:
    queue.conn.execute("create table totals (n bigint)")

    assert isinstance(ended(to_table("totals"), database_url), AssertionError)
    error = ended(to_table("totals"), reader_url)
    assert str(error).startswith("table totals: expected the rights to insert into it")
    assert [run["state"] for run in queue.rows("runs")] == ["failed"]


def test_a_missing_file_ends_a_run(database_url: str, queue: Engine, tmp_path: Path) -> None:
    error = ended(Load(to="q", paths=[a_file(tmp_path), f"{tmp_path}/none.json"]), database_url)

    assert isinstance(error, PipelineError)
    assert str(error).startswith(f"{tmp_path}/none.json: there is no such file or folder, seen from /")


def test_a_folder_in_the_way_ends_a_run_unless_it_is_replaced(
    database_url: str, queue: Engine, tmp_path: Path
) -> None:
    into = Function(function="builtins:id", source="q", to=str(tmp_path))
    over = Function(function="builtins:id", source="q", to=str(tmp_path), overwrite=True)

    assert str(ended(into, database_url)).startswith(f"there is something in {tmp_path}; name another")
    assert isinstance(ended(over, database_url), AssertionError)


def test_a_database_without_holdfast_is_told(empty_database_url: str) -> None:
    with pytest.raises(SchemaMissingError):
        check_needs([], Ground(Secret(empty_database_url)))


def test_a_database_of_an_older_version_is_told(database_url: str, queue: Engine, ground: Ground) -> None:
    queue.conn.execute("drop function holdfast.writes")
    error = ended(Load(to="q", query="select 1"), database_url)

    assert error is not None
    assert explain(error).hint == "Run: holdfast migrate"


@pytest.mark.parametrize(
    "path",
    [
        *("a.json", "*.json", "?.json", "file:{folder}/a.json", "file://{folder}/a.json", "{folder}"),
        *("none[0-9].json", "none-{{a,b}}.json", "s3a://none/none.json", "hdfs:/none"),
    ],
)
def test_what_is_there_or_elsewhere_is_let_pass(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    a_file(tmp_path)
    monkeypatch.chdir(tmp_path)

    Finds(path.format(folder=tmp_path)).check(ground)


@pytest.mark.parametrize("path", ["none.json", "*.csv", "none/*", "file:{folder}/none.json"])
def test_what_is_not_there_is_refused(ground: Ground, tmp_path: Path, path: str) -> None:
    with pytest.raises(PipelineError, match="there is no such file or folder"):
        Finds(path.format(folder=tmp_path)).check(ground)


def test_other_file_systems_are_not_looked_into(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    elsewhere = Ground(Secret(database_url), local_files=False)

    Finds("none.json").check(elsewhere)
    Makes(str(tmp_path)).check(elsewhere)

    assert has_local_files({"spark.executor.memory": "1g"})
    assert not has_local_files({"spark.hadoop.fs.defaultFS": "hdfs://h"})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert not has_local_files({})


def test_a_write_is_refused_when_it_is_planned(database_url: str, reader_url: str, queue: Engine) -> None:
    def planned(url: str, name: str) -> None:
        MessageWriter(Options.parse({"url": url, "queue": name}, Use.WRITE), ROW, False)

    planned(database_url, "q")
    with pytest.raises(QueueNotFoundError):
        planned(database_url, "nowhere")
    with pytest.raises(DatabaseError) as refused:
        planned(reader_url, "q")
    with pytest.raises(LostConnectionError):
        planned(GONE, "q")

    assert explain(refused.value) == NO_RIGHT


def test_a_read_without_the_right_names_the_role(
    database_url: str, conn: psycopg.Connection[tuple[object, ...]], queue: Engine
) -> None:
    conn.execute("create role test_sender login password 'secret' in role holdfast_producer")
    try:
        url = make_conninfo(database_url, user="test_sender", password="secret")
        with pytest.raises(DatabaseError) as refused:
            MessageReader(Options.parse({"url": url, "queue": "q"}, Use.READ), ROW).partitions()
    finally:
        conn.execute("drop role test_sender")

    assert explain(refused.value).hint == (
        "scan needs a role that this user does not have: holdfast_consumer or holdfast_admin."
    )


def test_a_stream_is_refused_too_but_outlives_a_database_that_is_away(
    database_url: str, queue: Engine
) -> None:
    def planned(url: str, name: str) -> None:
        BatchWriter(Options.parse({"url": url, "queue": name}, Use.WRITE_STREAM), ROW, False)

    planned(GONE, "q")
    with pytest.raises(HoldfastError):
        planned(database_url, "nowhere")
