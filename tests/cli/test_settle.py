"""ack, nack, release, extend: what they settle, what they skip, and how they end.

1. Each does to messages what the verb of its name does.
2. What the token does not hold is reported; if nothing was settled, the exit code is 5.
3. What is no token is wrong usage, so that a claim of nothing cannot lead to an ack of something.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Run

START = datetime.fromisoformat("2030-01-01T00:00:00+00:00")
VERBS = ["ack", "nack", "release", "extend"]


@pytest.fixture
def claimed(run: Run, conn: psycopg.Connection[Any]) -> tuple[str, list[str]]:
    """Three messages in the queue orders, claimed for a minute: the token and the ids."""
    conn.execute("select holdfast.set_clock(%s)", [START])
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("select holdfast.send_batch('orders', array['1', '2', '3']::jsonb[])")
    deliveries = run("claim", "orders", "-n", "3", "--lease", "1 min", "--json").lines
    return deliveries[0]["token"], [delivery["id"] for delivery in deliveries]


# --- 1. what they do -----------------------------------------------------------------------------


def test_release_gives_messages_back_without_counting(run: Run, claimed: tuple[str, list[str]]) -> None:
    token, ids = claimed

    one = run("release", "orders", token, ids[0], "--json")
    rest = run("release", "orders", token)

    assert (one.code, one.document) == (0, {"settled": [ids[0]], "skipped": []})
    assert (rest.code, rest.out) == (0, "Released 2.\n")
    again = run("claim", "orders", "-n", "3", "--json").lines
    assert [delivery["deliveries"] for delivery in again] == [1, 1, 1]


def test_extend_holds_messages_longer(
    run: Run, claimed: tuple[str, list[str]], conn: psycopg.Connection[Any]
) -> None:
    token, ids = claimed

    some = run("extend", "orders", token, ids[0], "--lease", "1h30m", "--json")
    rest = run("extend", "orders", token, *ids[1:], "--strict")

    assert (some.code, some.document) == (0, {"settled": [ids[0]], "skipped": []})
    assert (rest.code, rest.out) == (0, "Extended 2.\n")
    held = conn.execute("select id, deadline from holdfast.held('orders', %s) order by 1", [token]).fetchall()
    assert [(str(id), (deadline - START).total_seconds()) for id, deadline in held] == [
        (ids[0], 5400),
        (ids[1], 30),
        (ids[2], 30),
    ]


# --- 2. what is not held -------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_a_token_that_holds_nothing_exits_with_5(run: Run, claimed: tuple[str, list[str]], verb: str) -> None:
    _, ids = claimed

    everything = run(verb, "orders", "4711")
    one = run(verb, "orders", "4711", ids[0], "--json")

    assert (everything.code, everything.out) == (5, f"{verb.capitalize().rstrip('e')}ed 0.\n")
    assert "The token holds nothing of this" in everything.err
    assert (one.code, one.document, one.err) == (5, {"settled": [], "skipped": [ids[0]]}, "")
    assert run("stats", "orders", "--json").document["in_flight"] == 3


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_skipped_beside_what_is_settled_is_named(
    run: Run, claimed: tuple[str, list[str]], verb: str
) -> None:
    token, ids = claimed

    answer = run(verb, "orders", token, ids[0], "1")

    assert (answer.code, answer.out) == (0, f"{verb.capitalize().rstrip('e')}ed 1.\n")
    assert answer.err == "Skipped 1, which the token does not hold: 1\n"


@pytest.mark.parametrize("verb", VERBS)
def test_strict_refuses_and_exits_with_1(run: Run, claimed: tuple[str, list[str]], verb: str) -> None:
    token, ids = claimed

    answer = run(verb, "orders", token, ids[0], "1", "--strict")

    assert (answer.code, answer.out) == (1, "")
    assert "QH304" in answer.err
    assert run("stats", "orders", "--json").document["in_flight"] == 3


# --- 3. no token -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "token"),
    [*((verb, "null") for verb in VERBS), ("ack", ""), ("ack", "-1"), ("ack", "9223372036854775808")],
)
def test_what_is_no_token_is_wrong_usage(run: Run, verb: str, token: str) -> None:
    answer = run(verb, "orders", "--json", "--", token)

    assert (answer.code, answer.out) == (2, "")
    assert f"'{token}' is not a token" in answer.err


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_token_is_wrong_usage(run: Run, verb: str) -> None:
    assert run(verb, "orders").code == 2
