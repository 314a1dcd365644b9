"""What each customer has spent so far: state that a stream keeps from batch to batch.

holdfast pipeline run stream --from orders --payload-schema 'customer STRING, price BIGINT' \
    --function examples.streams.spending:spending --checkpoint /data/checkpoints/spending \
    --to-table spending --output-mode update --key customer
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle


class Spending(StatefulProcessor):
    """Keeps one sum for each customer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Before the first batch, and after each restart."""
        self._spent = handle.getValueState("spent", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The orders of one customer in this batch."""
        before = self._spent.get()
        total = (before[0] if before else 0) + sum(row.price for row in rows)
        self._spent.update((total,))
        yield Row(customer=key[0], total=total)

    def close(self) -> None:
        """Nothing is open."""


def spending(orders: DataFrame) -> DataFrame:
    """The new sum of each customer in a batch."""
    return (
        orders.select("payload.*")
        .groupBy("customer")
        .transformWithState(Spending(), "customer STRING, total BIGINT", "update", "none")
    )
