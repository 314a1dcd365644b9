"""The plans of the statements inside PL/pgSQL functions, as the planner prints them.

With debug_print_plan every statement that is planned, at whatever depth, is logged as a node tree; with
client_min_messages = log it comes to the client as a notice. That needs no extension, and shows the very
plans that run: generic ones, under the settings of the function they are in. A statement is planned when
it first runs in a session, so a new session shows them all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg

TOKEN = re.compile(r"[{}()]|(?:\\.|[^\s{}()\\])+", re.DOTALL)
SCANS = {
    "SEQSCAN": "seq",
    "SAMPLESCAN": "seq",
    "INDEXSCAN": "index",
    "INDEXONLYSCAN": "index",
    "BITMAPINDEXSCAN": "index",
}
SEQUENTIAL = "no index"
PLAIN_RELATION = "0"  # rtekind
INDEX_COLUMN = "-3"  # varno of a column of the index in an index condition


@dataclass(slots=True)
class Node:
    """One node of a tree: its name, and what its fields hold."""

    name: str
    fields: dict[str, list[Any]] = field(default_factory=dict)

    def first(self, ending: str) -> Any:
        """The first value of the field whose name ends so; versions differ in what comes before."""
        for name, values in self.fields.items():
            if name == ending or name.endswith("." + ending):
                return values[0] if values else None
        return None

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        yield self
        for values in self.fields.values():
            for value in values:
                yield from walked(value)


@dataclass(frozen=True, slots=True, order=True)
class Access:
    """How a statement reaches a table: by which index, with conditions on which of the index's columns."""

    table: str
    index: str
    columns: tuple[int, ...] = ()
    eager: bool = False  # reads all that its conditions let through, before a LIMIT can stop it

    def __str__(self) -> str:
        return f"{self.table}: {self.index} {list(self.columns)}{' read as a whole' if self.eager else ''}"


def walked(value: Any) -> Iterator[Node]:
    """All nodes in a value: a node, a list, or neither."""
    if isinstance(value, Node):
        yield from value.walk()
    elif isinstance(value, list):
        for item in value:
            yield from walked(item)


def read(text: str) -> Node:
    """Read a node tree."""
    tokens = iter(TOKEN.findall(text))
    assert next(tokens) == "{"
    return _node(tokens)


def _node(tokens: Iterator[str]) -> Node:
    node = Node(next(tokens))
    values: list[Any] = []
    for token in tokens:
        if token == "}":
            return node
        if token.startswith(":"):
            values = node.fields.setdefault(token[1:], [])
        else:
            values.append(_value(token, tokens))
    raise AssertionError("the tree ends in the middle")


def _value(token: str, tokens: Iterator[str]) -> Any:
    if token == "{":
        return _node(tokens)
    if token != "(":
        return token
    values: list[Any] = []
    for inner in tokens:
        if inner == ")":
            return values
        values.append(_value(inner, tokens))
    raise AssertionError("the list ends in the middle")


def accesses(statement: Node, names: dict[str, str]) -> set[Access]:
    """How a planned statement reaches the tables in it."""
    tables = [
        entry.first("relid") if entry.first("rtekind") == PLAIN_RELATION else None
        for entry in statement.first("rtable")
    ]
    found = set()
    for node in statement.walk():
        if node.name not in SCANS:
            continue
        table = names.get(tables[int(node.first("scanrelid")) - 1] or "")
        if table is None:
            continue
        if SCANS[node.name] == "seq":
            found.add(Access(table, SEQUENTIAL))
        else:
            conditions = list(walked(node.first("indexqual")))
            columns = {
                int(var.first("varattno"))
                for var in conditions
                if var.name == "VAR" and var.first("varno") == INDEX_COLUMN
            }
            listed = any(condition.name == "SCALARARRAYOPEXPR" for condition in conditions)
            eager = node.name == "BITMAPINDEXSCAN" and not listed
            found.add(Access(table, names[node.first("indexid")], tuple(sorted(columns)), eager))
    return found


def recounts(statement: Node) -> list[str]:
    """Nested loops that aggregate a CTE anew for each row of their outer side: quadratic work."""
    return [
        f"{inner.name} inside a nested loop"
        for loop in statement.walk()
        if loop.name == "NESTLOOP"
        and isinstance(inner := loop.first("righttree"), Node)
        and inner.name != "MATERIAL"
        if {"AGG", "CTESCAN"} <= {node.name for node in inner.walk()}
    ]


def statements(conn: psycopg.Connection[Any], work: Callable[[], object]) -> list[Node]:
    """Everything that is planned during some work."""
    printed: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        if notice.message_primary == "plan:":
            printed.append(notice.message_detail or "")

    conn.add_notice_handler(listen)
    try:
        conn.execute("set client_min_messages = log; set debug_pretty_print = off; set debug_print_plan = on")
        work()
    finally:
        conn.execute("reset debug_print_plan; reset client_min_messages")
        conn.remove_notice_handler(listen)
    assert printed, "nothing was planned"
    return [read(text) for text in printed]


def planned(conn: psycopg.Connection[Any], work: Callable[[], object]) -> set[Access]:
    """How everything that is planned during some work reaches the tables of the schema."""
    names = {
        str(oid): name
        for oid, name in conn.execute(
            "select oid, relname from pg_class"
            " where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'i')"
        )
    }
    return {access for statement in statements(conn, work) for access in accesses(statement, names)}
