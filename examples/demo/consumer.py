"""A consumer: claims some orders, books what it can, and says of the others what went wrong.

    python -m examples.demo.consumer QUEUE NAME MICROSECONDS    until SIGTERM
"""

from __future__ import annotations

import signal
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from threading import Event

from holdfast import Delivery, Holdfast
from holdfast.database import database

BATCH = 200
UNLUCKY = 0.02  # share of deliveries at which a warehouse does not answer


class OrderError(Exception):
    """This order cannot be booked."""


def book(delivery: Delivery, random: Random) -> float:
    """The work itself: returns the amount."""
    order = delivery.payload
    if order["country"] is None:
        raise OrderError(f"order {order['order']} goes to no country")
    if random.random() < UNLUCKY:
        raise OrderError(f"warehouse {random.randrange(1, 9)} did not answer within 250 ms")
    try:
        return float(order["amount"])
    except ValueError as error:
        raise OrderError(str(error)) from error


def settle(holdfast: Holdfast, deliveries: Sequence[Delivery], random: Random) -> None:
    """Book orders that were claimed together: ack the good ones in one call, nack the others by reason."""
    done, failed = [], defaultdict(list)
    for delivery in deliveries:
        try:
            book(delivery, random)
        except OrderError as error:
            failed[str(error)].append(delivery.id)
        else:
            done.append(delivery.id)
    queue, token = deliveries[0].queue, deliveries[0].token
    holdfast.ack(queue, token, done)
    for reason, ids in failed.items():
        holdfast.nack(queue, token, ids, error=reason)


def main(queue: str, name: str, microseconds: str) -> None:
    random, stop = Random(name), Event()
    # Ctrl-C reaches everybody at the terminal: whoever started this one hears it too, and ends it in order.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
    with database(create=False) as url, Holdfast(url) as holdfast:
        while not stop.is_set():
            deliveries = holdfast.claim(queue, max=BATCH, lease=30, consumer=name, wait=0.5)
            if deliveries:
                time.sleep(int(microseconds) / 1_000_000 * len(deliveries))
                settle(holdfast, deliveries, random)


if __name__ == "__main__":
    main(*sys.argv[1:])
