"""Every piece of SQL and Python in the documentation runs, from top to bottom of its page.

1. Blocks of a page run in their order, against one fresh database; promised answers are those given.
2. A block says what it is: sql and python run; sh, text and mermaid do not, and there is no other kind.
3. The command lines in sh blocks name commands and make targets that exist.
4. Pages do not get in each other's way: a reader may run one after the other in one database.
"""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from psycopg import sql

from holdfast.cli import app
from holdfast.migrate import migrate
from tests.docs.pages import PAGES, ROOT, blocks
from tests.docs.session import Reader, statements
from tests.fix_http import Serve

RUNNING = {"sql", "python"}
SHOWN = {"javascript", "sh", "text", "mermaid"}  # tests/webhook/test_verifying.py runs the javascript
CLIENT = ROOT / "docs" / "client.md"  # tests/client/test_examples.py runs it
WITH_EXAMPLES = [page for page in PAGES if any(language in RUNNING for language, _ in blocks(page))]
RUNNABLE = [page for page in WITH_EXAMPLES if page != CLIENT]
SPEAKING_SQL = {ROOT / "docs" / "dialects" / "foundrydb.md": ("foundrydb",)}
LAST = ROOT / "docs" / "operations.md"  # it ends with how to uninstall
MADE = re.compile(r"""create_queue\(\s*['"]([^'"]+)['"]|holdfast queue create ([\w.:-]+)""")
ROLE_MADE = re.compile(r"^create role (\w+)", re.MULTILINE)


def queues_made(page: Path) -> set[str]:
    """The queues that a page's examples create."""
    return {
        in_sql or in_shell
        for language, block in blocks(page)
        if language in RUNNING | {"sh"}
        for in_sql, in_shell in MADE.findall(block)
    }


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_every_example_of_a_page_runs(page: Path, conn: psycopg.Connection[Any], database_url: str) -> None:
    run(page, conn, database_url)


def test_pages_run_one_after_the_other_in_one_database(
    conn: psycopg.Connection[Any], database_url: str, serve: Serve
) -> None:
    http = serve(agent=False)  # a page plays its part
    for page in sorted(WITH_EXAMPLES, key=lambda page: page == LAST):
        run(page, conn, database_url, server=http.address)


def run(page: Path, connection: psycopg.Connection[Any], url: str, *, server: str = "") -> None:
    """Type all examples of a page; its roles would be there in every other database too."""
    migrate(url, dialects=SPEAKING_SQL.get(page, ()))
    reader = Reader(connection, url, server)
    try:
        for number, (language, block) in enumerate(blocks(page)):
            if language in RUNNING:
                reader.run(language, block, f"{page.name}, block {number}")
    finally:
        for role in roles_made(page):
            connection.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(role)))


def roles_made(page: Path) -> set[str]:
    """The roles that a page's examples create."""
    return {
        role for language, block in blocks(page) if language == "sql" for role in ROLE_MADE.findall(block)
    }


def test_no_two_pages_create_a_queue_of_the_same_name() -> None:
    makers = defaultdict(list)
    for page in PAGES:
        for name in queues_made(page):
            makers[name].append(page.relative_to(ROOT).as_posix())

    assert len(makers) > 10
    assert {name: pages for name, pages in makers.items() if len(pages) > 1} == {}


def test_examples_are_found_where_they_are_expected() -> None:
    assert {"README.md", "sql.md", "configuration.md", "operations.md", "errors.md"} <= {
        page.name for page in RUNNABLE
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_block_says_what_it_is(page: Path) -> None:
    assert {language for language, _ in blocks(page)} <= RUNNING | SHOWN


def test_command_lines_name_commands_that_exist() -> None:
    commands = getattr(typer.main.get_command(app), "commands", {})
    named = {
        word
        for page in PAGES
        for language, block in blocks(page)
        if language == "sh"
        for word in re.findall(r"\bholdfast ([a-z_]+)", block)
    }

    assert named
    assert named <= set(commands)


def test_statements_are_told_apart_with_their_answers() -> None:
    block = "select 1;   -- → 1\nselect ';',\n  2 \\gset\ncommit;   -- a remark\n"

    assert list(statements(block)) == [
        ("select 1", False, "1"),
        ("select ';',\n  2", True, None),
        ("commit", False, None),
    ]


def test_a_broken_promise_is_noticed(conn: psycopg.Connection[Any], database_url: str) -> None:
    reader = Reader(conn, database_url)

    reader.run("sql", "select 7 as seven \\gset\nselect :seven + 1;   -- → 8\n", "here")

    with pytest.raises(AssertionError, match="select :seven"):
        reader.run("sql", "select :seven;   -- → 8\n", "here")


def test_variables_are_filled_in_as_psql_does(conn: psycopg.Connection[Any], database_url: str) -> None:
    reader = Reader(conn, database_url)

    reader.run("sql", "select 'it''s' as word, 7 as seven, null as nothing \\gset\n", "here")

    reader.run("sql", "select :'word';   -- → it's\n", "here")
    reader.run("sql", """select "it's" from (select 1 as :"word") s;   -- → 1\n""", "here")
    reader.run("sql", "select :seven::text || ':seven' || ':''seven''';   -- → 7:seven:'seven'\n", "here")
    reader.run("sql", "select $$:seven$$ /* :word */;   -- → :seven\n", "here")
    with pytest.raises(psycopg.errors.SyntaxError):
        reader.run("sql", "select :nothing;\n", "here")
