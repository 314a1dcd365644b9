"""holdfast psql, pg_dump, pg_restore: the program that fits, connected, and nothing in between."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast._programs import find_programs
from holdfast.cli.postgres import find_program, variables
from holdfast.embedded import EmbeddedError
from tests.cli.conftest import PATIENCE, Run, environment, execute, started
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
SESSIONS = "select from pg_stat_activity where datname = current_database() and application_name = 'psql'"


def test_psql_is_connected_and_its_exit_code_is_ours(run: Run, conn: Conn) -> None:
    works = run("psql", "-At", "-c", "select current_database(), 1 + 1")
    fails = run("psql", "-c", "select 1/0")
    on_error = run("psql", "-v", "ON_ERROR_STOP=1", stdin="select 1/0;")
    wrong = run("psql", "--nonsense")

    assert (works.code, works.out) == (0, f"{conn.info.dbname}|2\n")
    assert (fails.code, on_error.code) == (1, 3)
    assert "division by zero" in fails.err
    assert "unrecognized option" in wrong.err


def test_no_password_is_among_the_words_of_the_program(run: Run, database_url: str) -> None:
    password = str(conninfo_to_dict(database_url)["password"])

    words = run("psql", "-c", r"\! cat /proc/$PPID/cmdline").out

    assert "psql\0-c\0" in words
    assert password not in words


def test_an_address_becomes_the_variables_of_libpq() -> None:
    assert variables("postgresql://u:ge%20heim@h1:1,h2:2/d?sslmode=require&keepalives=0") == {
        "PGHOST": "h1,h2",
        "PGPORT": "1,2",
        "PGUSER": "u",
        "PGPASSWORD": "ge heim",
        "PGDATABASE": "d",
        "PGSSLMODE": "require",
    }


def test_a_dump_is_restored_into_another_database(
    run: Run, conn: Conn, empty_database_url: str, tmp_path: Path
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("select holdfast.send('orders', '1')")
    dump = str(tmp_path / "dump")

    dumped = run("pg_dump", "--schema=holdfast", "--format=custom", f"--file={dump}")
    name = conninfo_to_dict(empty_database_url)["dbname"]
    restored = run("pg_restore", f"--dbname={name}", dump)
    first = execute("claim", "orders", "--json", env=environment(empty_database_url))
    second = execute("claim", "orders", "--json", env=environment(empty_database_url))

    assert (dumped.code, dumped.err) == (0, "")
    assert (restored.code, restored.err) == (0, "")
    assert first.code == 4
    assert second.document["payload"] == 1


def test_ctrl_c_cancels_what_psql_does(database_url: str, conn: Conn) -> None:
    def asleep() -> bool:
        return conn.execute(f"{SESSIONS} and query like 'select pg_sleep%'").fetchone() is not None

    with started("psql", "-c", "select pg_sleep(600)", database_url=database_url) as process:
        eventually(asleep, what="psql waits for its answer", timeout=PATIENCE)
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out) == (1, "")
    assert "canceling statement due to user request" in err
    assert "Interrupted" not in err


def test_sigterm_ends_the_program_too(database_url: str, conn: Conn) -> None:
    def connected() -> bool:
        return conn.execute(SESSIONS).fetchone() is not None

    with started("psql", "-c", "select pg_sleep(600)", database_url=database_url) as process:
        eventually(connected, what="psql is connected", timeout=PATIENCE)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)

    assert process.returncode == 128 + signal.SIGTERM


def test_the_programs_of_the_embedded_server_go_before_those_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "psql"
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    ours = find_program("psql"), find_programs()["psql"]
    monkeypatch.setenv("HOLDFAST_PG_BIN", str(tmp_path / "nowhere"))

    assert ours[0] == ours[1] != other
    assert find_program("psql") == other
    with pytest.raises(EmbeddedError, match="nowhere is not a PostgreSQL installation"):
        find_program("pg_dump")
