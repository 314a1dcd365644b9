"""One comparison: an action that everybody does in their own way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from bench.spark.ground import Ground
from bench.spark.meter import Action

HOLDFAST = "Holdfast"

Setting = Callable[[Ground, int], AbstractContextManager[Action]]
"""Prepares the action for so many messages, and tidies up after it; neither is measured."""


@dataclass(frozen=True, slots=True)
class Rival:
    """One way to do it. share: of how many of the messages; the slow ones do fewer."""

    name: str
    setting: Setting
    share: float = 1.0
    spark: bool = True


@dataclass(frozen=True, slots=True)
class SparkCase:
    """times: how many messages it has for each that was asked for."""

    name: str
    title: str
    rivals: Sequence[Rival]
    times: int = 1
