"""Topics: what waits for the disk, as transactions commit. The numbers are those of test_topics.py."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, TypeAlias

import psycopg
import pytest

from tests.dialects.conftest import T0
from tests.dialects.pins import pins
from tests.dialects.topics import Topics
from tests.fix_http import Serve

Conn: TypeAlias = psycopg.Connection[Any]

# A deferred trigger runs when its transaction commits: what is set then is how it commits.
NOTES = """
create table public.note (what text, waits text);
create function public.note() returns trigger language plpgsql security definer as $$
begin
  insert into public.note values (tg_op, current_setting('synchronous_commit'));
  return null;
end $$;
create constraint trigger note after insert or delete on holdfast.message
deferrable initially deferred for each row execute function public.note();
"""


@pytest.fixture
def notes(database_url: str) -> Iterator[Conn]:
    """Takes down what comes and goes, and whether that waits for the disk."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(NOTES)
        yield connection


def noted(notes: Conn) -> list[tuple[str, str]]:
    """What came and went since the last look."""
    return notes.execute("with gone as (delete from public.note returning *) table gone").fetchall()


@pins(6, 18)
@pytest.mark.parametrize(
    ("durability", "waits"), [("fsync", "on"), ("disk", "on"), ("memory", "off"), ("ephemeral", "off")]
)
def test_an_append_waits_as_its_class_says_and_an_ack_always(
    serve: Serve, notes: Conn, name: str, durability: str, waits: str
) -> None:
    with Topics(serve().address) as topics:
        topics.queue(name, durability=durability)
        topics.append(name, 1)
        appended = noted(notes)
        topics.claim(name)

        topics.settle("ack", name, [1])

    assert (appended, noted(notes)) == ([("INSERT", waits)], [("DELETE", "on")])


@pins(6)
@pytest.mark.parametrize("durability", ["disk", "memory"])
def test_an_append_to_a_log_always_waits(serve: Serve, notes: Conn, name: str, durability: str) -> None:
    with Topics(serve().address) as topics:
        topics.put(name, type="log", durability=durability)

        topics.append(name, 1)

    assert noted(notes) == [("INSERT", "on")]


@pins(70)
@pytest.mark.parametrize("durability", ["fsync", "memory"])
@pytest.mark.parametrize(("how", "waits"), [("nack", "on"), ("deadline", "off")])
def test_a_move_is_one_commit_that_waits_as_its_cause_does(
    serve: Serve, notes: Conn, name: str, durability: str, how: str, waits: str
) -> None:
    notes.execute("select holdfast.set_clock(%s)", [T0])
    with Topics(serve(upkeep=0).address) as topics:
        topics.queue(f"{name}.dead", durability=durability)
        topics.queue(name, durability=durability, max_deliveries=1, dead_letter=f"{name}.dead")
        topics.append(name, 1)
        topics.claim(name)
        noted(notes)

        if how == "nack":
            topics.settle("nack", name, [1])
        else:
            notes.execute("select holdfast.set_clock(%s)", [T0 + timedelta(minutes=1)])
            assert topics.claim(name) == []

    assert sorted(noted(notes)) == [("DELETE", waits), ("INSERT", waits)]
