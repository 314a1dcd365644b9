"""Calls the engine's SQL functions by name, as every client does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

Row = dict[str, Any]

T0 = datetime(2030, 1, 1, tzinfo=UTC)  # where tests stop the clock

# What must be the same after a refused call: everything but registers, which carry no correctness.
STATE: LiteralString = """
select (select coalesce(jsonb_agg(to_jsonb(q) order by to_jsonb(q)), '[]') from holdfast.queue q),
       (select jsonb_agg(to_jsonb(d)) from holdfast.defaults d),
       (select coalesce(jsonb_agg(to_jsonb(l) order by to_jsonb(l)), '[]') from holdfast.lane l),
       (select coalesce(jsonb_agg(to_jsonb(m) order by to_jsonb(m)), '[]') from holdfast.message m),
       (select coalesce(jsonb_agg(to_jsonb(l) order by to_jsonb(l)), '[]') from holdfast.lease l),
       (select coalesce(jsonb_agg(to_jsonb(g) order by to_jsonb(g)), '[]') from holdfast.gap g),
       (select coalesce(jsonb_agg(to_jsonb(i) order by to_jsonb(i)), '[]') from holdfast.inbox i),
       (select coalesce(jsonb_agg(to_jsonb(k) order by to_jsonb(k)), '[]') from holdfast.api_key k),
       (select coalesce(jsonb_agg(to_jsonb(l) order by to_jsonb(l)), '[]') from holdfast.api_login l),
       (select coalesce(jsonb_agg(to_jsonb(s) order by to_jsonb(s)), '[]') from holdfast.schema_version s),
       (select coalesce(jsonb_agg(to_jsonb(k) order by to_jsonb(k)), '[]') from holdfast.seal_key k),
       (select coalesce(jsonb_agg(to_jsonb(r) order by to_jsonb(r)), '[]') from holdfast.pipeline_run r),
       (select coalesce(jsonb_agg(to_jsonb(s) order by to_jsonb(s)), '[]') from holdfast.service s),
       (select coalesce(jsonb_agg(to_jsonb(q) order by to_jsonb(q)), '[]') from holdfast.service_queue q),
       (select coalesce(jsonb_agg(to_jsonb(t) order by to_jsonb(t)), '[]') from holdfast.service_task t)
"""


def adapted(value: Any) -> Any:
    """A dict is meant as JSON; everything else psycopg knows."""
    return Jsonb(value) if isinstance(value, dict) else value


@dataclass(frozen=True, slots=True)
class Engine:
    """The verbs, over one connection."""

    conn: psycopg.Connection[Any]

    def _called(self, what: LiteralString, verb: str, arguments: Row) -> psycopg.Cursor[Row]:
        named = [sql.SQL("{} => {}").format(sql.Identifier(n), sql.Placeholder(n)) for n in arguments]
        statement = sql.SQL("select {} from holdfast.{}({}) r").format(
            sql.SQL(what), sql.Identifier(verb), sql.SQL(", ").join(named)
        )
        cursor = self.conn.cursor(row_factory=dict_row)
        return cursor.execute(statement, {name: adapted(value) for name, value in arguments.items()})

    def rows(self, verb: str, **arguments: Any) -> list[Row]:
        """The rows that a verb returns."""
        return self._called("r.*", verb, arguments).fetchall()

    def row(self, verb: str, **arguments: Any) -> Row:
        """The one row that a verb returns."""
        (row,) = self.rows(verb, **arguments)
        return row

    def value(self, verb: str, **arguments: Any) -> Any:
        """The one value that a verb returns."""
        (row,) = self._called("r as value", verb, arguments).fetchall()
        return row["value"]

    def create(self, queue: str = "q", **config: Any) -> None:
        """A queue, with these fields in its configuration."""
        assert self.value("create_queue", queue=queue, config=config) is True

    def send(self, payload: Any = None, *, queue: str = "q", **options: Any) -> int:
        """Send one JSON payload; returns the id."""
        return int(self.value("send", queue=queue, payload=Jsonb(payload), **options))

    def send_numbers(self, count: int, *, queue: str = "q", **options: Any) -> list[int]:
        """Send 0, 1, 2 … as one batch; returns the ids."""
        payloads = [Jsonb(n) for n in range(count)]
        return list(self.value("send_batch", queue=queue, payloads=payloads, **options))

    def claim(self, max: int = 1, *, queue: str = "q", **options: Any) -> list[Row]:
        """Claim messages."""
        return self.rows("claim", queue=queue, max=max, **options)

    def claim_one(self, *, queue: str = "q", **options: Any) -> Row:
        """Claim exactly one message: there must be one."""
        (row,) = self.claim(1, queue=queue, **options)
        return row

    def settle(
        self, verb: str, token: int, ids: Sequence[int] | None = None, *, queue: str = "q", **options: Any
    ) -> tuple[list[int], list[int]]:
        """ack, nack, release or extend: which ids were settled, and which skipped, each in order."""
        listed = None if ids is None else list(ids)
        row = self.row(verb, queue=queue, token=token, ids=listed, **options)
        return sorted(row["settled"]), sorted(row["skipped"])

    def stats(self, queue: str = "q") -> Row:
        """The figures of a queue."""
        return self.row("queue_stats", queue=queue)

    def at(self, when: datetime | None) -> None:
        """Stop the clock at a time; None lets it run."""
        self.value("set_clock", at=when)

    def look(self, query: LiteralString, *parameters: Any) -> Any:
        """The first value of a query of the test's own."""
        found = self.conn.execute(query, parameters).fetchone()
        assert found is not None
        return found[0]

    def state(self) -> Any:
        """Everything that a refused call must leave alone."""
        return self.conn.execute(STATE).fetchone()

    def kill(self, message: int, *, queue: str = "q", error: str | None = None) -> int:
        """Use up a message's deliveries; returns the id of the dead letter."""
        while True:
            row = self.claim_one(queue=queue)
            assert row["id"] == message
            self.settle("nack", row["token"], queue=queue, delay="0 s", error=error)
            if row["deliveries"] == row["max_deliveries"]:
                return int(self.look("select max(id) from holdfast.message"))


def payloads(rows: list[Row]) -> list[Any]:
    """The payloads, in the order they came."""
    return [row["payload"] for row in rows]


def ids(rows: list[Row]) -> list[int]:
    """The ids, in the order they came."""
    return [row["id"] for row in rows]
