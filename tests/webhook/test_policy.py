"""What an answer means, and when the next attempt is due.

1. 2xx is done; 5xx, 408, 425, 429 and no answer are tried again; 410 is gone; all else is a dead letter.
2. Pauses grow by the strategy, are never longer than the cap, and chance only shortens them.
3. Retry-After, in seconds or as a date, makes a pause longer, never shorter, and never longer than an hour.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.webhook.policy import (
    LONGEST_RETRY_AFTER,
    Backoff,
    Outcome,
    next_delay,
    outcome_of,
    pause,
    seconds_asked,
)

NOW = datetime(2026, 11, 19, 12, tzinfo=UTC)
SECONDS = st.floats(0, 1e6)
BACKOFFS = st.builds(
    Backoff,
    strategy=st.sampled_from(["exponential", "linear", "fixed"]),
    base=SECONDS,
    factor=st.floats(1, 100),
    increment=SECONDS,
    cap=SECONDS,
    jitter=st.floats(0, 1),
    retry_after=st.booleans(),
)
CHANCES = st.floats(0, 1)
ATTEMPTS = st.integers(1, 10_000)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "done"),
        (204, "done"),
        (299, "done"),
        (301, "dead"),
        (304, "dead"),
        (307, "dead"),
        (400, "dead"),
        (401, "dead"),
        (404, "dead"),
        (408, "retry"),
        (410, "gone"),
        (422, "dead"),
        (425, "retry"),
        (429, "retry"),
        (500, "retry"),
        (503, "retry"),
        (599, "retry"),
        (None, "retry"),
    ],
)
def test_an_outcome_follows_from_the_status(status: int | None, outcome: str) -> None:
    assert outcome_of(status) == Outcome(outcome)


@given(st.integers(100, 999))
def test_every_status_has_an_outcome_by_its_hundreds(status: int) -> None:
    outcome = outcome_of(status)

    assert (outcome is Outcome.DONE) == (status // 100 == 2)
    assert (outcome is Outcome.GONE) == (status == 410)
    assert (outcome is Outcome.RETRY) == (status >= 500 or status in (408, 425, 429))


@pytest.mark.parametrize(
    ("strategy", "pauses"),
    [
        ("exponential", [10, 20, 40, 80, 160, 300, 300]),
        ("linear", [10, 40, 70, 100, 130, 160, 190]),
        ("fixed", [10, 10, 10, 10, 10, 10, 10]),
    ],
)
def test_pauses_grow_by_the_strategy(strategy: str, pauses: list[float]) -> None:
    backoff = Backoff(strategy=strategy)  # type: ignore[arg-type]  # one of the three

    assert [pause(backoff, attempt, 0.0) for attempt in range(1, 8)] == pauses


def test_chance_takes_away_the_share_that_jitter_says() -> None:
    backoff = Backoff(strategy="fixed", base=100, jitter=0.25)

    assert [pause(backoff, 1, chance) for chance in (0.0, 0.5, 1.0)] == [100, 87.5, 75]


@given(BACKOFFS, ATTEMPTS, CHANCES)
def test_a_pause_is_between_nothing_and_the_cap(backoff: Backoff, attempt: int, chance: float) -> None:
    assert 0 <= pause(backoff, attempt, chance) <= backoff.cap


@given(BACKOFFS, ATTEMPTS, CHANCES)
def test_a_pause_is_never_shorter_than_the_one_before(
    backoff: Backoff, attempt: int, chance: float
) -> None:
    assert pause(backoff, attempt, chance) <= pause(backoff, attempt + 1, chance)


@given(BACKOFFS, ATTEMPTS, CHANCES, st.integers(0, 10**12))
def test_retry_after_only_makes_a_pause_longer_and_is_bounded(
    backoff: Backoff, attempt: int, chance: float, asked: int
) -> None:
    own = pause(backoff, attempt, chance)

    delay = next_delay(backoff, attempt, chance=chance, asked=str(asked), now=NOW)

    assert delay == (max(own, min(asked, LONGEST_RETRY_AFTER)) if backoff.retry_after else own)


@given(st.integers(-(10**6), 10**6))
def test_a_date_counts_from_now(seconds: int) -> None:
    asked = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)

    assert seconds_asked(asked, NOW) == max(seconds, 0)


@given(st.text())
def test_whatever_a_receiver_asks_a_delay_comes_of_it(asked: str) -> None:
    delay = next_delay(Backoff(), 1, chance=0.0, asked=asked, now=NOW)

    assert 10 <= delay <= LONGEST_RETRY_AFTER


@pytest.mark.parametrize("asked", ["", "soon", "-5", "1.5", "١٢", "Thu, 99 Nov 2026 12:00:00 GMT"])
def test_what_is_no_retry_after_is_passed_over(asked: str) -> None:
    assert seconds_asked(asked, NOW) is None


def test_a_date_without_a_zone_is_one_of_gmt() -> None:
    assert seconds_asked("Thu, 19 Nov 2026 12:00:30", NOW) == 30
