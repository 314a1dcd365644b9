"""What the data source promises beside its peers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.expectations import Expectation
from bench.results import Results
from bench.spark.case import HOLDFAST

READ_JDBC, READ_COPY = 0.9, 0.5  # of their messages per second
SEND_JDBC = 1.5
CONSUMED = 60_000.0  # messages per second, acked
WORKER_MIB = 512.0
RATIOS = (
    ("read", "JDBC", READ_JDBC),
    ("read", "COPY", READ_COPY),
    ("read-columns", "JDBC", READ_JDBC),
    ("read-columns", "COPY", READ_COPY),
    ("send", "JDBC", SEND_JDBC),
)


def judge(results: Results) -> list[Expectation]:
    """Every expectation whose cases were measured."""
    return [*_ratios(results), *_rates(results), *_memory(results)]


def _ratios(results: Results) -> Iterator[Expectation]:
    for case, peer, bound in RATIOS:
        value = results.ratio(case, "per_second", peer)
        if value is not None:
            title = f"{_title(results, case)}: messages/s over those of {peer}"
            yield Expectation(title, value, bound, at_least=True)


def _rates(results: Results) -> Iterator[Expectation]:
    value = results.value("consume", HOLDFAST, "per_second")
    if value is not None:
        yield Expectation(_title(results, "consume"), value, CONSUMED, at_least=True, unit="/s")


def _memory(results: Results) -> Iterator[Expectation]:
    """No process keeps what it has read: the memory of a worker does not grow with the messages."""
    for case in results.cases:
        value = results.value(case.name, HOLDFAST, "worker_mib")
        if value:
            yield Expectation(f"{case.title}: largest Python worker", value, WORKER_MIB, unit="MiB")


def _title(results: Results, name: str) -> str:
    return next(case.title for case in results.cases if case.name == name)
