"""holdfast service: services are added, listed and removed, and their queues asked for.

1. A service is checked by connecting, unless told otherwise; its password is shown and stored nowhere.
2. One with queues is removed only if they are to be forgotten.
3. Queues are asked for, listed, tried again and removed.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import psycopg
import pytest

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

    assert (refused.code, "QH852" in refused.err) == (1, True)
    assert (removed.code, removed.out) == (0, "Removed shop.\n")
    assert again.document == {"service": "shop", "removed": False}


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


def test_a_hint_names_the_command(run: Run) -> None:
    refused = run("service", "retry", "nowhere", "orders")

    assert (refused.code, "QH851" in refused.err) == (1, True)
    assert "holdfast service list" in refused.err
