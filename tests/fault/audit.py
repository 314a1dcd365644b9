"""The auditor: holds what the journals say against the guarantees, and against what PostgreSQL still has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from tests.fault.journal import Event, read_journals

SHOWN = 5  # violations of a kind that are told in full
ROUNDING = 0.000_001  # seconds: times of this century, as floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message in one answer of claim."""

    key: str
    token: int
    asked: float  # when the consumer called, by its clock
    since: float  # when the claim began, by the server's clock, which is the same one
    until: float  # when the lease runs out
    held: bool  # the claim is committed
    number: int  # which delivery of this message it was, by the server's count


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How much an audit saw: a test that saw nothing proves nothing."""

    sent: int
    in_doubt: int
    undone: int
    delivered: int
    acked: int
    outages: int


class Audit:
    """What happened, told by the journals of a folder; `remaining`: the keys of the messages still there."""

    def __init__(self, folder: Path, *, remaining: Iterable[str], max_deliveries: int = 10**6) -> None:
        self._events = read_journals(folder)
        self._remaining = list(remaining)
        self._limit = max_deliveries
        self._deliveries = list(self._read_deliveries())
        self._outages = [(float(e["began"]), float(e["upto"])) for e in self._of("outage")]

    @property
    def sent(self) -> set[str]:
        """Messages whose commit was confirmed."""
        return self._keys("sent")

    def sent_to(self, queue: str) -> set[str]:
        """Those of them that were sent to a queue."""
        return {key for key in self.sent if key.startswith(f"producer-{queue}-")}

    @property
    def possible(self) -> set[str]:
        """Messages that may exist."""
        return self._keys("committing") - self._keys("undone")

    @property
    def figures(self) -> Figures:
        """The size of what was audited."""
        return Figures(
            sent=len(self.sent),
            in_doubt=len(self.possible - self.sent),
            undone=len((self._keys("intent") | self._keys("undone")) - self.possible),
            delivered=len(self._deliveries),
            acked=len(self._acked()),
            outages=len(self._outages),
        )

    def violations(self) -> list[str]:
        """Everything that breaks a guarantee; empty if nothing does."""
        checks = {
            "lost: confirmed as sent, never acked and not in the queue": self.lost(),
            "delivered, though its send never committed": self.ghosts(),
            "delivered within a live lease of another": self.doubles(),
            "delivered more often than allowed": self.excess(),
            "delivered after its ack was confirmed": self.risen(),
            "acked twice": self.acked_twice(),
            "in the queue twice, or after its ack was confirmed": self.leftovers(),
            "settled by a token from before a crash": self.stale(),
            "delivered before one that comes before it in its line was acked": self.disorder(),
            "an error that no fault explains": self.surprises(),
        }
        return [
            f"{what} ({len(found)}): {'; '.join(found[:SHOWN])}" for what, found in checks.items() if found
        ]

    def lost(self) -> list[str]:
        """G1."""
        tried = {key for event in self._settling() for key in event["keys"]}
        return sorted(self.sent - tried - set(self._remaining))

    def ghosts(self) -> list[str]:
        """G2."""
        seen = {delivery.key for delivery in self._deliveries} | set(self._remaining)
        return sorted(seen - self.possible)

    def doubles(self) -> list[str]:
        """G3. All times are the server's, so nothing is allowed for but rounding."""
        by_key: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in self._deliveries:
            by_key[delivery.key].append(delivery)
        ends = self._ends()
        return [
            f"{first.key}: {first.token} until {first.until:.3f}, {second.token} at {second.since:.3f}"
            for deliveries in by_key.values()
            for first, second in permutations(deliveries, 2)
            if first.held
            and first.token != second.token
            and first.since < second.since < ends.get((first.token, first.key), first.until) - ROUNDING
            and second.since < first.until - ROUNDING
            and not self._outage_within(first.since, second.since)
        ]

    def excess(self) -> list[str]:
        """G5. A crash may forget deliveries, so a test that crashes the server sets no limit."""
        return sorted({f"{d.key}: {d.number}" for d in self._deliveries if d.number > self._limit})

    def risen(self) -> list[str]:
        """G1, the other way round: what is done stays done."""
        done = self._acked()
        return [
            f"{delivery.key}: acked at {done[delivery.key][0]:.3f}, asked for at {delivery.asked:.3f}"
            for delivery in self._deliveries
            if delivery.key in done and delivery.asked > done[delivery.key][0]
        ]

    def acked_twice(self) -> list[str]:
        """G4: of two tokens only one settles."""
        return sorted(key for key, times in self._acked().items() if len(times) > 1)

    def leftovers(self) -> list[str]:
        """Nothing is in the queue twice, nor once it is done."""
        twice = {key for key in self._remaining if self._remaining.count(key) > 1}
        return sorted(twice | (set(self._remaining) & self._acked().keys()))

    def stale(self) -> list[str]:
        """G4 across a crash."""
        since = {delivery.token: delivery.since for delivery in self._deliveries}
        return [
            f"{event['verb']} of {event['keys']} with {event['token']}"
            for event in self._of("settled")
            if event["keys"] and event["token"] in since
            for began, ended in self._outages
            if since[event["token"]] < began and event["asked"] > ended
        ]

    def disorder(self) -> list[str]:
        """G6. A liner numbers what it sends; only acks end it, and each is journalled before it is called."""
        ended: dict[str, float] = {}
        for event in self._of("settling"):
            for key in event["keys"] if event["verb"] == "ack" else []:
                ended.setdefault(str(key), float(event["at"]))
        lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for key in self.sent:
            if key.startswith("liner-"):
                name, _, number = key.partition(":")
                lines[name].append((int(number), ended.get(key, float("inf"))))
        return sorted(
            f"{key} at {event['at']:.3f}, before {name}:{before}"
            for event in self._of("delivered")
            for key, *_ in event["items"]
            for name, _, number in [str(key).partition(":")]
            for before, end in lines.get(name, [])
            if before < int(number) and end > float(event["at"])
        )

    def surprises(self) -> list[str]:
        """Errors in producers and consumers, but for those that a fault brings."""
        return [str(event["text"]) for event in self._of("surprise")]

    def _of(self, kind: str) -> Iterator[Event]:
        return (event for event in self._events if event["event"] == kind)

    def _keys(self, kind: str) -> set[str]:
        return {str(key) for event in self._of(kind) for key in event["keys"]}

    def _settling(self) -> Iterator[Event]:
        """Acks that took effect, or may have: those of which no answer came."""
        answered = {event["of"] for event in self._of("settled")}
        for event in self._of("settling"):
            if event["verb"] == "ack" and event["of"] not in answered:
                yield event
        yield from (event for event in self._of("settled") if event["verb"] == "ack")

    def _acked(self) -> dict[str, list[float]]:
        times: dict[str, list[float]] = defaultdict(list)
        for event in self._of("settled"):
            for key in event["keys"] if event["verb"] == "ack" else []:
                times[key].append(float(event["at"]))
        return times

    def _ends(self) -> dict[tuple[int, str], float]:
        """From when on a lease may have been given up by its own holder."""
        ends: dict[tuple[int, str], float] = {}
        for event in self._of("settling"):
            for key in event["keys"]:
                ends.setdefault((int(event["token"]), str(key)), float(event["at"]))
        return ends

    def _read_deliveries(self) -> Iterator[Delivery]:
        extended: dict[tuple[int, str], float] = {}
        for event in self._of("extended"):
            extended |= {(int(event["token"]), key): float(event["deadline"]) for key in event["keys"]}
        for event in self._of("delivered"):
            token = int(event["token"])
            for key, _id, number, deadline in event["items"]:
                yield Delivery(
                    key=str(key),
                    token=token,
                    asked=float(event["asked"]),
                    since=float(deadline) - float(event["lease"]),
                    until=max(float(deadline), extended.get((token, str(key)), 0.0)),
                    held=bool(event["held"]),
                    number=int(number),
                )

    def _outage_within(self, start: float, end: float) -> bool:
        return any(start <= upto and end >= began for began, upto in self._outages)
