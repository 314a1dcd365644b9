"""What Hypothesis draws: contents, options, durations, configurations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from hypothesis import strategies as st

from tests.property.model import Content, Message, Queue

T = TypeVar("T")

MS = timedelta(milliseconds=1)
SECOND = timedelta(seconds=1)

PRIORITIES = (0, 3, 9)
WAITS = (timedelta(0), MS, 40 * MS, SECOND, 60 * SECOND, timedelta(hours=3))
STEPS = (
    MS,
    5 * MS,
    11 * MS,
    100 * MS,
    249 * MS,
    251 * MS,
    SECOND,
    5 * SECOND,
    31 * SECOND,
    timedelta(hours=2),
)
LEASES = (100 * MS, SECOND, 60 * SECOND)

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=6)
values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), words, st.lists(st.integers(0, 9), max_size=3)
)
# Which of what the model holds. A draw from its own list would, where real time made a replay go another way,
# be a draw from another list, and Hypothesis gives up on that.
nth = st.integers(0, 999)
nths = st.lists(nth, max_size=3)
maximums = st.sampled_from((1, 1, 2, 3, 5, 20))
leases = st.one_of(st.none(), st.sampled_from(LEASES))
waits = st.sampled_from(WAITS)


@dataclass(frozen=True, slots=True)
class Options:
    """A send's options; times are relative, since the clock is the machine's."""

    priority: int | None = None
    delay: timedelta | None = None
    deliver_in: timedelta | None = None
    ttl: timedelta | None = None
    expires_in: timedelta | None = None
    max_deliveries: int | None = None
    extras: dict[str, Any] = field(default_factory=dict)


EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.sampled_from(("application/json", "text/plain")),
        "headers": st.dictionaries(words, values, max_size=2),
        "tag": st.sampled_from(("red", "green")),
        "correlation_id": st.uuids(),
    },
)


@st.composite
def options(draw: st.DrawFn, *, durations: bool = True) -> Options:
    """Options for one send; without durations, as the inbox has no delay and no ttl."""
    when = draw(st.sampled_from(("now", "now", "delay", "deliver_at")))
    life = draw(st.sampled_from(("long", "long", "long", "ttl", "expires_at")))
    return Options(
        priority=draw(st.sampled_from((None, None, *PRIORITIES))),
        delay=draw(waits) if when == "delay" and durations else None,
        deliver_in=draw(st.sampled_from((-SECOND, *WAITS))) if when == "deliver_at" else None,
        ttl=draw(st.sampled_from((MS, SECOND, timedelta(hours=1)))) if life == "ttl" and durations else None,
        expires_in=draw(st.sampled_from((-SECOND, 100 * MS, timedelta(hours=1))))
        if life == "expires_at"
        else None,
        max_deliveries=draw(st.sampled_from((None, None, None, 0, 1, 2))),
        extras=draw(EXTRAS),
    )


def content(mark: int, value: Any, extras: dict[str, Any]) -> Content:
    """A payload, or, for a word with an odd mark, a body. Each carries its mark."""
    if isinstance(value, str) and mark % 2:
        return Content(mark=mark, body=f"{mark}:{value}".encode(), **extras)
    return Content(mark=mark, payload={"n": mark, "v": value}, **extras)


def expected(queue: Queue, what: Content, how: Options, now: datetime, message_id: int = 0) -> Message:
    """The message that a send with these options makes."""
    wait = how.delay if how.delay is not None else how.deliver_in
    life = how.ttl or how.expires_in or queue.ttl
    limit = queue.max_deliveries if how.max_deliveries is None else how.max_deliveries
    return Message(
        id=message_id,
        queue=queue.name,
        content=what,
        priority=how.priority or 0,
        enqueued_at=now,
        due_at=now + wait if wait is not None and wait > timedelta(0) else None,
        expires_at=None if life is None else now + life,
        max_deliveries=how.max_deliveries,
        allowed=limit or 1_000_000,
    )


configurations = st.fixed_dictionaries(
    {},
    optional={
        "max_deliveries": st.sampled_from((0, 1, 2, 3)),
        "lease": st.sampled_from((0.1, 1, "30 s")),
        "backoff": st.sampled_from(({"base": 0}, {"base": "1 s"}, {"base": "100 ms", "factor": 3, "cap": 1})),
        "dead_letter": st.sampled_from((False, None)),
        "shards": st.sampled_from((1, 2)),
        "priorities": st.sampled_from(([0], [0, 9], [3])),
        "ttl": st.sampled_from((None, None, "2 hours", 0.2)),
        "budget": st.sampled_from(("deliveries", "failures", "failures")),
        "lapse_is_failure": st.booleans(),
    },
)


def picked(pool: Sequence[T], places: Iterable[int]) -> list[T]:
    """The members of a list at these places, counted around."""
    return [pool[place % len(pool)] for place in places]
