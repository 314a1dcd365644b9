"""The migrator.

1. Each migration is run once, whole or not at all, in order.
2. Functions are replaced whenever any of their text has changed, and only then.
3. Any number of installations at once do the work once, in one database or in many of a cluster.
4. An applied migration that was edited is refused.
5. A newer schema is left alone; a newer breaking one is refused, by the migrator and by the client.
6. However a database came to a version, its schema is the same.
7. A plan says what a migration would do, refuses what it would refuse, and changes nothing.
8. A database that cannot hold all of Unicode, and a user who may not install, are told so.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from holdfast.client._errors import MigrationError, SchemaMissingError, SchemaTooNewError
from holdfast.client._schema import KNOWN_VERSION, check_schema
from holdfast.migrate import RIGHTS_NEEDED, Report, Sources, migrate, plan
from tests.fix_database import fresh_database
from tests.platform.schema_dump import schema_dump

TABLE = "create table holdfast.thing (id int primary key);"
COLUMN = "alter table holdfast.thing add column name text;"
ANSWER = "create or replace function holdfast.answer() returns int language sql as 'select {}';"

Tree = Callable[..., Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Writes a folder of migrations and functions."""

    def write(name: str = "sql", *, migrations: list[str], functions: dict[str, str] | None = None) -> Path:
        root = tmp_path / name
        for number, text in enumerate(migrations, start=1):
            path = root / "migrations" / f"{number:04}_step{number}.sql"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for file, text in (functions or {}).items():
            path = root / "functions" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return root

    return write


def ask(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def rows(url: str) -> list[tuple[Any, ...]]:
    return ask(url, "select version, name, checksum, breaking from holdfast.migration order by version")


# --- 1. each migration once --------------------------------------------------------------------------


def test_migrations_run_in_order_and_once(empty_database_url: str, tree: Tree) -> None:
    root = tree(migrations=[TABLE, COLUMN])

    first = migrate(empty_database_url, root=root)
    second = migrate(empty_database_url, root=root)

    assert first == Report(2, ("0001_step1", "0002_step2"), functions_replaced=True)
    assert second == Report(2, (), functions_replaced=False)
    assert not second.changed


def test_a_migration_that_fails_leaves_nothing_and_keeps_those_before(
    empty_database_url: str, tree: Tree
) -> None:
    broken = tree("broken", migrations=[TABLE, COLUMN + "select 1 / 0;"])

    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty_database_url, root=broken)

    assert [row[0] for row in rows(empty_database_url)] == [1]
    mended = tree("mended", migrations=[TABLE, COLUMN])
    assert migrate(empty_database_url, root=mended).applied == ("0002_step2",)


def test_the_callers_search_path_does_not_decide_where_things_go(empty_database_url: str, tree: Tree) -> None:
    url = f"{empty_database_url}?options=-csearch_path%3Dpublic"

    with pytest.raises(psycopg.Error):
        migrate(url, root=tree(migrations=["create table somewhere ();"]))

    assert ask(empty_database_url, "select to_regclass('public.somewhere')") == [(None,)]


@pytest.mark.parametrize(
    ("name", "message"),
    [("0002_gap.sql", "without a gap"), ("first.sql", "no name for a migration"), (None, "without a gap")],
)
def test_names_that_leave_the_order_open_are_refused(tmp_path: Path, name: str | None, message: str) -> None:
    (tmp_path / "migrations").mkdir()
    if name:
        (tmp_path / "migrations" / name).write_text(TABLE)

    with pytest.raises(MigrationError, match=message):
        Sources.read(tmp_path)


# --- 2. functions ----------------------------------------------------------------------------------------


def test_changed_functions_are_replaced_and_unchanged_ones_left(empty_database_url: str, tree: Tree) -> None:
    old = tree("old", migrations=[TABLE], functions={"a.sql": ANSWER.format(41)})
    new = tree("new", migrations=[TABLE], functions={"a.sql": ANSWER.format(42)})
    migrate(empty_database_url, root=old)
    assert ask(empty_database_url, "select holdfast.answer()") == [(41,)]

    assert migrate(empty_database_url, root=new) == Report(1, (), functions_replaced=True)
    assert ask(empty_database_url, "select holdfast.answer()") == [(42,)]
    assert not migrate(empty_database_url, root=new).changed


def test_functions_that_fail_leave_the_old_ones(empty_database_url: str, tree: Tree) -> None:
    old = tree("old", migrations=[TABLE], functions={"a.sql": ANSWER.format(41)})
    bad = tree("bad", migrations=[TABLE], functions={"a.sql": ANSWER.format(42), "b.sql": "select 1 / 0;"})
    migrate(empty_database_url, root=old)

    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty_database_url, root=bad)

    assert ask(empty_database_url, "select holdfast.answer()") == [(41,)]


def test_line_ends_do_not_change_a_checksum(tree: Tree) -> None:
    unix = tree("unix", migrations=["select 1;\nselect 2;\n"])
    other = tree("other", migrations=[""])
    (other / "migrations" / "0001_step1.sql").write_bytes(b"select 1;\r\nselect 2;\r\n")

    assert Sources.read(unix) == Sources.read(other)


# --- 3. at once ----------------------------------------------------------------------------------------


def test_twenty_installations_at_once_into_one_database(empty_database_url: str) -> None:
    with ThreadPoolExecutor(20) as pool:
        reports = list(pool.map(lambda _: migrate(empty_database_url), range(20)))

    known = Sources.read()
    assert {report.version for report in reports} == {known.version}
    assert sum(len(report.applied) for report in reports) == len(known.migrations)
    assert sum(report.functions_replaced for report in reports) == 1


def test_twenty_installations_at_once_into_twenty_databases(server_url: str) -> None:
    with ExitStack() as stack:
        urls = [stack.enter_context(fresh_database(server_url)) for _ in range(20)]
        with ThreadPoolExecutor(20) as pool:
            reports = list(pool.map(migrate, urls))

    assert all(report.changed and report.functions_replaced for report in reports)


# --- 4. edited ---------------------------------------------------------------------------------------------


def test_an_edited_migration_is_refused_and_nothing_is_done(empty_database_url: str, tree: Tree) -> None:
    migrate(empty_database_url, root=tree("old", migrations=[TABLE]))
    before = rows(empty_database_url)
    edited = tree("edited", migrations=[TABLE + " -- as if it had always been so", COLUMN])

    with pytest.raises(MigrationError) as caught:
        migrate(empty_database_url, root=edited)

    assert caught.value.code == "QH503"
    assert "0001_step1 is not the one that this database has" in caught.value.message
    assert caught.value.hint is not None
    assert rows(empty_database_url) == before


# --- 5. newer ----------------------------------------------------------------------------------------------


def test_a_newer_schema_is_left_alone_functions_too(empty_database_url: str, tree: Tree) -> None:
    new = tree("new", migrations=[TABLE, COLUMN], functions={"a.sql": ANSWER.format(42)})
    old = tree("old", migrations=[TABLE], functions={"a.sql": ANSWER.format(41)})
    migrate(empty_database_url, root=new)

    report = migrate(empty_database_url, root=old)

    assert report == Report(2, (), functions_replaced=False, newer=True)
    assert ask(empty_database_url, "select holdfast.answer()") == [(42,)]


def test_a_newer_breaking_schema_is_refused_by_an_older_migrator(empty_database_url: str, tree: Tree) -> None:
    migrate(empty_database_url, root=tree("new", migrations=[TABLE, f"-- breaking\n{COLUMN}", "select 1;"]))

    with pytest.raises(SchemaTooNewError) as caught:
        migrate(empty_database_url, root=tree("old", migrations=[TABLE]))

    assert caught.value.code == "QH501"


@pytest.mark.parametrize("breaking", [False, True])
def test_an_older_client_works_with_a_newer_schema_unless_it_is_breaking(
    database_url: str, breaking: bool
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "insert into holdfast.migration (version, name, checksum, breaking) values (%s, 'later', '', %s)",
            [KNOWN_VERSION + 1, breaking],
        )
        if not breaking:
            check_schema(connection)
            return
        with pytest.raises(SchemaTooNewError, match="QH501"):
            check_schema(connection)


def test_a_client_tells_a_database_without_holdfast(empty_database_url: str) -> None:
    with psycopg.connect(empty_database_url) as connection, pytest.raises(SchemaMissingError, match="QH502"):
        check_schema(connection)


@pytest.mark.parametrize("role", ["admin", "producer", "consumer", "monitor"])
def test_every_role_may_ask_which_schema_it_meets(database_url: str, role: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(f"set role holdfast_{role}".encode())

        check_schema(connection)


def test_the_client_knows_the_newest_migration() -> None:
    assert Sources.read().version == KNOWN_VERSION


# --- 6. the same schema ---------------------------------------------------------------------------------


def test_a_database_that_grew_has_the_schema_of_a_fresh_one(server_url: str, tree: Tree) -> None:
    changing = "drop function holdfast.answer();"
    old = tree("old", migrations=[TABLE], functions={"a.sql": ANSWER.format(41)})
    new = tree(
        "new",
        migrations=[TABLE, COLUMN, changing.replace("function", "function if exists")],
        functions={"a.sql": ANSWER.replace("int", "bigint").format(42)},
    )
    with fresh_database(server_url) as grown, fresh_database(server_url) as fresh:
        migrate(grown, root=old)
        migrate(grown, root=new)
        migrate(fresh, root=new)

        assert schema_dump(grown) == schema_dump(fresh)
        assert rows(grown) == rows(fresh)


def test_functions_applied_again_change_nothing(database_url: str) -> None:
    apply_again(database_url)  # the template may be of yesterday, and lack a day of the archive
    before = schema_dump(database_url)

    apply_again(database_url)

    assert schema_dump(database_url) == before


def apply_again(url: str) -> None:
    """Let the migrator believe that the functions are others, and replace them."""
    with psycopg.connect(url) as connection:
        connection.execute("update holdfast.migration set checksum = 'another' where version = 0")
    assert migrate(url).functions_replaced


# --- 7. plans -------------------------------------------------------------------------------------------


def test_a_plan_is_what_the_migration_then_does(empty_database_url: str, tree: Tree) -> None:
    first = tree("first", migrations=[TABLE], functions={"a.sql": ANSWER.format(41)})
    second = tree("second", migrations=[TABLE, COLUMN], functions={"a.sql": ANSWER.format(41)})

    for root in (first, second, second):
        planned = plan(empty_database_url, root=root)
        assert planned == migrate(empty_database_url, root=root)


def test_a_plan_changes_nothing(empty_database_url: str) -> None:
    before = schema_dump(empty_database_url)

    assert plan(empty_database_url).changed

    assert schema_dump(empty_database_url) == before


def test_a_plan_leaves_a_newer_schema_alone_and_refuses_what_does_not_fit(
    empty_database_url: str, tree: Tree
) -> None:
    migrate(empty_database_url, root=tree("new", migrations=[TABLE, COLUMN]))
    older = tree("older", migrations=[TABLE])
    edited = tree("edited", migrations=[TABLE + " -- edited", COLUMN])

    assert plan(empty_database_url, root=older) == Report(2, (), functions_replaced=False, newer=True)
    with pytest.raises(MigrationError, match="QH503"):
        plan(empty_database_url, root=edited)


# --- 8. refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
@pytest.mark.parametrize("action", [migrate, plan])
def test_an_encoding_other_than_utf8_is_refused(
    server_url: str, encoding: str, action: Callable[[str], Report]
) -> None:
    with fresh_database(server_url, encoding=encoding) as url:
        with pytest.raises(MigrationError) as caught:
            action(url)

        assert ask(url, "select to_regnamespace('holdfast') is null") == [(True,)]

    assert caught.value.code == "QH503"
    assert caught.value.message == "Holdfast needs a database with the encoding UTF8"
    assert caught.value.detail == f"This one has {encoding}."
    assert "template0" in (caught.value.hint or "")


def test_a_user_who_may_not_install_is_told_what_it_takes(server_url: str, empty_database_url: str) -> None:
    user = sql.Identifier("test_migrate")
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {} login password 'secret'").format(user))
        try:
            with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
                migrate(conninfo.make_conninfo(empty_database_url, user="test_migrate", password="secret"))
        finally:
            admin.execute(sql.SQL("drop role {}").format(user))

    assert caught.value.__notes__ == [f"Hint: {RIGHTS_NEEDED}"]
