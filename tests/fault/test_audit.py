"""The auditor sees what it is there to see. Claims pinned here, on journals written by hand:

1. A history without fault has no violations, nor has one whose only faults are answers that never came.
2. Every kind of broken guarantee is told: lost, never sent, twice at once, too often, risen, stale.
3. A crash ends leases: a second delivery across one is no violation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fault.audit import Audit
from tests.fault.journal import Journal

LEASE = 10.0  # seconds
Story = Callable[["Diary"], None]


class Diary:
    """A journal whose times are told, not measured."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journal = Journal(folder / "diary.jsonl")

    def send(self, key: str = "a") -> None:
        self.note("committing", 0.0, keys=[key])
        self.note("sent", 0.1, keys=[key])

    def deliver(self, at: float, token: int, key: str = "a", *, held: bool = True, number: int = 1) -> None:
        facts = {"queue": "work", "lease": LEASE, "asked": at, "held": held}
        self.note("delivered", at, token=token, items=[[key, 1, number, at + LEASE]], **facts)

    def settle(
        self, at: float, token: int, key: str = "a", *, verb: str = "ack", answer: bool = True
    ) -> None:
        facts = {"verb": verb, "token": token, "keys": [key], "of": f"{token}:{at}"}
        self.note("settling", at, **facts)
        if answer:
            self.note("settled", at + 0.1, asked=at, **facts)

    def note(self, event: str, at: float, **facts: Any) -> None:
        self._journal.write(event, **{"at": at, **facts})

    def close(self) -> None:
        self._journal.close()


@pytest.fixture
def diary(tmp_path: Path) -> Iterator[Diary]:
    diary = Diary(tmp_path)
    yield diary
    diary.close()


def kinds(diary: Diary, *remaining: str, max_deliveries: int = 100) -> list[str]:
    """The violations found, without their details."""
    audit = Audit(diary.folder, remaining=remaining, max_deliveries=max_deliveries)
    return [violation.split(" (")[0] for violation in audit.violations()]


def test_a_message_that_was_sent_delivered_and_acked_is_in_order(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    diary.settle(2.0, 7)

    assert kinds(diary) == []


def test_a_message_in_the_queue_or_with_an_unanswered_ack_is_not_lost(diary: Diary) -> None:
    diary.send("a")
    diary.send("b")
    diary.deliver(1.0, 7, "b")
    diary.settle(2.0, 7, "b", answer=False)

    assert kinds(diary, "a") == []


def test_a_message_that_is_nowhere_is_lost(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    diary.settle(2.0, 7, verb="nack")

    assert kinds(diary) == ["lost: confirmed as sent, never acked and not in the queue"]


@pytest.mark.parametrize("event", ["intent", "undone"])
def test_a_message_that_was_never_committed_must_not_be_seen(diary: Diary, event: str) -> None:
    diary.note(event, 0.5, keys=["a"])
    diary.deliver(1.0, 7)

    assert kinds(diary) == ["delivered, though its send never committed"]
    assert "delivered, though its send never committed" in kinds(diary, "b")


def test_a_second_delivery_within_a_live_lease_is_told(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    diary.deliver(10.9, 8, held=False)

    assert kinds(diary, "a") == ["delivered within a live lease of another"]


def test_an_extended_lease_lives_longer(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    diary.note("extended", 5.0, token=7, keys=["a"], deadline=15.0)
    diary.deliver(12.0, 8)

    assert kinds(diary, "a") == ["delivered within a live lease of another"]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(lambda diary: None, id="ran out"),
        pytest.param(lambda diary: diary.settle(3.0, 7, verb="release"), id="given back"),
        pytest.param(lambda diary: diary.note("outage", 4.0, began=3.0, upto=4.0), id="ended by a crash"),
    ],
)
def test_a_second_delivery_after_the_lease_is_in_order(diary: Diary, end: Story) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    end(diary)
    diary.deliver(11.1, 8)

    assert kinds(diary, "a") == []


def test_a_claim_that_was_rolled_back_held_nothing(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7, held=False)
    diary.deliver(2.0, 8)

    assert kinds(diary, "a") == []


def test_a_delivery_over_the_limit_is_told(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7, number=3)

    assert kinds(diary, "a", max_deliveries=2) == ["delivered more often than allowed"]


def test_a_delivery_after_the_ack_and_a_second_ack_are_told(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    diary.settle(2.0, 7)
    diary.deliver(20.0, 8)
    diary.settle(21.0, 8)

    assert kinds(diary) == ["delivered after its ack was confirmed", "acked twice"]


def test_a_message_still_there_after_its_ack_or_there_twice_is_told(diary: Diary) -> None:
    diary.send("a")
    diary.send("b")
    diary.deliver(1.0, 7, "b")
    diary.settle(2.0, 7, "b")

    told = ["in the queue twice, or after its ack was confirmed"]
    assert kinds(diary, "a", "b") == told
    assert kinds(diary, "a", "a") == told


def test_a_token_from_before_a_crash_that_settles_is_told(diary: Diary) -> None:
    diary.send()
    diary.deliver(1.0, 7)
    diary.note("outage", 4.0, began=3.0, upto=4.0)
    diary.settle(5.0, 7)

    assert kinds(diary) == ["settled by a token from before a crash"]


def test_an_unexpected_error_is_told_and_a_line_cut_off_says_nothing(diary: Diary) -> None:
    diary.note("surprise", 1.0, text="XX000")
    with open(diary.folder / "diary.jsonl", "a") as file:
        file.write('{"event": "sur')

    assert kinds(diary) == ["an error that no fault explains"]
