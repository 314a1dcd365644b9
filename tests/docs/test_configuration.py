"""docs/configuration.md and the code say the same.

1. Every field of a queue's configuration is there with its default, and no other; those of its parts too.
2. Every environment variable that the code reads is there, and no page names one that it does not read.
3. The embedded server's settings are those that it writes.
"""

from __future__ import annotations

import json
import re
from typing import Any

import psycopg
import pytest

from holdfast._cluster import SETTINGS
from holdfast.cli._config import FIELDS, PARTS
from tests.docs.pages import PAGES, ROOT, quoted, rows, sections, text_of

Conn = psycopg.Connection[Any]
VARIABLE = re.compile(r"\bHOLDFAST_[A-Z][A-Z_]*[A-Z]\b")


@pytest.fixture
def builtin(conn: Conn) -> dict[str, Any]:
    """The built-in configuration, the fields of its parts beside it."""
    ((fields,),) = conn.execute("select holdfast._builtin()").fetchall()
    parts = {f"{part}.{name}": value for part in PARTS for name, value in fields[part].items()}
    return {**fields, **parts}


def documented() -> dict[str, Any]:
    """The fields and defaults of the page."""
    section = sections(text_of("configuration.md"), 2)["Of a queue"]
    return {quoted(row[0])[0]: json.loads(quoted(row[1])[0]) for row in rows(section)}


def test_the_command_line_shows_the_fields_in_the_order_of_the_page() -> None:
    parts = [f"{part}.{name}" for part, names in PARTS.items() for name in names]
    assert [*FIELDS, *parts] == list(documented())


def test_every_field_is_documented_with_its_default(builtin: dict[str, Any]) -> None:
    assert documented() == builtin


def test_every_field_that_the_engine_names_is_documented(conn: Conn) -> None:
    with pytest.raises(psycopg.Error) as caught:
        conn.execute("""select holdfast.create_queue('q', '{"colour": "red"}')""")

    hint = caught.value.diag.message_hint or ""
    named = hint.removeprefix("Fields: ").removesuffix(".").split(", ")
    assert sorted(named) == sorted(name for name in documented() if "." not in name)


def test_every_variable_that_the_code_reads_is_documented_and_no_other() -> None:
    section = sections(text_of("configuration.md"), 2)["Environment variables"]
    read = {
        name
        for path in (ROOT / "src").rglob("*.py")
        for name in VARIABLE.findall(path.read_text(encoding="utf-8"))
    }

    assert {quoted(row[0])[0] for row in rows(section)} == read
    assert {name for page in PAGES for name in VARIABLE.findall(page.read_text(encoding="utf-8"))} <= read


def test_the_settings_of_the_embedded_server_are_those_that_it_writes() -> None:
    section = sections(text_of("configuration.md"), 2)["The embedded server"]
    table = section[section.index("| setting | value |") :]
    listed = {quoted(row[0])[0]: (quoted(row[1]) or [""])[0] for row in rows(table)}

    assert listed == dict(SETTINGS)
