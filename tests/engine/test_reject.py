"""reject: what will not work is dead at once.

1. A rejected message is dead, whatever deliveries it has left; it counts as a delivery and a failure.
2. Without a dead-letter queue it ends as failed; in a line the next comes, or it blocks.
3. Only what the token holds is rejected.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.engine.engine import Engine


def test_a_rejected_message_is_dead_at_once(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    held = queue.claim(2)

    settled = queue.settle("reject", held[0]["token"], [sent[0]], error="no such customer")

    (letter,) = queue.rows("browse", queue="q", state="dead")
    assert settled == ([sent[0]], [])
    assert (letter["last_error"], letter["origin"]["id"]) == ("no such customer", sent[0])
    assert (letter["origin"]["deliveries"], letter["origin"]["failures"]) == (1, 1)
    assert (queue.stats()["in_flight"], queue.stats()["dead"]) == (1, 1)


def test_a_message_without_a_limit_is_dead_too(engine: Engine) -> None:
    engine.create("q", max_deliveries=0)
    engine.send(1)

    engine.settle("reject", engine.claim_one()["token"])

    assert engine.stats()["dead"] == 1


def test_without_a_dead_letter_queue_it_ends_as_failed(engine: Engine) -> None:
    engine.create("q", dead_letter=False, keep=["failed"])
    engine.send(1)

    engine.settle("reject", engine.claim_one()["token"], error="no")

    (ended,) = engine.rows("browse", queue="q", state="archive")
    assert (ended["state"], ended["last_error"]) == ("failed", "no")


@pytest.mark.parametrize(("on_dead", "ready", "blocked"), [("continue", 1, 0), ("block", 0, 1)])
def test_in_a_line_the_next_comes_or_it_blocks(
    engine: Engine, on_dead: str, ready: int, blocked: int
) -> None:
    engine.create("q", ordering="key", on_dead=on_dead)
    for n in range(2):
        engine.send(n, ordering_key="k")

    engine.settle("reject", engine.claim_one()["token"])

    assert len(engine.claim(2)) == ready
    assert len(engine.rows("blocked_keys", queue="q")) == blocked


def test_only_what_the_token_holds_is_rejected(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    held = queue.claim_one()

    assert queue.settle("reject", held["token"], [sent[1]]) == ([], [sent[1]])
    assert queue.settle("reject", 1) == ([], [])
    for arguments in ({"token": 1}, {"token": held["token"], "ids": sent}):
        with pytest.raises(psycopg.Error, match="QH304"):
            queue.row("reject", queue="q", strict=True, **arguments)
    assert (queue.stats()["in_flight"], queue.stats()["dead"]) == (1, 0)
