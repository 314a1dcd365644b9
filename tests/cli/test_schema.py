"""holdfast schema, and what it makes of holdfast send."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}


@pytest.fixture
def orders(conn: psycopg.Connection[Any]) -> str:
    """A queue."""
    conn.execute("select holdfast.create_queue('orders')")
    return "orders"


def test_a_schema_is_set_from_a_file_stdin_or_words(run: Run, orders: str, tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps(ORDER))

    assert run("schema", "set", orders, str(path)).out == "Version 1 of the schema of orders is in force.\n"
    piped = run("schema", "set", orders, "-", "--compatibility", "none", "--json", stdin='{"minimum": 0.10}')
    assert piped.document == {"queue": "orders", "version": 2}
    words = run("schema", "set", orders, '"string"', "--kind", "avro", "--expected-version", "2", "--json")
    assert words.document["version"] == 3

    shown = run("schema", "show", orders, "--json").document
    assert (shown["version"], shown["kind"], shown["definition"]) == (3, "avro", "string")
    assert run("schema", "show", orders, "--version", "1", "--json").document["definition"] == ORDER
    listed = run("schema", "versions", orders, "--json").lines
    assert [each["version"] for each in listed] == [3, 2, 1]


def test_a_dropped_schema_is_shown_no_more(run: Run, orders: str) -> None:
    run("schema", "set", orders, "true")

    assert run("schema", "drop", orders, "--yes").out == "Dropped the schema of orders.\n"
    assert run("schema", "drop", orders, "--yes").out == "Queue orders had no schema.\n"
    assert run("schema", "show", orders).code == 4
    assert run("schema", "show", orders, "--version", "9").code == 4
    assert run("schema", "show", orders, "--version", "1").code == 0


def test_what_does_not_fit_is_not_sent(run: Run, orders: str, tmp_path: Path) -> None:
    run("schema", "set", orders, json.dumps(ORDER))
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 1}\n\n{"id": "x"}\n')

    one = run("send", orders, '{"id": "x"}')
    many = run("send", orders, "--file", str(file))
    none = run("send", orders)

    assert (one.code, many.code, none.code) == (1, 1, 1)
    assert "payload: is missing" in none.err
    assert 'payload.id: "x" is not of type "integer"' in one.err
    assert "messages[1]: payload.id" in " ".join(many.err.split())
    assert run("peek", orders, "--json").lines == []
    assert run("send", orders, '{"id": 2}').code == 0


def test_a_check_says_what_would_be_refused(run: Run, orders: str, tmp_path: Path) -> None:
    run("schema", "set", orders, json.dumps(ORDER))
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 1}\n\n{"id": "x"}\n')

    assert run("schema", "check", orders, '{"id": 1}').err == "Nothing would be refused.\n"
    of_lines = run("schema", "check", orders, "--file", str(file), "--json")
    of_a_change = run("schema", "check", orders, "--definition", '{"type": "string"}', "--json")
    allowed = run(
        "schema", "check", orders, "--definition", '{"type": "string"}', "--compatibility", "none", "--json"
    )

    assert (of_lines.code, of_a_change.code, allowed.code) == (1, 1, 0)
    assert [(each["index"], each["line"], each["path"]) for each in of_lines.lines] == [(1, 3, "payload.id")]
    assert [(each["index"], each["path"]) for each in of_a_change.lines] == [(None, "definition.type")]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["set", "orders", "{broken"], 2, "is not JSON"),
        (["set", "orders", "nowhere.json"], 2, "can't read"),
        (["set", "orders", '{"type": "text"}'], 1, "definition.type"),
        (["check", "orders"], 2, "give what to check"),
        (["check", "orders", "1", "--file", "-"], 2, "only one of"),
        (["show", "nowhere"], 1, "does not exist"),
    ],
)
def test_what_is_wrong_is_said(run: Run, orders: str, words: list[str], code: int, told: str) -> None:
    answer = run("schema", *words)

    assert answer.code == code
    assert told in answer.err
