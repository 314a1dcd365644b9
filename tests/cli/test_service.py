"""holdfast service: services are added, listed and removed, and their queues asked for.

1. A service is checked by connecting, unless told otherwise; its password is shown and stored nowhere.
2. One with queues is removed only if they are to be forgotten.
3. Queues are asked for, listed, tried again and removed.
4. What a command cannot do it says before it does anything else, in its own words.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.vault import Vault
from tests.cli.conftest import Run

KEY = b64encode(b"k" * 32).decode()


@pytest.fixture(autouse=True)
def secret_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that secrets are sealed with."""
    monkeypatch.setenv("HOLDFAST_SECRET_KEY", KEY)


def test_a_service_is_added_from_stdin_and_listed_without_its_password(
    run: Run, conn: psycopg.Connection[Any], database_url: str
) -> None:
    password = str(psycopg.conninfo.conninfo_to_dict(database_url)["password"])

    added = run("service", "add", "shop", stdin=f"{database_url}\n")
    listed = run("service", "list", "--json")

    assert added.code == 0, added.err
    assert [service["name"] for service in listed.lines] == ["local", "shop"]
    assert listed.lines[1]["address"] == database_url.replace(f":{password}@", "@")
    ((sealed, row),) = conn.execute(
        "select sealed, to_jsonb(s)::text from holdfast.service s where name = 'shop'"
    ).fetchall()
    assert Vault(KEY).open(sealed, "service:shop") == database_url
    assert password not in added.out + added.err + listed.out + row


def test_a_service_that_nobody_can_connect_to_is_refused_and_stored_on_demand(run: Run) -> None:
    url = "postgresql://me:hunter22@127.0.0.1:1/shop"

    refused = run("service", "add", "shop", url)
    assert [s["name"] for s in run("service", "list", "--json").lines] == ["local"]
    taken = run("service", "add", "shop", url, "--unchecked")

    assert (refused.code, taken.code) == (1, 0)
    assert "QH853" in refused.err
    assert "hunter22" not in refused.out + refused.err + taken.out + taken.err


@pytest.mark.parametrize("url", ["nonsense hunter22", "postgresql:///hunter22", "service=hunter22", ""])
def test_what_is_no_address_is_refused_and_not_shown(run: Run, url: str) -> None:
    refused = run("service", "add", "shop", "-", stdin=f"{url}\n")

    assert (refused.code, "QH850" in refused.err) == (1, True)
    assert "hunter22" not in refused.err


def test_without_a_key_nothing_is_stored(
    run: Run, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_SECRET_KEY")

    refused = run("service", "add", "shop", database_url)

    assert (refused.code, "QH840" in refused.err) == (1, True)
    assert "openssl rand -base64 32" in refused.err


def test_a_service_with_queues_is_removed_only_if_they_are_forgotten(run: Run, database_url: str) -> None:
    run("service", "add", "shop", database_url)
    run("service", "create", "shop", "orders")

    refused = run("service", "remove", "shop")
    removed = run("service", "remove", "shop", "--forget", "--yes")
    again = run("service", "remove", "shop", "--json")
    unasked = run("service", "remove", "shop", "--forget")

    assert (refused.code, "QH852" in refused.err) == (1, True)
    assert (removed.code, removed.out) == (0, "Removed shop.\n")
    assert again.document == {"service": "shop", "removed": False}
    assert (unasked.code, unasked.out, unasked.err) == (0, "There is no service shop.\n", "")
    assert "holdfast service remove shop --forget removes" in refused.err


def test_queues_are_asked_for_listed_tried_again_and_removed(run: Run, conn: psycopg.Connection[Any]) -> None:
    asked = run("service", "create", "local", "orders", "--visibility-timeout", "60", "--no-dlq", "--json")
    early = run("service", "retry", "local", "orders")
    conn.execute("update holdfast.service_queue set status = 'Failed', error_message = 'it is full'")
    listed = run("service", "queues", "local", "--json")
    retried = run("service", "retry", "local", "orders")
    deleted = run("service", "delete", "local", "orders", "--yes")

    told = {name: asked.document[name] for name in ("status", "visibility_timeout_seconds", "dlq_enabled")}
    assert told == {"status": "Pending", "visibility_timeout_seconds": 60, "dlq_enabled": False}
    assert (early.code, "QH865" in early.err) == (1, True)
    assert [(queue["status"], queue["error_message"]) for queue in listed.lines] == [("Failed", "it is full")]
    assert retried.out == "orders on local is Pending.\n"
    assert deleted.out == "orders on local is Deprovisioning.\n"


@pytest.mark.parametrize("name", ["Shop", "local", "-shop", "a" * 64, "0" * 8 + "-0000" * 3 + "-" + "0" * 12])
def test_a_bad_name_is_refused_before_anything_is_connected_to(run: Run, name: str) -> None:
    refused = run("service", "add", "--", name, "postgresql://me:hunter22@127.0.0.1:1/shop")

    assert (refused.code, "QH850" in refused.err) == (1, True)
    assert "a service cannot have this name" in refused.err


def test_no_url_is_told_apart_from_a_bad_one(run: Run) -> None:
    assert "no URL came [QH850]" in run("service", "add", "shop", stdin="").err


def test_what_a_server_asks_back_ends_with_one_mark(run: Run) -> None:
    refused = run("service", "add", "shop", "postgresql://me@127.0.0.1:1/shop")

    assert "TCP/IP connections? Nothing was stored." in refused.err


@pytest.mark.parametrize(
    "option", ["--visibility-timeout=0", "--visibility-timeout=43201", "--max-attempts=101"]
)
def test_a_number_out_of_range_is_a_matter_of_usage(run: Run, option: str) -> None:
    assert run("service", "create", "local", "orders", option).code == 2
    assert run("service", "queues", "local", "--json").lines == []


def test_a_new_key_beside_secrets_of_another_is_told(
    run: Run, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_SECRET_KEY")
    # As beside the embedded server, but the server of the tests.
    monkeypatch.setattr("holdfast.cli.service.key_folder", lambda _: tmp_path)
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", database_url)

    def add(name: str) -> str:
        done = CliRunner().invoke(app, ["service", "add", name, "-"], input=f"{database_url}\n")
        assert done.exit_code == 0, done.stderr
        return " ".join(done.stderr.split())

    first = add("elder")
    (tmp_path / "secret_key").unlink()
    told = add("shop")

    assert (first, add("third")) == ("", "")
    assert "sealed with another one: elder." in told
    assert "secret_key" in told


def test_what_failed_says_whether_it_was_to_be_made_or_removed(
    run: Run, conn: psycopg.Connection[Any]
) -> None:
    def fail() -> Any:
        ((id, attempt),) = conn.execute("select id, attempt from holdfast.take_tasks('test')").fetchall()
        conn.execute("select holdfast.end_task(%s, %s, error => 'it is full')", [id, attempt])
        (queue,) = run("service", "queues", "local", "--json").lines
        return queue["status"], queue["error_message"]

    run("service", "create", "local", "orders")
    made = fail()
    other = run("service", "create", "local", "orders", "--database", "other").err
    run("service", "delete", "local", "orders", "--yes")
    leaving = run("service", "create", "local", "orders").err
    removed = fail()
    again = run("service", "create", "local", "orders").err

    assert (made, removed) == (
        ("Failed", "could not be made: it is full"),
        ("Failed", "could not be removed: it is full"),
    )
    assert "in the same database" in other
    assert "Hint: It is being removed" in leaving
    assert "Hint: Its removal has failed" in again


def test_a_hint_names_the_command(run: Run) -> None:
    refused = run("service", "retry", "nowhere", "orders")

    assert (refused.code, "QH851" in refused.err) == (1, True)
    assert "holdfast service list" in refused.err
