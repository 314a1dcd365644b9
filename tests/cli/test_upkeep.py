"""why, stats --history and maintain --every, as people run them."""

from __future__ import annotations

import json
import signal
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import PATIENCE, Run, started

Conn = psycopg.Connection[Any]


@pytest.fixture
def orders(conn: Conn) -> Conn:
    """A database with a queue `orders` that has one message."""
    conn.execute("select holdfast.create_queue('orders')")
    conn.execute("select holdfast.send('orders', '1')")
    return conn


def test_why_says_what_stands_in_the_way_and_what_to_do(run: Run, orders: Conn) -> None:
    healthy = run("why", "orders")
    orders.execute("select holdfast.pause_queue('orders')")

    paused = run("why", "orders")
    document = run("why", "orders", "--json").document

    assert healthy.out.startswith("ok: Nothing is in the way")
    assert paused.out == (
        "blocking: The queue is paused: claims get nothing. [paused]\n"
        "    Resume it: holdfast queue resume orders.\n"
    )
    assert (document["finding"], document["severity"], document["details"]) == (
        "paused",
        "blocking",
        {"ready": 1},
    )


def test_why_of_dead_letters_names_the_commands_that_show_and_end_them(run: Run, orders: Conn) -> None:
    orders.execute("""select holdfast.configure_queue('orders', '{"max_deliveries": 1}')""")
    orders.execute("select holdfast.nack('orders', token) from holdfast.claim('orders')")

    findings = {each["finding"]: each["remedy"] for each in run("why", "orders", "--json").lines}

    assert findings["dead"] == (
        "Look at holdfast dead list orders, mend the cause, "
        "then holdfast dead redrive orders --all or holdfast dead discard orders ID."
    )


def test_leases_are_listed_and_named_by_why(run: Run, orders: Conn) -> None:
    nobody = run("leases", "orders")
    orders.execute("select holdfast.set_clock('2030-01-01T12:00Z')")
    orders.execute("select holdfast.claim('orders', lease => '1 min', consumer => 'ann')")

    held = run("leases", "orders", "--json").document
    table = run("leases", "orders", "--limit", "1").out.splitlines()
    remedies = {each["finding"]: each["remedy"] for each in run("why", "orders", "--json").lines}

    assert (nobody.code, nobody.out, nobody.err) == (0, "", "Nobody holds messages of orders.\n")
    assert held == {
        "consumer": "ann",
        "priority": 0,
        "messages": 1,
        "deadline": "2030-01-01T12:01:00+00:00",
    }
    assert [line.split()[0] for line in table] == ["consumer", "ann"]
    assert remedies["in_flight"] == (
        "Wait for the consumers, or look at them: holdfast leases orders says who holds what."
    )


def test_why_of_a_missing_queue_is_an_error(run: Run, orders: Conn) -> None:
    answer = run("why", "nowhere", "--json")

    assert (answer.code, json.loads(answer.err)["error"]["code"]) == (1, "QH101")


def test_history_is_what_maintain_wrote_down(run: Run, orders: Conn) -> None:
    before = run("stats", "orders", "--history")
    run("maintain")

    table = run("stats", "orders", "--history")
    document = run("stats", "orders", "--history", "--since", "2h", "--json").document

    assert before.err == "orders has no samples: does anybody call maintain?\n"
    assert table.out.splitlines()[0].split()[:4] == ["ended", "sent", "done", "depth"]
    assert (document["sent"], document["done"], document["ready"]) == (1, 0, 1)
    assert document["waiting"]["under_10ms"] == 0


def test_history_shows_what_happened_seldom_where_it_happened(run: Run, orders: Conn) -> None:
    orders.execute("select holdfast.nack('orders', token) from holdfast.claim('orders')")
    orders.execute(
        "select holdfast.discard('orders', array(select id from holdfast.browse('orders', 'ready')))"
    )
    run("maintain")

    columns = run("stats", "orders", "--history").out.splitlines()[0].split()

    assert columns[:6] == ["ended", "sent", "done", "nacked", "discarded", "depth"]


@pytest.mark.parametrize(
    "words",
    [
        ["stats", "--history"],
        ["stats", "orders", "--history", "--watch"],
        ["maintain", "--every", "0.01"],
        ["maintain", "orders", "--every", "1s"],
    ],
)
def test_options_that_make_no_sense_are_refused(run: Run, orders: Conn, words: list[str]) -> None:
    assert run(*words).code == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_maintain_goes_on_until_it_is_told_to_end(
    database_url: str, orders: Conn, number: signal.Signals
) -> None:
    with started("maintain", "--every", "100ms", "--json", database_url=database_url) as process:
        assert process.stdout is not None
        rounds = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE)

    assert [did["lanes"] for did in rounds] == [1, 1, 1]
    assert (process.returncode, err) == (0, "")


def test_maintain_survives_a_lost_connection(database_url: str, orders: Conn) -> None:
    with started("maintain", "--every", "100ms", "--json", database_url=database_url) as process:
        assert process.stdout is not None
        process.stdout.readline()
        orders.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
        after = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    assert [did["lanes"] for did in after] == [1, 1]
    assert process.returncode == 0
