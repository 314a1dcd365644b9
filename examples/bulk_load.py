"""A hundred thousand messages in one go: COPY does it, in chunks, and all of them or none."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

from holdfast import EmbeddedError, Holdfast, NewMessage
from holdfast.database import database

QUEUE = "example.bulk"
NUMBER = 100_000


def messages() -> Iterator[NewMessage]:
    """Made one at a time: they need not fit into memory."""
    for number in range(NUMBER):
        yield NewMessage(payload={"n": number}, tag="even" if number % 2 == 0 else "odd")


def main() -> None:
    with database(create=False) as url, Holdfast(url) as holdfast:
        holdfast.create_queue(QUEUE)
        began = time.monotonic()
        end = "\r" if sys.stdout.isatty() else "\n"  # in place, if there is a place
        sent = holdfast.bulk_send(
            QUEUE, messages(), progress=lambda total: print(f"{total:,} sent", end=end)
        )
        print(f"{sent:,} sent, {sent / (time.monotonic() - began):,.0f} messages a second")
        print(f"waiting in the queue: {holdfast.queue_stats(QUEUE).depth:,}")
        holdfast.drop_queue(QUEUE)


if __name__ == "__main__":
    try:
        main()
    except EmbeddedError as error:
        sys.exit(f"{error.message}. {error.hint}")
