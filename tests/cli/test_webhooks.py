"""holdfast endpoint, event, publish, reject: what they make, show and end.

1. An endpoint is made, changed, shown, switched and dropped; fields with a dot are those of an object.
2. Secrets come from files and stdin, and are stored sealed by the key that is there; a new one goes to
   stdout alone.
3. Attempts, health and events are listed.
4. Events reach those who subscribe.
5. What cannot be is refused, by usage (2) or by the engine (1).
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.vault import KEY_VARIABLE, Vault
from tests.cli.conftest import Run

URL = "https://example.com/hooks"
KEY = b64encode(b"k" * 32).decode()

Conn = psycopg.Connection[Any]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that secrets are sealed with."""
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def opened(conn: Conn, endpoint: str) -> tuple[list[str], Any]:
    """The secrets of an endpoint, in clear."""
    ((secrets, auth),) = conn.execute(
        "select secrets, auth from holdfast.dispatch_endpoints(array[%s])", [endpoint]
    ).fetchall()
    vault, purpose = Vault(KEY), f"webhook:{endpoint}"
    return [vault.open(each, purpose) for each in secrets], auth and vault.open(auth["token"], purpose)


def test_an_endpoint_is_made_changed_shown_and_dropped(run: Run) -> None:
    created = [run("endpoint", "create", "shop", URL, "timeout=20s", "retry.base=5s") for _ in range(2)]
    changed = run("endpoint", "set", "shop", "retry.base=null", "rate_limit=5", "--json").document
    listed = run("endpoint", "list", "--json").lines
    off = run("endpoint", "disable", "shop", "--reason", "moving house").out
    shown = run("endpoint", "show", "shop", "--json").document
    on = run("endpoint", "enable", "shop").out
    happened = run("endpoint", "events", "shop", "--json").lines
    dropped = [run("endpoint", "drop", "shop", "--with-queue", "--yes").out for _ in range(2)]

    assert [answer.out for answer in created] == [
        "Created endpoint shop.\n",
        "Endpoint shop was there already.\n",
    ]
    assert (changed["timeout"], changed["retry"]["base"], changed["rate_limit"]) == (20, 10, 5)
    assert [(row["endpoint"], row["queue"], row["url"]) for row in listed] == [("shop", "shop", URL)]
    assert (off, on) == ("Disabled endpoint shop.\n", "Enabled endpoint shop.\n")
    assert (shown["disabled_reason"], shown["breaker"], shown["pending"]) == ("moving house", "closed", 0)
    assert [row["event"] for row in happened] == ["enabled", "disabled"]
    assert dropped == ["Dropped endpoint shop.\n", "There was no endpoint shop.\n"]
    assert run("queue", "list", "--json").lines == []


def test_secrets_come_from_files_and_stdin_and_are_sealed(run: Run, conn: Conn, tmp_path: Path) -> None:
    secret = "whsec_" + b64encode(b"s" * 32).decode()
    (tmp_path / "secret").write_text(secret + "\n")

    made = run(
        "endpoint",
        "create",
        "shop",
        URL,
        "--config",
        "-",
        stdin='{"auth": {"type": "bearer", "token": "tk-1"}}',
    )
    taken = run("endpoint", "rotate", "shop", "--secret", str(tmp_path / "secret"))
    fresh = run("endpoint", "rotate", "shop", "--overlap", "2h")
    secrets, token = opened(conn, "shop")
    shown = run("endpoint", "show", "shop", "--json").out

    assert (made.code, token) == (0, "tk-1")
    assert taken.out == secret + "\n"
    assert secrets == [fresh.out.strip(), secret]
    assert "Keep the one above" in fresh.err
    assert fresh.out.strip() not in fresh.err
    assert all(each not in shown for each in (*secrets, "tk-1"))


def test_attempts_and_health_are_listed(run: Run, conn: Conn) -> None:
    run("endpoint", "create", "shop", URL, "breaker.threshold=1")
    attempts = [
        {"message": 7, "outcome": "done", "status": 204, "latency": 0.5},
        {"message": 8, "outcome": "retry", "status": 503, "error": "busy"},
    ]
    conn.execute("select holdfast.record_attempts('shop', %s)", [Jsonb(attempts)])

    failed = run("endpoint", "attempts", "shop", "--outcome", "retry", "--json").lines
    of_one = run("endpoint", "attempts", "shop", "--message", "7", "--json").lines
    health = run("endpoint", "health", "--json").document
    reset = [run("endpoint", "reset", "shop").out for _ in range(2)]

    assert [(row["id"], row["status"], row["error"]) for row in failed] == [("8", 503, "busy")]
    assert [(row["id"], row["outcome"], row["latency"]) for row in of_one] == [("7", "done", 0.5)]
    assert (health["breaker"], health["attempts"], health["success_rate"]) == ("open", 2, 0.5)
    assert reset == ["Closed the breaker of shop.\n", "The breaker of shop was closed.\n"]


def test_events_reach_those_who_subscribe(run: Run) -> None:
    run("endpoint", "create", "shop", URL)
    made = run("event", "create", "paid", "--description", "Money has come in", "--schema", "true").out
    number = run("event", "subscribe", "paid", "shop", "--filter", '{"n": 1}', "--json").document["id"]

    sent = run("publish", "paid", '{"n": 1}', "--tag", "eu", "--json").document
    nobody = run("publish", "paid", '{"n": 2}')
    types = run("event", "list", "--json").document
    told = run("event", "subscriptions", "paid", "--endpoint", "shop", "--json").document
    ended = [run("event", "unsubscribe", number).out for _ in range(2)]
    dropped = run("event", "drop", "paid", "--yes").out
    (message,) = run("peek", "shop", "--json").lines

    assert made == "Created event type paid.\n"
    assert (sent["endpoint"], sent["queue"]) == ("shop", "shop")
    assert (nobody.code, nobody.out) == (0, "")
    assert "Nobody gets this paid" in nobody.err
    assert (types["name"], types["subscriptions"], types["schema"]) == ("paid", 1, True)
    assert (told["id"], told["filter"]) == (number, {"n": 1})
    assert ended == [f"Ended subscription {number}.\n", f"There was no subscription {number}.\n"]
    assert dropped == "Dropped event type paid.\n"
    assert (message["id"], message["tag"], message["payload"]) == (sent["id"], "eu", {"n": 1})


def test_a_rejected_message_is_dead(run: Run) -> None:
    run("queue", "create", "orders")
    run("send", "orders", "1")
    token = run("claim", "orders", "--json").document["token"]

    rejected = [run("reject", "orders", token, "--error", "no such customer") for _ in range(2)]
    (letter,) = run("dead", "list", "orders", "--json").lines

    assert [(answer.code, answer.out) for answer in rejected] == [(0, "Rejected 1.\n"), (5, "Rejected 0.\n")]
    assert letter["last_error"] == "no such customer"


@pytest.mark.parametrize(
    ("code", "said", "words"),
    [
        (1, "QH873", ["endpoint", "create", "shop", "http://127.0.0.1/"]),
        (1, "QH872", ["endpoint", "create", "shop", URL, "speed=1"]),
        (1, "QH870", ["endpoint", "enable", "none"]),
        (1, "QH876", ["publish", "none", "1"]),
        (2, "JSON object", ["endpoint", "create", "shop", URL, "--config", "-"]),
        (2, "can't read", ["endpoint", "rotate", "shop", "--secret", "none"]),
        (2, "number of a subscription", ["event", "unsubscribe", "x"]),
    ],
)
def test_what_cannot_be_is_refused(run: Run, code: int, said: str, words: list[str]) -> None:
    answer = run(*words, stdin="[1]")

    assert answer.code == code
    assert said in " ".join(answer.err.split())
