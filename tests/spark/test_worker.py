"""A process of Spark's: what it has loaded is no work for its collections of garbage. No other is touched."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from holdfast.spark import _worker
from holdfast.spark._worker import settle


@pytest.fixture
def unsettled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_worker, "_settled", False)
    yield
    gc.unfreeze()


def test_a_process_of_spark_is_settled_once(monkeypatch: pytest.MonkeyPatch, unsettled: None) -> None:
    monkeypatch.setattr(_worker, "runs_in_spark", lambda: True)

    settle()
    frozen = gc.get_freeze_count()
    later: list[list[int]] = [[] for _ in range(1000)]
    settle()

    assert frozen > len(later)
    assert gc.get_freeze_count() <= frozen


def test_another_process_is_left_alone(unsettled: None) -> None:
    before = gc.get_freeze_count()

    settle()

    assert gc.get_freeze_count() == before
