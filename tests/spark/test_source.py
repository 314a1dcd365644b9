"""The batch read, without Spark: what a task fetches for its ranges of ids."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql.types import BinaryType, IntegerType, StructType

from holdfast import QueueNotFoundError
from holdfast.spark import _fetch, source
from holdfast.spark._database import DatabaseError
from holdfast.spark.options import Options, Secret, Use
from holdfast.spark.schema import COLUMNS
from holdfast.spark.source import MessageReader
from tests.engine.engine import Engine
from tests.fix_database import Connect

ALL = StructType()
for name, kind in COLUMNS.items():
    ALL.add(name, kind)


def reader(url: str, schema: StructType = ALL, **given: str) -> MessageReader:
    return MessageReader(Options.parse({"url": url, "queue": "q", **given}, Use.READ), schema)


def read(url: str, schema: StructType = ALL, **given: str) -> list[dict[str, Any]]:
    """All rows of all partitions."""
    made = reader(url, schema, **given)
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def only(*names: str) -> StructType:
    return StructType([field for field in ALL.fields if field.name in names])


def test_a_message_comes_with_all_its_columns(database_url: str, queue: Engine) -> None:
    sent = queue.send({"a": [1, "ü"]}, headers={"h": 1}, priority=3, tag="t", max_deliveries=4)

    (row,) = read(database_url)

    assert row == {
        **queue.rows("browse", queue="q")[0],
        "id": sent,
        "payload": '{"a": [1, "ü"]}',
        "headers": '{"h": 1}',
        "seq": None,
    }


def test_records_of_a_log_have_their_sequence_number(database_url: str, engine: Engine) -> None:
    engine.create("q", kind="log")
    engine.send_numbers(3)

    assert [row["seq"] for row in read(database_url, only("seq"), state="log")] == [1, 2, 3]


@pytest.mark.parametrize("partitions", [1, 3, 12])
def test_each_message_comes_once_however_they_are_shared_out(
    database_url: str, queue: Engine, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    sent = queue.send_numbers(40) + queue.send_numbers(40, priority=9)
    queue.value("discard", queue="q", ids=sent[3:35])

    rows = read(database_url, only("id"), partitions=str(partitions))

    assert sorted(row["id"] for row in rows) == sorted(sent[:3] + sent[35:])


def test_columns_that_nobody_uses_are_null_and_those_of_one_message_are_not(
    database_url: str, queue: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "MANY", 0)
    plain = queue.send_numbers(3)

    before = read(database_url)
    tagged = queue.send(3, tag="last")
    after = read(database_url)

    assert [(row["id"], row["tag"], row["queue"]) for row in before] == [(id, None, "q") for id in plain]
    assert [(row["id"], row["tag"]) for row in after] == [*((id, None) for id in plain), (tagged, "last")]


def test_a_read_of_columns_that_are_the_same_in_all_rows_has_all_rows(
    database_url: str, queue: Engine
) -> None:
    queue.send_numbers(3)

    assert read(database_url, only("queue", "seq")) == [{"queue": "q", "seq": None}] * 3


def test_a_kept_connection_that_the_server_has_ended_is_opened_anew(database_url: str, queue: Engine) -> None:
    queue.send_numbers(3)
    _fetch.close_spare()
    first = read(database_url, only("id"))
    queue.conn.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'"
    )

    assert read(database_url, only("id")) == first


def test_a_task_that_is_ended_early_leaves_nothing_open(
    database_url: str, queue: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "BATCH_SIZE", 1)
    queue.send_numbers(50)
    _fetch.close_spare()
    made = reader(database_url, only("id"))
    (part,) = made.partitions()

    batches = made.read(part)
    assert isinstance(batches, Generator)
    first = next(batches).num_rows
    batches.close()

    assert first < 50
    assert len(read(database_url, only("id"))) == 50


def test_a_kept_connection_keeps_no_transaction_and_no_setting(database_url: str, queue: Engine) -> None:
    queue.send_numbers(3)
    read(database_url, only("id"))

    with _fetch.Fetcher(Secret(database_url), patience=0) as fetcher:
        settings = fetcher.table(
            "select current_setting('transaction_read_only') as read_only, setting = reset_val as plain"
            " from pg_settings where name = 'enable_seqscan'"
        ).to_pylist()

    assert settings == [{"read_only": "off", "plain": True}]


def test_a_condition_is_over_the_columns_of_a_message(database_url: str, queue: Engine) -> None:
    queue.send_numbers(5, tag="a")
    queue.send_numbers(5, tag="b")

    rows = read(database_url, only("payload"), where="tag = 'b' and payload::int > 2")

    assert [row["payload"] for row in rows] == ["3", "4"]


def test_a_condition_cannot_write(database_url: str, queue: Engine) -> None:
    queue.send(1)

    with pytest.raises(DatabaseError, match="read-only transaction"):
        read(database_url, where="holdfast.send('q') > 0")

    assert queue.stats()["depth"] == 1


def test_a_condition_has_the_rights_of_the_caller(database_url: str, queue: Engine) -> None:
    queue.send(1)
    user = sql.Identifier("spark_reader")
    queue.conn.execute(
        sql.SQL("create role {} login password 'x'; grant holdfast_consumer to {}").format(user, user)
    )
    parts = psycopg.conninfo.conninfo_to_dict(database_url)
    url = f"postgresql://spark_reader:x@{parts['host']}:{parts['port']}/{parts['dbname']}"

    found = read(url, only("payload"))
    with pytest.raises(DatabaseError, match="permission denied"):
        read(url, where="exists (select from holdfast.message)")
    queue.conn.execute(sql.SQL("drop role {}").format(user))

    assert found == [{"payload": "1"}]


def test_a_condition_that_is_wrong_says_so(database_url: str, queue: Engine) -> None:
    queue.send(1)

    with pytest.raises(DatabaseError, match='column "colour" does not exist'):
        read(database_url, where="colour = 1")


def test_a_payload_is_read_raw_or_as_columns(database_url: str, queue: Engine) -> None:
    queue.send({"a": 1})
    queue.value("send", queue="q", body=b"\xff")
    raw = StructType().add("payload", BinaryType())
    struct = StructType().add("payload", StructType().add("a", IntegerType()))

    assert [row["payload"] for row in read(database_url, raw, payload="raw")] == [b'{"a": 1}', b"\xff"]
    found = read(database_url, struct, payload="struct", payload_schema="a INT")
    assert [row["payload"] for row in found] == [{"a": 1}, None]


def test_a_snapshot_that_somebody_holds_is_read(database_url: str, queue: Engine, connect: Connect) -> None:
    sent = queue.send_numbers(3)
    holder = connect()

    with holder.transaction():
        holder.execute("set transaction isolation level repeatable read")
        (snapshot,) = holder.execute("select pg_export_snapshot()").fetchall()[0]
        queue.value("discard", queue="q", ids=sent[:2])
        found = read(database_url, only("id"), snapshot=snapshot, state="live")

    assert [row["id"] for row in found] == sent


def test_an_unknown_queue_is_an_error_of_holdfast(database_url: str) -> None:
    with pytest.raises(QueueNotFoundError):
        read(database_url)


def test_an_error_does_not_show_the_password() -> None:
    with pytest.raises(DatabaseError) as refused:
        read("postgresql://shop:hush@127.0.0.1:1/shop?connect_timeout=1")

    assert "hush" not in str(refused.value)
