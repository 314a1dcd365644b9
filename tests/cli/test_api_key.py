"""holdfast key: what it makes, shows and ends.

1. A secret goes to stdout alone and is never shown again; nobody but its hash is stored.
2. Keys are listed while they are valid, and all of them on demand.
3. A key is rotated and revoked by its id.
4. What cannot be is refused, by usage (2) or by the engine (1).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import NOWHERE, Run, environment, execute

START = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A clock that stands at START."""
    conn.execute("select holdfast.set_clock(%s)", [START])
    return conn


# --- 1. the secret ---------------------------------------------------------------------------------


def test_the_secret_is_all_that_goes_to_stdout(run: Run, conn: psycopg.Connection[Any]) -> None:
    made = run("key", "create", "shop", "--scope", "send")

    secret = made.out.removesuffix("\n")
    assert (made.code, len(secret), secret[:3]) == (0, 46, "hf_")
    assert "Created key 1, shop. Keep the secret above" in made.err
    assert secret not in made.err
    assert conn.execute("select prefix, hash from holdfast.api_key").fetchall() == [
        (secret[:11], sha256(secret.encode()).digest())
    ]


def test_a_new_key_for_machines_is_one_document(run: Run) -> None:
    made = run("key", "create", "shop", "--scope", "send", "--json")

    assert (made.code, made.err) == (0, "")
    assert sorted(made.document) == ["id", "key", "prefix"]
    assert made.document["id"] == "1"
    assert made.document["key"].startswith(made.document["prefix"])


def test_the_first_key_says_that_it_closes_the_server(run: Run) -> None:
    first = run("key", "create", "shop", "--scope", "send")
    second = run("key", "create", "shop", "--scope", "send")

    assert "every request to the HTTP server needs a key" in first.err
    assert "every request" not in second.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--scope", "admin"), []),
        (("--scope", "send"), ["no admin of all queues"]),
        (("--scope", "admin", "--queue", "orders*"), ["no admin of all queues"]),
        (("--scope", "admin", "--expires-in", "1h"), ["stays closed when it has expired"]),
    ],
)
def test_a_first_key_that_may_lock_its_maker_out_says_so(
    run: Run, words: tuple[str, ...], told: list[str]
) -> None:
    first = run("key", "create", "shop", *words)
    second = run("key", "create", "shop", *words)

    careful = [line for line in first.err.splitlines() if line.startswith("Careful: ")]
    assert len(careful) == len(told)
    assert all(part in line for part, line in zip(told, careful, strict=True))
    assert "Careful" not in second.err


# --- 2. the list -----------------------------------------------------------------------------------


def test_a_key_is_listed_with_what_it_may_do_and_without_its_secret(
    run: Run, clock: psycopg.Connection[Any]
) -> None:
    words = ("--scope", "consume", "--scope", "send", "--queue", "orders*", "--queue", "bills")
    limits = ("--expires-in", "90d", "--rate", "2.5", "--burst", "10")
    made = run("key", "create", "shop", *words, *limits, "--json").document

    listed = run("key", "list", "--json").document

    assert listed == {
        "id": "1",
        "name": "shop",
        "prefix": made["prefix"],
        "scopes": ["send", "consume"],
        "queues": ["bills", "orders*"],
        "rate": 2.5,
        "burst": 10,
        "created_at": START.isoformat(),
        "expires_at": (START + timedelta(days=90)).isoformat(),
        "last_used_at": None,
        "revoked_at": None,
        "state": "valid",
    }
    for_people = run("key", "list")
    assert made["key"] not in for_people.out
    assert made["prefix"] in for_people.out


def test_keys_that_have_ended_are_listed_on_demand(run: Run, clock: psycopg.Connection[Any]) -> None:
    run("key", "create", "stays", "--scope", "read")
    run("key", "create", "ends", "--scope", "read", "--expires-in", "1h")
    run("key", "create", "revoked", "--scope", "read")
    run("key", "revoke", "3")
    clock.execute("select holdfast.set_clock(%s)", [START + timedelta(hours=1)])

    valid = run("key", "list", "--json").lines
    every = run("key", "list", "--all", "--json").lines

    assert [key["name"] for key in valid] == ["stays"]
    assert [(key["name"], key["state"]) for key in every] == [
        ("stays", "valid"),
        ("ends", "expired"),
        ("revoked", "revoked"),
    ]


def test_no_keys_are_told_on_stderr(run: Run) -> None:
    answer = run("key", "list")

    assert (answer.code, answer.out, answer.err) == (0, "", "There are no keys.\n")


def test_keys_that_have_all_ended_are_not_none(run: Run, clock: psycopg.Connection[Any]) -> None:
    run("key", "create", "first", "--scope", "send", "--expires-in", "2s")
    clock.execute("select holdfast.set_clock(%s)", [START + timedelta(hours=1)])

    answer = run("key", "list")

    assert (answer.code, answer.out) == (0, "")
    assert answer.err.startswith("No key is valid; --all shows 1 expired. The server stays closed. ")


# --- 3. changing and ending ------------------------------------------------------------------------


def test_a_rotated_key_has_another_secret_and_the_old_one_its_grace(
    run: Run, clock: psycopg.Connection[Any]
) -> None:
    old = run("key", "create", "shop", "--scope", "send").out.strip()

    rotated = run("key", "rotate", "1", "--grace", "1h")

    new = rotated.out.strip()
    assert (rotated.code, "Key 1 has another secret." in rotated.err) == (0, True)
    assert new.startswith("hf_")
    assert new != old
    found = "select count(*) from unnest(%s::bytea[]) h, holdfast.find_key(h)"
    hashes = [sha256(secret.encode()).digest() for secret in (old, new)]
    assert clock.execute(found, [hashes]).fetchone() == (2,)
    clock.execute("select holdfast.set_clock(%s)", [START + timedelta(hours=1)])
    assert clock.execute(found, [hashes]).fetchone() == (1,)


def test_a_key_is_revoked_once(run: Run) -> None:
    run("key", "create", "shop", "--scope", "send")

    first = run("key", "revoke", "1", "--json")
    second = run("key", "revoke", "1")

    assert (first.code, first.document) == (0, {"id": "1", "revoked": True})
    assert (second.code, second.out) == (0, "Key 1 was revoked before.\n")


# --- 4. refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("create", "shop"),
        ("create", "shop", "--scope", "delete"),
        ("create", "shop", "--scope", "send", "--expires-in", "soon"),
        ("create", "shop", "--scope", "send", "--rate", "fast"),
        ("rotate", "hf_abc"),
        ("revoke",),
    ],
)
def test_wrong_usage_is_told_before_anything_is_connected(words: tuple[str, ...]) -> None:
    assert execute("key", *words, env=environment(NOWHERE)).code == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("create", "shop", "--scope", "send", "--queue", "orders?"), "QH901"),
        (("create", "shop", "--scope", "send", "--burst", "5"), "QH901"),
        (("create", "shop", "--scope", "send", "--rate", "0"), "QH701"),
        (("rotate", "9"), "QH902"),
        (("revoke", "9"), "QH902"),
    ],
)
def test_what_the_engine_refuses_exits_with_1(
    run: Run, conn: psycopg.Connection[Any], words: tuple[str, ...], code: str
) -> None:
    answer = run("key", *words)

    assert (answer.code, answer.out) == (1, "")
    assert code in answer.err
    assert conn.execute("select count(*) from holdfast.api_key").fetchone() == (0,)


def test_a_hint_names_the_command_that_lists_keys(run: Run) -> None:
    assert "Hint: holdfast key list lists them." in run("key", "revoke", "9").err
