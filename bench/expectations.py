"""What the engine promises beside its peer, and by how much a run falls short of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.results import Figure, Results, quotient

HOLDFAST, PGMQ = "Holdfast", "pgmq"

BATCH_CPU, BATCH_WAL = 1 / 3, 1 / 2  # of pgmq's, claim + ack by the hundred
SINGLE_CPU = 0.7  # of pgmq's, claim + ack one by one
SEND = 1.0  # of pgmq's
STEADY = 0.9  # last window over first, under pressure
PRESSURE_LEAD = 10.0  # times pgmq's last window
FLAT = 1.2  # deep over shallow, many in flight over none
STATS_US = 5_000.0
ORDER_BATCH, ORDER_SINGLE = 15.0, 6.0  # times the plain drain
PRIORITIES = 2.0
LOG = 1.2


@dataclass(frozen=True, slots=True)
class Expectation:
    """`value` should be at most (or at least) `bound`."""

    title: str
    value: float
    bound: float
    at_least: bool = False
    unit: str = "×"

    @property
    def met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def verdict(self) -> str:
        if self.met:
            return "pass"
        missing = self.bound / self.value if self.at_least else self.value / self.bound
        return f"falls short by {100 * (missing - 1):.0f} %"

    def wanted(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {number(self.bound)} {self.unit}"

    def found(self) -> str:
        return f"{number(self.value)} {self.unit}"


def number(value: float) -> str:
    """Three digits, and no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def judge(results: Results) -> list[Expectation]:
    """Every expectation whose cases were measured."""
    return [
        *_claims(results),
        *_sends(results),
        *_pressure(results),
        *_flat(results),
        *_features(results),
        *_stats(results),
    ]


def _claims(results: Results) -> Iterator[Expectation]:
    for consumers in ("1", "8", "64"):
        yield from _against(results, f"claim-ack-x100-{consumers}", "cpu_us", BATCH_CPU)
    for case in ("claim-ack-x100-1", "claim-ack-x100-aged"):
        yield from _against(results, case, "wal_bytes", BATCH_WAL)
    for consumers in ("1", "8", "64", "8-shards", "64-shards"):
        yield from _against(results, f"claim-ack-x1-{consumers}", "cpu_us", SINGLE_CPU)


def _sends(results: Results) -> Iterator[Expectation]:
    for case in ("send-x1-1", "send-x1-8", "send-x100-1"):
        yield from _against(results, case, "cpu_us", SEND)
        yield from _against(results, case, "wal_bytes", SEND)


def _pressure(results: Results) -> Iterator[Expectation]:
    """Messages per second depend on what else the machine does, CPU hardly: steadiness is judged by both."""
    for case in ("held-snapshot", "idle-writer", "idle-sender", "nacks-snapshot"):
        kinds: tuple[tuple[str, float | None, float], ...] = (
            ("last window over first", _change(results, case, "per_second"), STEADY),
            ("messages per CPU second, last over first", _change(results, case, "cpu_us"), STEADY),
            ("last window over pgmq's", results.ratio(case, "last_per_second"), PRESSURE_LEAD),
        )
        for kind, value, bound in kinds:
            if value is not None:
                yield Expectation(f"{_title(results, case)}: {kind}", value, bound, at_least=True)
    held, free = (results.value(case, HOLDFAST, "last_cpu_us") for case in ("held-snapshot", "undisturbed"))
    kept = quotient(free, held)
    if kept is not None:
        title = f"{_title(results, 'held-snapshot')}: messages per CPU second, last window over undisturbed"
        yield Expectation(title, kept, STEADY, at_least=True)


def _change(results: Results, case: str, figure: Figure) -> float | None:
    """How Holdfast's speed in the last window compares with the first; a cost is turned into a speed."""
    first, last = (results.value(case, HOLDFAST, f"{window}_{figure}") for window in ("first", "last"))
    return quotient(first, last) if figure == "cpu_us" else quotient(last, first)


def _flat(results: Results) -> Iterator[Expectation]:
    pairs = (
        ("backlog-shallow", "backlog-deep"),
        ("in-flight-none", "in-flight-many"),
        ("order-keys-short", "order-keys"),
        ("order-hot-short", "order-hot"),
        ("order-strict-short", "order-strict"),
        ("log-read-short", "log-read"),
    )
    for low, high in pairs:
        above, below = (results.value(case, HOLDFAST, "cpu_us") for case in (high, low))
        growth = quotient(above, below)
        if growth is not None:
            yield Expectation(f"{_title(results, high)}: CPU over {low.split('-')[-1]}", growth, FLAT)


def _features(results: Results) -> Iterator[Expectation]:
    """What a feature costs beside the plain case of the same size."""
    pairs = (
        ("order-keys", "claim-ack-x100-1", ORDER_BATCH),
        ("order-hot", "claim-ack-x1-1", ORDER_SINGLE),
        ("order-strict", "claim-ack-x1-1", ORDER_SINGLE),
        ("scheduled", "claim-ack-x100-1", FLAT),
        ("priorities", "claim-ack-x100-1", PRIORITIES),
        ("log-append", "send-x100-1", LOG),
        ("log-read", "claim-ack-x100-1", LOG),
    )
    for case, plain, bound in pairs:
        special, ordinary = (results.value(name, HOLDFAST, "cpu_us") for name in (case, plain))
        cost = quotient(special, ordinary)
        if cost is not None:
            yield Expectation(f"{_title(results, case)}: CPU over {_title(results, plain)}", cost, bound)


def _stats(results: Results) -> Iterator[Expectation]:
    value = results.value("stats", HOLDFAST, "cpu_us")
    if value is not None:
        yield Expectation(f"{_title(results, 'stats')}: CPU", value, STATS_US, unit="µs")


def _against(results: Results, case: str, figure: Figure, bound: float) -> Iterator[Expectation]:
    value = results.ratio(case, figure)
    if value is not None:
        kind = "CPU" if figure == "cpu_us" else "WAL"
        yield Expectation(f"{_title(results, case)}: {kind} over pgmq's", value, bound)


def _title(results: Results, name: str) -> str:
    return next(case.title for case in results.cases if case.name == name)
