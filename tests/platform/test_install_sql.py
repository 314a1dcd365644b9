"""install.sql: with psql alone, the same as the migrator; where it is installed, nothing or a refusal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psycopg
import pytest

from holdfast.migrate import Sources, migrate
from tests.fix_database import fresh_database
from tests.platform.schema_dump import program, schema_dump
from tools.build_install import build, main

RECORDS = "select version, name, checksum, breaking from holdfast.migration order by version"


def run_psql(url: str, script: Path) -> subprocess.CompletedProcess[str]:
    command = [program("psql"), "--no-psqlrc", "--dbname", url, "--file", str(script)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def records(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(RECORDS).fetchall()


def written(folder: Path) -> Path:
    """The script that the present sources make."""
    path = folder / "install.sql"
    path.write_text(build(Sources.read()))
    return path


def test_psql_makes_the_schema_that_the_migrator_makes(server_url: str, tmp_path: Path) -> None:
    with fresh_database(server_url) as by_psql, fresh_database(server_url) as by_migrator:
        answer = run_psql(by_psql, written(tmp_path))
        migrate(by_migrator)

        assert (answer.returncode, answer.stderr) == (0, "")
        assert answer.stdout == f"Holdfast is installed, schema version {Sources.read().version}.\n"
        assert schema_dump(by_psql) == schema_dump(by_migrator)
        assert records(by_psql) == records(by_migrator)
        assert not migrate(by_psql).changed


def test_a_second_installation_does_nothing(empty_database_url: str, tmp_path: Path) -> None:
    script = written(tmp_path)
    run_psql(empty_database_url, script)
    before = schema_dump(empty_database_url)

    answer = run_psql(empty_database_url, script)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert "nothing to do" in answer.stdout
    assert schema_dump(empty_database_url) == before


@pytest.mark.parametrize("before", ["off", "on"])
def test_a_session_that_includes_the_script_keeps_its_settings(
    empty_database_url: str, tmp_path: Path, before: str
) -> None:
    session = tmp_path / "session.sql"
    session.write_text(
        f"\\set ON_ERROR_STOP {before}\n\\set QUIET {before}\n\\i {written(tmp_path)}\n"
        "\\echo :ON_ERROR_STOP :QUIET :{?holdfast_stop} :{?holdfast_quiet} :{?holdfast_absent}\n"
    )

    answer = run_psql(empty_database_url, session)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == f"{before} {before} FALSE FALSE FALSE"


def test_another_version_is_refused(database_url: str, tmp_path: Path) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("update holdfast.migration set checksum = 'another' where version = 0")

    answer = run_psql(database_url, written(tmp_path))

    assert answer.returncode != 0
    assert "another version of Holdfast is installed" in answer.stderr
    assert "holdfast migrate" in answer.stderr


def test_an_error_leaves_nothing_behind(empty_database_url: str, tmp_path: Path) -> None:
    script = written(tmp_path)
    # The error stands where the functions' row is written, after everything else.
    text = script.read_text()
    script.write_text(text.replace("values (0, 'functions'", "values (1 / 0, 'functions'"))

    answer = run_psql(empty_database_url, script)

    assert "division by zero" in answer.stderr
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute("select to_regnamespace('holdfast')").fetchone() == (None,)


def test_the_check_fails_on_drift_and_passes_after_writing(tmp_path: Path) -> None:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001_one.sql").write_text("select 1;\n")

    assert main(["--root", str(tmp_path), "--check"]) == 1
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--root", str(tmp_path), "--check"]) == 0


def test_a_database_with_another_encoding_is_refused(server_url: str, tmp_path: Path) -> None:
    with fresh_database(server_url, encoding="SQL_ASCII") as url:
        answer = run_psql(url, written(tmp_path))

        with psycopg.connect(url) as connection:
            left = connection.execute("select to_regnamespace('holdfast') is null").fetchone()

    assert answer.returncode != 0
    assert "Holdfast needs a database with the encoding UTF8" in answer.stderr
    assert left == (True,)
