"""Each command: what it does to the queue, what it prints for people, and what for machines."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import psycopg

from holdfast.cli._config import FIELDS
from tests.cli.conftest import Run


def make(conn: psycopg.Connection[Any], config: str = "{}") -> None:
    conn.execute("select holdfast.create_queue('orders', %s)", [config])


def bury(conn: psycopg.Connection[Any], *errors: str) -> list[int]:
    """Dead letters of the queue orders; their ids."""
    make(conn, '{"max_deliveries": 1}')
    for error in errors:
        conn.execute("select holdfast.send('orders', to_jsonb(%s::text))", [error])
        conn.execute(
            "select holdfast.nack('orders', token, error => %s) from holdfast.claim('orders')", [error]
        )
    return [id for (id,) in conn.execute("select id from holdfast.browse('orders', 'dead')").fetchall()]


def test_a_queue_is_created_listed_shown_changed_and_dropped(run: Run) -> None:
    created = run("queue", "create", "orders", "max_deliveries=3", "lease=60 s", "--json")
    again = run("queue", "create", "orders", "--config", '{"max_deliveries": 3, "lease": "60 s"}')
    listed = run("queue", "list", "--json")
    table = run("queue", "list")
    changed = run("queue", "set", "orders", "max_deliveries=null", "dead_letter=false", "--json")
    shown = run("queue", "show", "orders", "--json")
    dropped = run("queue", "drop", "orders", "--yes")

    assert created.document == {"queue": "orders", "created": True}
    assert (again.code, again.out) == (0, "Queue orders was there already.\n")
    assert [info["config"] for info in listed.lines] == [{"lease": "60 s", "max_deliveries": 3}]
    assert table.out.split()[:7] == ["queue", "kind", "paused", "created_at", "config", "orders", "queue"]
    assert listed.lines[0]["kind"] == "queue"
    assert (changed.document["max_deliveries"], changed.document["dead_letter"]) == (5, False)
    assert (shown.document["queue"], shown.document["ready"], shown.document["exact"]) == ("orders", 0, True)
    assert (dropped.code, dropped.out) == (0, "Dropped queue orders.\n")


def test_a_queue_is_dropped_only_empty_if_so_asked(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute("select holdfast.send('orders')")

    refused = run("queue", "drop", "orders", "--if-empty", "--yes")
    conn.execute("select holdfast.purge('orders', '{ready}')")
    dropped = run("queue", "drop", "orders", "--if-empty", "--yes", "--json")

    assert refused.code != 0
    assert "QH109" in refused.err
    assert dropped.document == {"queue": "orders", "dropped": True}


def test_a_queue_is_paused_and_resumed(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    assert run("queue", "pause", "orders", "--json").document == {"queue": "orders", "changed": True}
    assert run("queue", "pause", "orders").out == "Queue orders was paused already.\n"
    assert run("queue", "resume", "orders").out == "Resumed queue orders.\n"


def test_defaults_are_shown_and_changed(run: Run) -> None:
    changed = run("queue", "defaults", "max_deliveries=8", "--json")
    shown = run("queue", "defaults", "--json")

    assert changed.document == shown.document
    assert shown.document["max_deliveries"] == 8


def test_dropping_asks_first(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    refused = run("queue", "drop", "orders", stdin="n\n")
    for_machines = run("--json", "queue", "drop", "orders")
    agreed = run("queue", "drop", "orders", stdin="y\n")

    assert (refused.code, refused.out) == (1, "")
    assert "Delete queue orders and all its messages?" in refused.err
    assert (for_machines.code, for_machines.out) == (2, "")
    assert (agreed.code, agreed.out) == (0, "Dropped queue orders.\n")


def test_send_takes_every_option(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    sent = run(
        *(
            "send",
            "orders",
            '{"a": [1, null]}',
            "--content-type",
            "application/json",
            "--header",
            "trace=abc",
        ),
        *("--header", "n=1", "--priority", "4", "--delay", "90m", "--ttl", "2d", "--tag", "urgent"),
        *("--correlation-id", "6f1c2c9e-6f57-4b0e-9d0e-0c8a5a3f7a11", "--max-deliveries", "2", "--json"),
    )
    entry = run("peek", "orders", "--state", "scheduled", "--json").document

    assert sent.code == 0
    assert entry["id"] == sent.document["id"]
    assert (entry["payload"], entry["headers"]) == ({"a": [1, None]}, {"trace": "abc", "n": "1"})
    assert (entry["content_type"], entry["priority"], entry["tag"]) == ("application/json", 4, "urgent")
    assert entry["correlation_id"] == "6f1c2c9e-6f57-4b0e-9d0e-0c8a5a3f7a11"
    assert entry["max_deliveries"] == 2


def test_send_takes_instants(run: Run) -> None:
    run("queue", "create", "orders")

    sent = run(
        "send", "orders", "1", "--deliver-at", "2031-01-01T12:00Z", "--expires-at", "2032-01-01T00:00Z"
    )
    entry = run("peek", "orders", "--state", "scheduled", "--json").document

    assert sent.code == 0
    assert entry["due_at"] == "2031-01-01T12:00:00+00:00"
    assert entry["expires_at"] == "2032-01-01T00:00:00+00:00"


def test_send_reads_payloads_bodies_and_text_from_where_it_is_told(
    run: Run, conn: psycopg.Connection[Any], tmp_path: Path
) -> None:
    make(conn)
    (tmp_path / "body").write_bytes(b"\x00\xff")

    run("send", "orders", "-", stdin='{"from": "stdin"}\n')
    run("send", "orders", "plain text", "--text")
    run("send", "orders", "null")
    run("send", "orders")
    run("send", "orders", "--body", str(tmp_path / "body"))

    stored = conn.execute("select payload::text, body from holdfast.message order by id").fetchall()
    assert stored == [
        ('{"from": "stdin"}', None),
        ('"plain text"', None),
        ("null", None),
        (None, None),
        (None, b"\x00\xff"),
    ]


def test_a_file_is_sent_line_by_line(run: Run, conn: psycopg.Connection[Any], tmp_path: Path) -> None:
    make(conn)
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(12_000)) + "\n")

    sent = run("send", "orders", "--file", str(lines), "--tag", "file", "--json")
    from_stdin = run("send", "orders", "--file", "-", "--text", stdin="one\ntwo\n")

    assert sent.document == {"queue": "orders", "sent": 12_000}
    assert (from_stdin.code, from_stdin.out) == (0, "Sent 2 messages to orders.\n")
    assert run("stats", "orders", "--json").document["depth"] == 12_002
    first = run("claim", "orders", "--json").document
    assert (first["payload"], first["tag"]) == ({"n": 0}, "file")


def test_a_bad_line_in_a_file_sends_nothing_and_is_named(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    answer = run("send", "orders", "--file", "-", "--chunk", "1", stdin="1\n2\n{bad\n")

    assert (answer.code, answer.out) == (2, "")
    assert "line 3 is not JSON: Expecting property name enclosed in double quotes at column 2" in answer.err
    assert "line 1" not in answer.err
    assert run("stats", "orders", "--json").document["depth"] == 0


def test_chunks_before_a_bad_line_stay_sent_without_atomic(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    run("send", "orders", "--file", "-", "--chunk", "1", "--no-atomic", stdin="1\n2\n{bad\n")

    assert run("stats", "orders", "--json").document["depth"] == 2


def test_claim_prints_tokens_that_ack_and_nack_take(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute("select holdfast.send_batch('orders', array['1', '2', '3']::jsonb[])")

    claimed = run("claim", "orders", "--max", "3", "--lease", "5m", "--consumer", "me", "--json").lines
    token = claimed[0]["token"]
    acked = run("ack", "orders", token, claimed[0]["id"], "--json")
    nacked = run("nack", "orders", token, claimed[1]["id"], "--delay", "1h", "--error", "broken", "--json")
    rest = run("ack", "orders", token)
    skipped = run("ack", "orders", token, claimed[0]["id"], "--json")

    assert [delivery["payload"] for delivery in claimed] == [1, 2, 3]
    assert acked.document == {"settled": [claimed[0]["id"]], "skipped": []}
    assert nacked.document == {"settled": [claimed[1]["id"]], "skipped": []}
    assert rest.out == "Acked 1.\n"
    assert (skipped.code, skipped.document) == (5, {"settled": [], "skipped": [claimed[0]["id"]]})
    (scheduled,) = run("peek", "orders", "--state", "scheduled", "--json").lines
    assert scheduled["last_error"] == "broken"


def test_ids_and_tokens_are_strings_in_json(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn, '{"max_deliveries": 1}')
    conn.execute("""select holdfast.send('orders', '{"id": 1}')""")

    delivery = run("claim", "orders", "--json").document
    run("nack", "orders", delivery["token"])
    dead = run("dead", "list", "orders", "--json").document
    (moved,) = run("dead", "redrive", "orders", "--all", "--json").lines
    redriven = run("claim", "orders", "--json").document

    assert isinstance(delivery["token"], str)
    assert dead["origin"]["id"] == dead["origin"]["root_id"] == dead["root_id"] == delivery["id"]
    assert moved == {"id": dead["id"], "new_id": redriven["id"]}
    assert redriven["origin"]["root_id"] == delivery["id"]
    assert redriven["origin"]["deliveries"] == 1
    assert redriven["payload"] == {"id": 1}


def test_claim_shows_people_a_table_and_how_to_ack(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute("""select holdfast.send('orders', '{"is": "[bold]not markup[/bold]"}')""")

    answer = run("claim", "orders")

    token = conn.execute(
        "select token from holdfast.holders('orders', array(select id from holdfast.message))"
    )
    assert '{"is": "[bold]not markup[/bold]"}' in answer.out
    assert answer.err == f"When done: holdfast ack orders {token.fetchall()[0][0]}\n"


def test_claim_of_nothing_exits_with_4(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    for_people = run("claim", "orders")
    for_machines = run("claim", "orders", "--wait", "200ms", "--json")

    assert (for_people.code, for_people.out, for_people.err) == (4, "", "Nothing to claim in orders.\n")
    assert (for_machines.code, for_machines.out, for_machines.err) == (4, "", "")


def test_claim_of_a_paused_queue_says_that_it_is_paused(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute("select holdfast.send('orders', '1')")
    conn.execute("select holdfast.pause_queue('orders')")

    for_people = run("claim", "orders")
    for_machines = run("claim", "orders", "--json")

    assert (for_people.code, for_people.out) == (4, "")
    assert for_people.err == (
        "Queue orders is paused. To hand out messages again: holdfast queue resume orders\n"
    )
    assert (for_machines.code, for_machines.out, for_machines.err) == (4, "", "")


def test_tables_show_how_long_a_body_is(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute(r"select holdfast.send('orders', body => '\x00ff')")

    peeked = run("peek", "orders")
    claimed = run("claim", "orders")

    assert peeked.out.splitlines()[1].endswith("<2 bytes>")
    assert claimed.out.splitlines()[1].endswith("<2 bytes>")


def test_a_body_is_base64_in_json(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute(r"select holdfast.send('orders', body => '\x00ff')")

    assert base64.b64decode(run("peek", "orders", "--json").document["body"]) == b"\x00\xff"


def test_peek_pages(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute("select holdfast.send_batch('orders', array['1', '2', '3']::jsonb[])")

    first = run("peek", "orders", "--limit", "2", "--json").lines
    second = run("peek", "orders", "--limit", "2", "--after", first[-1]["id"], "--json").lines

    assert [entry["payload"] for entry in first + second] == [1, 2, 3]


def test_dead_letters_are_listed_and_shown(run: Run, conn: psycopg.Connection[Any]) -> None:
    ids = bury(conn, "no stock", "no money")

    listed = run("dead", "list", "orders", "--json").lines
    shown = run("dead", "show", "orders", str(ids[0]), "--json")
    missing = run("dead", "show", "orders", "1")

    assert [(entry["id"], entry["last_error"]) for entry in listed] == [
        (str(ids[0]), "no stock"),
        (str(ids[1]), "no money"),
    ]
    assert (shown.document["state"], shown.document["origin"]["queue"]) == ("dead", "orders")
    assert (missing.code, missing.out) == (1, "")


def test_dead_letters_show_what_they_were_in_life(run: Run, conn: psycopg.Connection[Any]) -> None:
    conn.execute("select holdfast.set_clock('2030-01-01T12:00Z')")
    make(conn, '{"max_deliveries": 2}')
    first = conn.execute("select holdfast.send('orders', '1', tag => 'blue')").fetchall()[0][0]
    for number, error in enumerate(["no stock", "no money"], start=1):
        conn.execute("select holdfast.set_clock(%s)", [f"2030-01-01T{12 + number}:00Z"])
        conn.execute(
            "select holdfast.nack('orders', token, error => %s) from holdfast.claim('orders')", [error]
        )

    letter = run("dead", "list", "orders", "--json").document
    shown = run("dead", "show", "orders", letter["id"], "--json").document
    table = run("dead", "list", "orders").out.splitlines()

    assert (letter["queue"], letter["dead_letter"]) == ("orders", "orders.dlq")
    assert (letter["root_id"], letter["deliveries"], letter["failures"]) == (str(first), 2, 2)
    assert letter["enqueued_at"] == "2030-01-01T12:00:00+00:00"
    assert letter["died_at"] == "2030-01-01T14:00:00+00:00"
    assert letter["last_error"] == "no money"
    assert shown == letter
    assert table[0].split() == [
        *("id", "root_id", "queue", "deliveries", "died_at", "last_error", "tag", "payload")
    ]
    assert table[1].split()[:6] == [letter["id"], str(first), "orders", "2", "2030-01-01", "14:00:00+00:00"]
    assert table[1].split()[6:] == ["no", "money", "blue", "1"]


def test_a_death_by_leases_is_told_to_people_and_no_error_made_up_for_machines(
    run: Run, conn: psycopg.Connection[Any]
) -> None:
    conn.execute("select holdfast.set_clock('2030-01-01T12:00Z')")
    make(conn)
    conn.execute("select holdfast.send('orders', '1', max_deliveries => 1)")
    conn.execute("select holdfast.claim('orders')")
    conn.execute("select holdfast.set_clock('2030-01-01T13:00Z')")
    conn.execute("select holdfast.sweep('orders')")

    listed = run("dead", "list", "orders").out.splitlines()[1]
    letter = run("dead", "list", "orders", "--json").document
    shown = run("dead", "show", "orders", letter["id"]).out

    assert "  lease ran out  " in listed
    assert "lease ran out" in shown
    assert (letter["last_error"], letter["failures"], letter["max_deliveries"]) == (None, 0, 1)


def test_configurations_are_shown_in_the_order_in_which_they_are_described(run: Run) -> None:
    described = list(FIELDS)

    defaults = run("queue", "defaults").out.splitlines()
    run("queue", "create", "orders", "ttl=1d", "lease=60 s")
    changed = run("queue", "set", "orders", "shards=2").out.splitlines()
    shown = run("queue", "show", "orders", "--json").document

    assert [line.split()[0] for line in defaults] == described
    assert "dead_letter       QUEUE.dlq, each queue's own" in [line.rstrip() for line in defaults]
    assert [line.split()[0] for line in changed] == described
    assert list(shown["effective"]) == described
    assert list(shown["effective"]["backoff"]) == ["base", "factor", "cap", "jitter"]
    assert list(shown["config"]) == ["lease", "ttl", "shards"]
    assert run("queue", "defaults", "--json").document["dead_letter"] is None


def test_help_shows_no_type_behind_a_flag(run: Run) -> None:
    for words in ([], ["queue"], ["queue", "purge"], ["psql"]):
        answer = run(*words, "--help")

        assert (answer.code, "<bool>" in answer.out) == (0, False)


def test_a_message_that_lives_is_not_shown_as_a_dead_letter(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    id = conn.execute("select holdfast.send('orders', '1')").fetchall()[0][0]

    answer = run("dead", "show", "orders", str(id))

    assert (answer.code, answer.out) == (1, "")
    assert "among the dead letters of orders" in answer.err


def test_dead_letters_are_redriven_by_filter_and_by_id(run: Run, conn: psycopg.Connection[Any]) -> None:
    ids = bury(conn, "no stock", "no money", "no luck")

    unsaid = run("dead", "redrive", "orders")
    filtered = run("dead", "redrive", "orders", "--error", "money", "--dead-after", "2020-01-01", "--json")
    by_id = run("dead", "redrive", "orders", str(ids[0]), "--json")
    rest = run("dead", "redrive", "orders", "--all", "--json")

    assert unsaid.code == 2
    assert [moved["id"] for moved in filtered.lines] == [str(ids[1])]
    assert [moved["id"] for moved in by_id.lines] == [str(ids[0])]
    assert [moved["id"] for moved in rest.lines] == [str(ids[2])]
    assert run("stats", "orders", "--json").document["ready"] == 3


def test_dead_letters_are_discarded(run: Run, conn: psycopg.Connection[Any]) -> None:
    ids = bury(conn, "no stock")

    answer = run("dead", "discard", "orders", str(ids[0]), "1", "--yes", "--json")

    assert (answer.code, answer.document) == (0, {"ids": [str(ids[0])], "left": ["1"]})
    assert run("dead", "list", "orders").err == "orders has no dead letters.\n"


def test_dead_list_tells_of_lines_that_stand_at_a_dead_message(
    run: Run, conn: psycopg.Connection[Any]
) -> None:
    make(conn, '{"max_deliveries": 1, "ordering": "key", "on_dead": "block"}')
    conn.execute("select holdfast.send('orders', ordering_key => 'a')")
    conn.execute("select holdfast.nack('orders', token) from holdfast.claim('orders')")

    told = run("dead", "list", "orders")
    figures = run("stats", "orders").out.splitlines()

    assert told.err == (
        "orders has no dead letters.\n"
        "1 line of orders stands at a dead message that is still in the queue: holdfast blocked orders\n"
    )
    assert dict(zip(figures[0].split(), figures[1].split(), strict=True))["blocked_lines"] == "1"
    assert run("dead", "list", "orders", "--json").out == ""


def test_messages_that_live_are_not_discarded(run: Run, conn: psycopg.Connection[Any]) -> None:
    (dead,) = bury(conn, "no stock")
    alive = conn.execute("select holdfast.send('orders', '1')").fetchall()[0][0]

    some = run("dead", "discard", "orders", str(dead), str(alive), stdin="y\n")
    none = run("dead", "discard", "orders", str(alive), stdin="y\n")

    assert (some.code, some.out) == (0, "Discarded 1 dead letter of orders.\n")
    assert "Delete 2 dead letters of orders for good?" in some.err
    assert some.err.endswith(f"Left 1, which are no dead letters of orders: {alive}\n")
    assert (none.code, none.out) == (5, "Discarded 0 dead letters of orders.\n")
    assert "Delete 1 dead letter of orders for good?" in none.err
    assert run("stats", "orders", "--json").document["ready"] == 1


def test_ids_that_are_no_dead_letters_are_not_redriven_and_named(
    run: Run, conn: psycopg.Connection[Any]
) -> None:
    (dead,) = bury(conn, "no stock")

    none = run("dead", "redrive", "orders", "1", "2")
    some = run("dead", "redrive", "orders", "1", str(dead))
    nothing_fits = run("dead", "redrive", "orders", "--all")

    assert (none.code, none.out) == (5, "")
    assert none.err.splitlines()[0] == "Nothing was sent back."
    assert none.err.endswith("over --limit: 1, 2\n")
    assert (some.code, "Left 1, " in some.err) == (0, True)
    assert (nothing_fits.code, nothing_fits.err) == (0, "Nothing was sent back.\n")


def test_stats_show_one_queue_or_all(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)
    conn.execute("select holdfast.create_queue('mails')")
    conn.execute("select holdfast.send('orders', '1')")

    one = run("stats", "orders", "--json").document
    all_queues = run("stats", "--json").lines
    table = run("stats")

    assert (one["ready"], one["in_flight"], one["depth"]) == (1, 0, 1)
    assert {stats["queue"]: stats["ready"] for stats in all_queues} == {"orders": 1, "mails": 0}
    assert table.out.splitlines()[0].split()[:3] == ["queue", "kind", "ready"]
    assert one["kind"] == "queue"


def test_maintain_sweeps_one_queue_or_keeps_all_in_order(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    assert run("maintain", "orders", "--json").document == {"queue": "orders", "swept": 0}
    assert isinstance(run("maintain", "--json").document, dict)


def test_repair_says_how_many_lanes_it_mended(run: Run, conn: psycopg.Connection[Any]) -> None:
    make(conn)

    assert run("repair", "orders", "--json").document["mended"] >= 1
    assert run("repair", "--unreadable-only").out == "Mended 0 lanes.\n"
