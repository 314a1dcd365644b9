"""docs/sql.md and the catalog say the same.

1. Every public function has a section, and every section a function, with its arguments, defaults and result.
2. Each section says which roles may call it, has an example that calls it, and names only codes that exist.
3. The columns of the public types and of the inbox are those of the catalog.
4. The table of roles lists what each role may call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from holdfast.client._errors import ERRORS
from tests.docs.pages import quoted, rows, sections, text_of
from tests.fix_database import fresh_database

Conn = psycopg.Connection[Any]

ROLES = ("producer", "consumer", "monitor", "admin")
TYPES = (
    "api_key_info",
    "delivery",
    "cohort_delivery",
    "entry",
    "content",
    "settlement",
    "stats",
    "record",
    "allowance",
    "schema_info",
    "endpoint_info",
    "endpoint_target",
    "hook_info",
    "hook_target",
    "endpoint_state",
    "endpoint_health",
    "attempt_info",
    "published",
    "subscription_info",
    "seal_key_info",
    "service_grant",
    "service_info",
    "service_queue_info",
    "service_task_info",
)
INBOX = "The inbox"

FUNCTIONS: LiteralString = """
select p.proname::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
       array(select r from unnest(%s::text[]) r
             where has_function_privilege('holdfast_' || r, p.oid, 'execute'))
from pg_proc p where p.pronamespace = 'holdfast'::regnamespace and p.proname not like '\\_%%' order by 1
"""
COLUMNS: LiteralString = """
select a.attname::text from pg_attribute a
where a.attrelid = %s::regclass and a.attnum > 0 and not a.attisdropped order by a.attnum
"""


@pytest.fixture(scope="module")
def conn(server_url: str, template_database: str) -> Iterator[Conn]:
    """One database for the whole module: nothing here changes it."""
    with (
        fresh_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute("set search_path = pg_catalog")
        yield connection


@pytest.fixture(scope="module")
def catalog(conn: Conn) -> dict[str, tuple[str, str, list[str]]]:
    """Arguments, result and roles of every public function."""
    return {row[0]: row[1:] for row in conn.execute(FUNCTIONS, [list(ROLES)]).fetchall()}


def functions() -> dict[str, str]:
    """The section of each function."""
    return {
        title: body
        for title, body in sections(text_of("sql.md"), 3).items()
        if not title.startswith("holdfast.") and title != INBOX
    }


def signature(body: str) -> str:
    """What a section's indented lines say, as one line."""
    start = body.index("    holdfast.")
    return " ".join(body[start : body.index("\n\n", start)].split())


def brief(declaration: str) -> str:
    """PostgreSQL's way to write arguments and results, in the words of the page."""
    words = declaration.replace("timestamp with time zone", "timestamptz").replace("integer", "int")
    words = re.sub(r" DEFAULT NULL::[a-z ]+(\[\])?", " = null", words)
    words = re.sub(r" DEFAULT ('[^']*')::[a-z]+(\[\])?", r" = \1", words)
    return words.replace(" DEFAULT ", " = ").replace("SETOF", "setof").replace("TABLE(", "table(")


def test_every_function_has_a_section_and_every_section_a_function(catalog: dict[str, Any]) -> None:
    assert sorted(functions()) == sorted(catalog)


def test_arguments_defaults_and_results_are_those_of_the_catalog(
    catalog: dict[str, tuple[str, str, list[str]]],
) -> None:
    documented = {name: signature(body) for name, body in functions().items()}

    assert documented == {
        name: f"holdfast.{name}({brief(arguments)}) → {brief(result)}"
        for name, (arguments, result, _) in catalog.items()
    }


def test_each_section_says_which_roles_may_call_it(
    catalog: dict[str, tuple[str, str, list[str]]],
) -> None:
    documented = {
        name: re.findall(r"^Roles: ([a-z, ]+)\.", body, re.MULTILINE) for name, body in functions().items()
    }

    assert documented == {name: [", ".join(roles)] for name, (_, _, roles) in catalog.items()}


def test_each_section_has_an_example_that_calls_its_function() -> None:
    silent = [
        name
        for name, body in functions().items()
        if not re.search(rf"^```sql\n(?:(?!^```).)*holdfast\.{name}\(", body, re.DOTALL | re.MULTILINE)
    ]

    assert silent == []


def test_the_index_names_every_function(catalog: dict[str, Any]) -> None:
    head = text_of("sql.md").split("## Queues")[0]

    assert sorted(re.findall(r"\[(\w+)\]\(#\1\)", head)) == sorted(catalog)


def test_only_codes_that_exist_are_named() -> None:
    assert set(re.findall(r"QH\d{3}", text_of("sql.md"))) <= set(ERRORS)


@pytest.mark.parametrize("name", TYPES)
def test_the_columns_of_a_type_are_those_of_the_catalog(conn: Conn, name: str) -> None:
    section = sections(text_of("sql.md"), 3)[f"holdfast.{name}"]
    documented = [column for row in rows(section) for column in quoted(row[0])]

    found = [column for (column,) in conn.execute(COLUMNS, [f"holdfast.{name}"])]

    assert sorted(documented) == sorted(found)


def test_the_columns_of_the_inbox_are_those_of_the_catalog(conn: Conn) -> None:
    section = sections(text_of("sql.md"), 3)[INBOX]
    documented = [column for row in rows(section) for column in quoted(row[0])]

    assert documented == [column for (column,) in conn.execute(COLUMNS, ["holdfast.inbox"]) if column != "n"]


@pytest.mark.parametrize("role", ROLES)
def test_the_table_of_roles_lists_what_each_may_call(
    catalog: dict[str, tuple[str, str, list[str]]], role: str
) -> None:
    listed = {quoted(row[0])[0]: row[1] for row in rows(sections(text_of("sql.md"), 2)["Roles"])}
    allowed = {name for name, (_, _, roles) in catalog.items() if role in roles}

    if role == "admin":
        assert allowed == set(catalog)
        assert listed["holdfast_admin"].startswith("every public function")
    else:
        assert set(listed[f"holdfast_{role}"].split(";")[0].split(", ")) == allowed
