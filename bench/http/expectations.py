"""What the HTTP server promises, beside its peer and beside its own route that does nothing."""

from __future__ import annotations

from collections.abc import Iterator

from bench.expectations import HOLDFAST, Expectation
from bench.http.streams import Pushed
from bench.results import Results, quotient

SEND_LEAD = 3.0  # times the peer's sends a second
SEND_CPU = 2.0  # times the CPU of the route that does nothing
PUSHED = 5_000.0  # messages a second through streams
STEADY = 0.98  # of the rate that was asked for: the last ones still have to come when sending ends


def judge(results: Results, pushed: Pushed | None) -> list[Expectation]:
    """Every expectation whose cases were measured."""
    return [*_sends(results), *_streams(pushed)]


def _sends(results: Results) -> Iterator[Expectation]:
    lead = results.ratio("send", "per_second")
    if lead is not None:
        yield Expectation("sends a second over the peer's", lead, SEND_LEAD, at_least=True)
    cpu = quotient(*(results.value(case, HOLDFAST, "client_us") for case in ("send", "nothing")))
    if cpu is not None:
        yield Expectation("CPU of a send in the server, over the route that does nothing", cpu, SEND_CPU)


def _streams(pushed: Pushed | None) -> Iterator[Expectation]:
    if pushed is not None:
        wanted = PUSHED * STEADY
        yield Expectation("pushed through streams", pushed.per_second, wanted, at_least=True, unit="/s")
        yield Expectation("messages lost by streams", pushed.lost, 0, unit="")
        yield Expectation("messages pushed twice within a lease", pushed.repeated, 0, unit="")
