"""A worker: waits for messages, acks what works, nacks what fails, and stops when nothing comes any more.

What fails too often ends among the dead letters; the last lines show them. While the database is away, it
tries again: what it had claimed comes back when the lease ends.
"""

from __future__ import annotations

import sys
import time

import psycopg

from holdfast import Delivery, EmbeddedError, Holdfast
from holdfast.database import database

QUEUE = "example.worker"


def handle(delivery: Delivery) -> None:
    """The work itself: divides, and so fails on zero."""
    print(f"100 / {delivery.payload} = {100 / delivery.payload:g}")


def work(holdfast: Holdfast) -> None:
    """Work until half a second passes without a message."""
    while deliveries := holdfast.claim(QUEUE, max=10, lease=60, consumer="example", wait=0.5):
        for delivery in deliveries:
            try:
                handle(delivery)
            except ArithmeticError as error:
                holdfast.nack(QUEUE, delivery.token, [delivery.id], error=str(error))
            else:
                holdfast.ack(QUEUE, delivery.token, [delivery.id])


def keep_working(holdfast: Holdfast) -> None:
    """The same, also while the database is restarted: the client connects again by itself."""
    while True:
        try:
            return work(holdfast)
        except psycopg.OperationalError as error:
            print(f"trying again: {error}", file=sys.stderr)
            time.sleep(1)


def main() -> None:
    with database(create=False) as url, Holdfast(url) as holdfast:
        holdfast.create_queue(QUEUE, {"max_deliveries": 2})
        holdfast.send_batch(QUEUE, [1, 5, 0, 20])
        keep_working(holdfast)
        for entry in holdfast.browse(QUEUE, "dead"):
            print(f"dead: {entry.payload}, because of {entry.last_error}")
            holdfast.discard(QUEUE, [entry.id])


if __name__ == "__main__":
    try:
        main()
    except EmbeddedError as error:
        sys.exit(f"{error.message}. {error.hint}")
