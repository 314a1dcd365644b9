"""The real engine as the state machine drives it: sessions, a look at all that is there, a crash."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import psycopg
from hypothesis import currently_in_test_context, note
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from tests.property.model import GRAVE, MAIN

Row = dict[str, Any]

# Every second session lives on the other shard: the same ones in every run, so that a failure comes again.
PRODUCERS = ("P1", "P2", "P3")
CONSUMERS = ("C1", "C2", "C3")
ADMIN = "A"
NAMES = (*PRODUCERS, *CONSUMERS, ADMIN)

CASTS = {
    "body": "bytea", "config": "jsonb", "correlation_id": "uuid", "deliver_at": "timestamptz",
    "delay": "interval", "error": "text", "expires_at": "timestamptz", "filter": "jsonb",
    "headers": "jsonb", "ids": "bigint[]",
    "lease": "interval", "limit": "int", "max": "int", "max_deliveries": "int", "messages": "jsonb",
    "payload": "jsonb", "payloads": "jsonb[]", "priority": "int", "token": "bigint", "ttl": "interval",
}  # fmt: skip
JSON = {"config", "filter", "headers", "messages", "payload"}

EVERYTHING = """
select m.id, q.name as queue, m.payload, m.body, m.content_type, m.headers, m.tag, m.correlation_id,
       l.priority::int as priority, m.enqueued_at, case when isfinite(m.due_at) then m.due_at end as due_at,
       coalesce(m.due_at = '-infinity', false) as parked, m.expires_at,
       coalesce(m.deliveries, 0) as deliveries, coalesce(m.failures, 0) as failures, m.max_deliveries,
       m.last_error, m.origin, h.token, h.deadline
from holdfast.message m join holdfast.queue q on q.id = m.queue_id join holdfast.lane l on l.id = m.id >> 40
  left join (select e.token, e.deadline, i.id from holdfast.lease e cross join unnest(e.ids) i(id)) h
    on h.id = m.id
order by m.id
"""

LOSE_REGISTERS = """
select setval(c.oid, s.seqstart, false) from pg_class c join pg_sequence s on s.seqrelid = c.oid
where c.relnamespace = 'holdfast'::regnamespace and c.relpersistence = 'u'
"""

# Who meets a locked lane waits half a second for it: the same path, but quicker.
BE_QUICK = """
do $$
declare
  v_waiting regprocedure;
begin
  for v_waiting in select p.oid from pg_proc p where p.pronamespace = 'holdfast'::regnamespace
                     and exists (select from unnest(p.proconfig) s where s like 'lock_timeout=%') loop
    execute format('alter function %s set lock_timeout = %L', v_waiting, '10ms');
  end loop;
end $$
"""

LANES = """
select q.name as queue, l.priority::int as priority, l.shard::int as shard
from holdfast.lane l join holdfast.queue q on q.id = l.queue_id
"""

Connector = Callable[..., psycopg.Connection[Any]]


class Trace(list[str]):
    """What an example has done so far, line by line; Hypothesis prints it too if it can replay it."""

    def note(self, line: str) -> None:
        self.append(line)
        if currently_in_test_context():
            note(line)


class Session:
    """One connection; each call goes into the trace that a failing example prints."""

    def __init__(self, name: str, connection: psycopg.Connection[Any], trace: Trace) -> None:
        self.name = name
        self.trace = trace
        self.connection = connection
        self.parity = connection.info.backend_pid % 2

    def run(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[Row]:
        """A statement's rows, untraced."""
        with self.connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(statement.encode(), parameters or None)
            return cursor.fetchall() if cursor.description else []

    def say(self, statement: str) -> None:
        """A statement without an answer, such as BEGIN."""
        self.trace.note(f"    {self.name}: {statement}")
        self.run(statement)

    def call(self, verb: str, **arguments: Any) -> list[Row]:
        """One of the engine's verbs, by its name and the names of its arguments."""
        given = {name: value for name, value in arguments.items() if value is not None}
        listed = ", ".join(
            f'"{name}" => %s' + (f"::{CASTS[name]}" if name in CASTS else "") for name in given
        )
        shown = ", ".join(f"{name} => {value!r}" for name, value in given.items())
        self.trace.note(f"    {self.name}: {verb}({shown})")
        try:
            rows = self.run(f"select * from holdfast.{verb}({listed})", tuple(_adapted(given)))
        except psycopg.Error as error:
            self.trace.note(f"        !! {error.sqlstate} {error.diag.message_primary}")
            raise
        self.trace.note(f"        -> {[_brief(row) for row in rows]}")
        return rows

    def value(self, verb: str, **arguments: Any) -> Any:
        """The one value that a verb answers with."""
        (row,) = self.call(verb, **arguments)
        (value,) = row.values()
        return value


def _adapted(given: dict[str, Any]) -> list[Any]:
    values: list[Any] = []
    for name, value in given.items():
        if name in JSON:
            values.append(Jsonb(value))
        else:
            values.append([Jsonb(item) for item in value] if name == "payloads" else value)
    return values


def _brief(row: Row) -> Row:
    """A delivery has 18 columns; the trace shows those that tell messages apart."""
    if "enqueued_at" not in row:
        return row
    return {k: row[k] for k in ("token", "id", "state", "deliveries", "deadline") if k in row}


class Engine:
    """A database, its sessions, and a queue that every example gets anew."""

    def __init__(self, connect: Connector) -> None:
        self.trace = Trace()
        self.first_failure: str | None = None
        self.sessions = {
            name: Session(name, _of_parity(connect, n % 2), self.trace) for n, name in enumerate(NAMES)
        }
        self.admin = self.sessions[ADMIN]
        for session in self.sessions.values():
            # Whatever waits for longer was not foreseen by the model: that fails the example.
            session.run("set timezone = 'UTC'; set lock_timeout = '15s'; set statement_timeout = '30s'")
        self.admin.run(BE_QUICK)

    def reset(self, at: datetime) -> None:
        """No queue, no open transaction, the clock at its start, an empty trace."""
        self.trace.clear()
        for session in self.sessions.values():
            session.run("rollback") if session.connection.info.transaction_status else None
        for name in (MAIN, GRAVE):
            self.admin.run("select holdfast.drop_queue(%s)", (name,))
        self.set_clock(at)

    def set_clock(self, at: datetime) -> None:
        self.admin.run("select holdfast.set_clock(%s)", (at,))

    def crash(self, at: datetime) -> None:
        """What a crash leaves: the log, and none of the unlogged tables and sequences."""
        for session in self.sessions.values():
            session.run("rollback") if session.connection.info.transaction_status else None
        self.trace.note("    crash")
        self.admin.run(
            "truncate holdfast.lease, holdfast.gap, holdfast.boot, holdfast.tally, holdfast.probe,"
            " holdfast.inbox"
        )
        self.admin.run(LOSE_REGISTERS)
        self.set_clock(at)

    def lanes(self) -> set[tuple[str, int, int]]:
        """Queue, priority and shard of every committed lane."""
        return {(row["queue"], row["priority"], row["shard"]) for row in self.admin.run(LANES)}


def _of_parity(connect: Connector, parity: int) -> psycopg.Connection[Any]:
    """A connection whose process id is even or odd, as wanted: that decides its shard."""
    with ExitStack() as stack:
        for _ in range(200):
            connection = connect()
            if connection.info.backend_pid % 2 == parity:
                return connection
            stack.callback(connection.close)
    raise AssertionError("no process id of that parity in 200 connections")
