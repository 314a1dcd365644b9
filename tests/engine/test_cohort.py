"""claim_cohort: one claim for several claimers.

1. What is there is divided in proportion to what each asked for; an earlier claimer gets earlier messages.
2. Nobody who asks for little goes without beside those who ask for much: one each first, in their order.
3. Each share is a claim of its own: token, lease, consumer, and every verb that settles, reports or expires.
4. Cursor, gaps and registers are as after claims one after the other: nothing is lost or comes twice.
5. Lanes, due messages, ordered and strict queues, limits and sizes: as for a claim.
6. Bad arguments are refused with the codes of claim, and change nothing.
"""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, Row, ids, payloads

SECOND = timedelta(seconds=1)
MIB = 1024 * 1024


def cohort(engine: Engine, *maxes: int, queue: str = "q", **options: Any) -> list[list[Row]]:
    """Claim for several; each one's share, in order."""
    shares: dict[int, list[Row]] = defaultdict(list)
    for row in engine.rows("claim_cohort", queue=queue, maxes=list(maxes), **options):
        shares[row["claimer"]].append(row)
    assert all(1 <= claimer <= len(maxes) for claimer in shares)
    return [shares[claimer] for claimer in range(1, len(maxes) + 1)]


def sizes(shares: list[list[Row]]) -> list[int]:
    return [len(share) for share in shares]


def tokens(shares: list[list[Row]]) -> list[int]:
    """The token of each share, which is one and its own."""
    found = []
    for share in shares:
        (token,) = {row["token"] for row in share}
        found.append(token)
    assert len(set(found)) == len(found)
    return found


def together(shares: list[list[Row]]) -> list[Row]:
    return [row for share in shares for row in share]


# --- division -------------------------------------------------------------------------------------------


def test_ten_who_want_ten_each_get_five_of_fifty(queue: Engine) -> None:
    sent = queue.send_numbers(50)

    shares = cohort(queue, *[10] * 10)

    assert sizes(shares) == [5] * 10
    assert ids(together(shares)) == sent
    assert queue.claim(100) == []


@pytest.mark.parametrize(
    ("maxes", "ready", "expected"),
    [
        ([10, 30], 20, [5, 15]),
        ([30, 10], 20, [15, 5]),
        ([1, 2, 3, 4], 10, [1, 2, 3, 4]),
        ([10, 10, 10], 10, [4, 3, 3]),
        ([10, 10, 10], 11, [4, 4, 3]),
        ([100, 50, 50], 7, [3, 2, 2]),
        ([1000, 1], 500, [499, 1]),
        ([1000, 1, 1, 1], 4, [1, 1, 1, 1]),
        ([1000, 1000, 1], 100, [50, 49, 1]),
        ([1, 1, 1], 100, [1, 1, 1]),
        ([5, 5], 0, [0, 0]),
        ([9], 4, [4]),
    ],
)
def test_shares_are_in_proportion_and_never_more_than_wanted(
    queue: Engine, maxes: list[int], ready: int, expected: list[int]
) -> None:
    queue.send_numbers(ready)

    assert sizes(cohort(queue, *maxes)) == expected


def test_fewer_messages_than_claimers_go_to_the_first_in_line(queue: Engine) -> None:
    sent = queue.send_numbers(3)

    shares = cohort(queue, 1, 1000, 1, 1000, 1)

    assert [ids(share) for share in shares] == [[sent[0]], [sent[1]], [sent[2]], [], []]


@pytest.mark.parametrize("seed", range(5))
def test_no_division_loses_a_message_or_starves_anybody(queue: Engine, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        maxes = [chance.choice([1, 2, 7, 10, 100, 10_000]) for _ in range(chance.randint(1, 30))]
        messages = chance.randint(1, min(sum(maxes), 10_000))

        shares = queue.look("select holdfast._shares(%s, %s)", maxes, messages)

        assert sum(shares) == messages
        assert all(share <= most for share, most in zip(shares, maxes, strict=True))
        assert all(shares[:messages])
        for left, most in zip(shares, maxes, strict=True):
            fair = messages * most / sum(maxes)
            assert left <= max(1, fair + 1)


def test_a_thousand_claimers_of_ten_thousand_each_get_ten(queue: Engine) -> None:
    queue.send_numbers(10_050)

    shares = cohort(queue, *[10_000] * 1000)

    assert sizes(shares) == [10] * 1000
    assert len(queue.claim(1000)) == 50


def test_an_earlier_claimer_gets_earlier_messages(queue: Engine) -> None:
    queue.send_numbers(9)

    shares = cohort(queue, 2, 3, 4)

    assert [payloads(share) for share in shares] == [[0, 1], [2, 3, 4], [5, 6, 7, 8]]


# --- each share is a claim ------------------------------------------------------------------------------


def test_each_has_its_token_lease_and_consumer(queue: Engine) -> None:
    queue.send_numbers(6)

    shares = cohort(queue, 2, 2, 2, leases=["10 s", None, "1 hour"], consumers=["a", None, "c"])

    tokens(shares)
    assert [{row["deadline"] for row in share} for share in shares] == [
        {T0 + 10 * SECOND},
        {T0 + 30 * SECOND},
        {T0 + timedelta(hours=1)},
    ]
    leases = queue.rows("leases", queue="q")
    assert [(row["consumer"], row["messages"]) for row in leases] == [("a", 2), (None, 2), ("c", 2)]


def test_held_holders_and_claims_know_each_share(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    shares = cohort(queue, 1, 2, 3, consumers=["a", "b", "c"])
    mine = tokens(shares)

    held = [queue.rows("held", queue="q", token=token) for token in mine]
    holders = queue.rows("holders", queue="q", ids=sent)

    assert [ids(rows) for rows in held] == [sent[:1], sent[1:3], sent[3:]]
    assert [{k: v for k, v in row.items() if k != "claimer"} for row in shares[2]] == held[2]
    assert [(row["id"], row["token"], row["consumer"]) for row in holders] == [
        (row["id"], row["token"], name) for name, share in zip("abc", shares, strict=True) for row in share
    ]
    (claim,) = queue.rows("claims", queue="q", consumer="b")
    assert (claim["token"], claim["messages"], claim["first_id"]) == (mine[1], 2, sent[1])


@pytest.mark.parametrize("verb", ["ack", "nack", "release", "extend"])
def test_each_share_is_settled_for_itself(queue: Engine, verb: str) -> None:
    sent = queue.send_numbers(6)
    first, second, third = tokens(cohort(queue, 2, 2, 2))

    assert queue.settle(verb, second, strict=True) == (sent[2:4], [])
    assert queue.settle(verb, first, [sent[0], sent[2]]) == (sent[:1], sent[2:3])
    assert queue.settle(verb, first, sent[1:2], strict=True) == (sent[1:2], [])
    assert queue.settle(verb, third, strict=True) == (sent[4:], [])


def test_strict_knows_that_a_share_is_whole(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    first, second, _ = tokens(cohort(queue, 2, 2, 2))
    queue.value("discard", queue="q", ids=[sent[2]])

    assert queue.settle("ack", first, strict=True) == (sent[:2], [])
    with pytest.raises(psycopg.Error) as refused:
        queue.settle("ack", second, strict=True)
    assert refused.value.sqlstate == "QH304"


def test_no_share_can_settle_another(queue: Engine) -> None:
    sent = queue.send_numbers(4)
    first, second = tokens(cohort(queue, 2, 2))

    assert queue.settle("ack", first, sent[2:]) == ([], sent[2:])
    assert queue.settle("ack", second) == (sent[2:], [])


def test_next_goes_on_from_a_share(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    first, _ = tokens(cohort(queue, 2, 2))

    rows = queue.rows("next", queue="q", token=first, max=5)

    assert ids(rows) == sent[4:]
    assert queue.look("select count(*) from holdfast.message") == 4


def test_a_share_expires_by_itself(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    shares = cohort(queue, 2, 2, 2, leases=["30 s", "1 s", "30 s"])

    queue.at(T0 + 2 * SECOND)

    again = queue.claim(10)
    assert ids(again) == sent[2:4]
    assert {row["deliveries"] for row in again} == {2}
    assert queue.settle("ack", tokens(shares)[1]) == ([], [])
    assert queue.settle("ack", tokens(shares)[0]) == (sent[:2], [])


def test_shares_are_settled_in_any_order_and_leave_nothing(queue: Engine) -> None:
    chance = random.Random(7)
    for _ in range(10):
        queue.send_numbers(12)
        shares = [share for share in cohort(queue, 3, 4, 5) if share]
        for token in chance.sample(tokens(shares), len(shares)):
            queue.settle("ack", token, strict=True)

    assert queue.claim(10) == []
    queue.at(T0 + 60 * SECOND)
    queue.claim(1)
    assert queue.look("select count(*) from holdfast.message") == 0
    assert queue.look("select count(*) from holdfast.lease") == 0


def test_a_dense_share_is_acked_by_its_range(queue: Engine) -> None:
    queue.send_numbers(4)

    cohort(queue, 2, 2)

    assert queue.look("select count(*) from holdfast.lease where lo is not null and upto = lo + 2") == 2


def test_an_archive_names_the_consumer_of_the_share(engine: Engine) -> None:
    engine.create(keep=["done"])
    engine.send_numbers(4)
    for token in tokens(cohort(engine, 2, 2, consumers=["a", "b"])):
        engine.settle("ack", token, strict=True)

    kept = engine.conn.execute("select consumer, claimed_at from holdfast.archive order by id").fetchall()

    assert kept == [("a", T0), ("a", T0), ("b", T0), ("b", T0)]


def test_a_share_that_dies_is_buried(engine: Engine) -> None:
    engine.create(max_deliveries=1)
    sent = engine.send_numbers(4)
    first, second = tokens(cohort(engine, 2, 2))

    engine.settle("nack", first, error="broken")

    assert engine.stats()["dead"] == 2
    assert engine.settle("ack", second) == (sent[2:], [])


# --- cursor, gaps, transactions ---------------------------------------------------------------------------


def test_a_cohort_of_one_is_a_claim(queue: Engine) -> None:
    sent = queue.send_numbers(3)

    (share,) = cohort(queue, 2, leases=["5 s"], consumers=["me"])

    assert ids(share) == sent[:2]
    assert {row["deadline"] for row in share} == {T0 + 5 * SECOND}
    assert queue.rows("leases", queue="q")[0]["consumer"] == "me"


def test_cohorts_and_claims_take_turns(queue: Engine) -> None:
    sent = queue.send_numbers(20)

    got = [
        *ids(together(cohort(queue, 2, 2))),
        *ids(queue.claim(3)),
        *ids(together(cohort(queue, 1, 1, 1))),
        *ids(together(cohort(queue, 10, 10))),
    ]

    assert got == sent


def test_cohorts_of_one_transaction_go_on_from_each_other(queue: Engine) -> None:
    sent = queue.send_numbers(20)

    with queue.conn.transaction():
        first = cohort(queue, 2, 2)
        second = cohort(queue, 3, 3)
        alone = queue.claim(4)
        queue.settle("ack", tokens(first)[1], strict=True)
    third = cohort(queue, 10, 10)

    assert ids([*together(first), *together(second), *alone, *together(third)]) == sent


def test_a_cohort_that_rolls_back_never_happened(queue: Engine) -> None:
    sent = queue.send_numbers(10)
    before = queue.state()

    with queue.conn.transaction(force_rollback=True):
        assert ids(together(cohort(queue, 2, 3))) == sent[:5]

    assert queue.state() == before
    assert ids(together(cohort(queue, 5, 5))) == sent


def test_a_cohort_in_a_savepoint_that_is_undone_never_happened(queue: Engine) -> None:
    sent = queue.send_numbers(10)

    with queue.conn.transaction():
        first = cohort(queue, 1, 1)
        with queue.conn.transaction(force_rollback=True):
            cohort(queue, 2, 2)
        second = cohort(queue, 4, 4)

    assert ids([*together(first), *together(second)]) == sent


def test_holes_and_delayed_messages_between_shares_are_passed_once(queue: Engine) -> None:
    sent = []
    for n in range(12):
        with queue.conn.transaction(force_rollback=n % 3 == 0):
            sent += [queue.send(n)] * (n % 3 != 0)
        queue.send("tomorrow", delay="1 day")
    queue.at(T0 + SECOND)

    shares = cohort(queue, 3, 3, 3)

    assert ids(together(shares)) == sent
    for token, share in zip(tokens(shares), shares, strict=True):
        assert queue.settle("ack", token, strict=True) == (ids(share), [])
    assert queue.claim(10) == []
    queue.at(T0 + timedelta(days=2))
    assert payloads(queue.claim(100)) == ["tomorrow"] * 12


def test_the_audit_finds_nothing_stranded_by_a_cohort(queue: Engine) -> None:
    queue.send_numbers(30)
    queue.send_numbers(10, delay="1 s")
    queue.at(T0 + 2 * SECOND)
    shares = cohort(queue, 5, 5, 5, leases=["1 hour"] * 3)

    for _ in range(4):
        assert queue.value("maintain").get("stranded", 0) == 0

    assert queue.claim(1)[0]["id"] not in ids(together(shares))
    assert len(queue.rows("holders", queue="q", ids=ids(together(shares)))) == 15


def test_a_crash_ends_every_share(queue: Engine) -> None:
    sent = queue.send_numbers(4)
    first, second = tokens(cohort(queue, 2, 2))
    queue.value("repair", queue="q")

    assert queue.settle("ack", first) == ([], [])
    assert ids(queue.claim(10)) == sent
    assert queue.settle("ack", second) == ([], [])


# --- lanes, order, limits ---------------------------------------------------------------------------------


def test_shares_run_across_priorities(queue: Engine) -> None:
    for priority in (0, 0, 0, 9, 9, 5):
        queue.send(priority, priority=priority)

    shares = cohort(queue, 2, 2, 2)

    assert [payloads(share) for share in shares] == [[9, 9], [5, 0], [0, 0]]
    assert [[row["priority"] for row in share] for share in shares] == [[9, 9], [5, 0], [0, 0]]
    for token in tokens(shares):
        assert len(queue.settle("ack", token, strict=True)[0]) == 2
    assert queue.look("select count(*) from holdfast.message") == 0


def test_shares_run_across_shards(engine: Engine, open_engine: Open) -> None:
    engine.create(shards=4)
    sent: list[int] = []
    others = [open_engine() for _ in range(8)]
    for n in range(40):
        sent.append(others[n % 8].send(n))

    shares = cohort(engine, 7, 14, 21)

    assert sizes(shares) == [7, 13, 20]
    assert sorted(ids(together(shares))) == sorted(sent)
    for token, share in zip(tokens(shares), shares, strict=True):
        assert engine.settle("ack", token, strict=True) == (sorted(ids(share)), [])


def test_due_messages_come_before_fresh_ones_and_are_shared_too(queue: Engine) -> None:
    due = queue.send_numbers(5, delay="1 s")
    fresh = queue.send_numbers(5)
    queue.at(T0 + 2 * SECOND)

    shares = cohort(queue, 2, 4, 4)

    assert [ids(share) for share in shares] == [due[:2], [*due[2:], fresh[0]], fresh[1:]]
    assert len(queue.rows("holders", queue="q", ids=[*due, *fresh])) == 10
    assert queue.settle("nack", tokens(shares)[1], delay="0 s", strict=True) == ([*due[2:], fresh[0]], [])
    assert ids(queue.claim(10)) == [*due[2:], fresh[0]]
    assert queue.settle("ack", tokens(shares)[0], strict=True) == (due[:2], [])


def test_each_ordering_key_is_with_one_claimer_at_a_time(engine: Engine) -> None:
    engine.create(ordering="key")
    heads = [engine.send([key, 0], ordering_key=key) for key in "abcd"]
    later = [engine.send([key, 1], ordering_key=key) for key in "abcd"]

    shares = cohort(engine, 4, 4)

    assert [ids(share) for share in shares] == [heads[:2], heads[2:]]
    assert {row["ordering_key"] for row in together(shares)} == set("abcd")
    assert engine.claim(10) == []
    engine.settle("ack", tokens(shares)[1], strict=True)
    assert ids(engine.claim(10)) == later[2:]


def test_a_strict_queue_gives_one_message_to_the_first(engine: Engine) -> None:
    engine.create(ordering="strict")
    sent = engine.send_numbers(3)

    shares = cohort(engine, 5, 5, 5)

    assert [ids(share) for share in shares] == [[sent[0]], [], []]
    assert sizes(cohort(engine, 5, 5)) == [0, 0]
    engine.settle("release", shares[0][0]["token"])
    assert [ids(share) for share in cohort(engine, 1, 1)] == [[sent[0]], []]


def test_the_throughput_limit_counts_a_cohort_as_one_claim(engine: Engine) -> None:
    engine.create(throughput_limit=10)
    engine.send_numbers(50)

    assert sizes(cohort(engine, 10, 10, 10)) == [4, 3, 3]
    assert sizes(cohort(engine, 10, 10)) == [0, 0]
    engine.at(T0 + SECOND)
    assert sizes(cohort(engine, 2, 2)) == [2, 2]
    assert sizes(cohort(engine, 20, 20)) == [3, 3]


def test_a_paused_queue_gives_nobody_anything(queue: Engine) -> None:
    queue.send_numbers(5)
    queue.value("pause_queue", queue="q")

    assert sizes(cohort(queue, 5, 5)) == [0, 0]


def test_one_answer_is_16_mib_for_all_of_them(queue: Engine) -> None:
    queue.value("configure_queue", queue="q", config={"max_payload": 10 * MIB})
    for _ in range(3):
        queue.value("send", queue="q", body=random.randbytes(7 * MIB))

    assert sizes(cohort(queue, 2, 2)) == [1, 1]
    assert sizes(cohort(queue, 2, 2)) == [1, 0]


def test_messages_with_keys_and_bodies_arrive_as_by_claim(queue: Engine) -> None:
    queue.value("send", queue="q", body=b"b", content_type="text/plain", tag="t", headers={"h": 1})
    queue.send({"p": 1}, key="k")
    queue.send({"p": 2}, idempotency_key="i", max_deliveries=9)

    rows = together(cohort(queue, 3, 3))

    by_id = {row["id"]: row for row in rows}
    for row in queue.rows("held", queue="q", token=rows[0]["token"]):
        assert {name: by_id[row["id"]][name] for name in row} == row
    assert {row["max_deliveries"] for row in rows} == {5, 9}
    assert {(row["body"], row["key"]) for row in rows} == {(b"b", None), (None, "k"), (None, None)}


def test_a_discarded_message_is_in_nobodys_share(queue: Engine) -> None:
    sent = queue.send_numbers(6)
    queue.value("discard", queue="q", ids=[sent[1], sent[4]])
    queue.at(T0 + SECOND)

    assert ids(together(cohort(queue, 3, 3))) == [sent[0], sent[2], sent[3], sent[5]]


# --- arguments --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        ("QH301", {"maxes": None}),
        ("QH301", {"maxes": []}),
        ("QH301", {"maxes": [1] * 1001}),
        ("QH301", {"maxes": [0]}),
        ("QH301", {"maxes": [1, 0]}),
        ("QH301", {"maxes": [1, -5, 3]}),
        ("QH301", {"maxes": [1, 10_001]}),
        ("QH301", {"maxes": [None]}),
        ("QH301", {"maxes": [3, None]}),
        ("QH301", {"maxes": [1, 1], "leases": ["1 s"]}),
        ("QH301", {"maxes": [1, 1], "leases": []}),
        ("QH301", {"maxes": [1, 1], "consumers": ["a", "b", "c"]}),
        ("QH302", {"maxes": [1, 1], "leases": ["1 s", "99 ms"]}),
        ("QH302", {"maxes": [1, 1], "leases": ["25 hours", None]}),
        ("QH207", {"maxes": [1, 1], "consumers": ["a", "x" * 201]}),
        ("QH207", {"maxes": [1], "consumers": ["x" * 201]}),
        ("QH101", {"maxes": [1, 1], "queue": "nowhere"}),
        ("QH101", {"maxes": [1], "queue": None}),
    ],
)
def test_a_bad_argument_is_refused_and_changes_nothing(
    refusing: Engine, code: str, arguments: dict[str, Any]
) -> None:
    refusing.send_numbers(3)
    before = refusing.state()
    typed = {"maxes": "int[]", "leases": "interval[]", "consumers": "text[]", "queue": "text"}
    given = {"queue": "q"} | arguments
    call = ", ".join(f"{name} => %({name})s::{typed[name]}" for name in given)

    with pytest.raises(psycopg.Error) as refused:
        refusing.conn.execute(f"select * from holdfast.claim_cohort({call})".encode(), given)

    assert refused.value.sqlstate == code
    assert refused.value.diag.message_hint
    assert refusing.state() == before


def test_a_log_has_no_claimers(engine: Engine) -> None:
    engine.create(kind="log")

    with pytest.raises(psycopg.Error) as refused:
        cohort(engine, 1, 1)

    assert refused.value.sqlstate == "QH602"


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_cohort_needs_read_committed(refusing: Engine, level: str) -> None:
    refusing.conn.execute(f"begin isolation level {level}".encode())

    with pytest.raises(psycopg.Error) as refused:
        cohort(refusing, 1, 1)
    refusing.conn.execute("rollback")

    assert refused.value.sqlstate == "QH303"


def test_only_alone_lowers_synchronous_commit(queue: Engine) -> None:
    queue.send_numbers(4)

    with queue.conn.transaction():
        cohort(queue, 1, 1)
        assert queue.look("select current_setting('synchronous_commit')") == "on"
        assert queue.look("select current_setting('statement_timeout')") == "1min"
    with queue.conn.transaction():
        cohort(queue, 1, 1, alone=True)
        assert queue.look("select current_setting('synchronous_commit')") == "off"
