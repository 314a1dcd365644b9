"""Dead letters: a message that fails too often is kept aside, and can be sent back once the cause is gone."""

from __future__ import annotations

import sys

from holdfast import EmbeddedError, Holdfast
from holdfast.database import database

QUEUE = "example.dead"


def main() -> None:
    with database(create=False) as url, Holdfast(url) as holdfast:
        holdfast.create_queue(QUEUE, {"max_deliveries": 1})
        holdfast.send(QUEUE, {"invoice": 7})
        (delivery,) = holdfast.claim(QUEUE)
        holdfast.nack(QUEUE, delivery.token, error="the printer is on fire")

        for entry in holdfast.browse(QUEUE, "dead"):
            print(f"dead: {entry.payload}, because {entry.last_error}")
        moved = holdfast.redrive(QUEUE, filter={"error": "printer"})
        print(f"sent back: {len(moved)}")

        (delivery,) = holdfast.claim(QUEUE)
        holdfast.ack(QUEUE, delivery.token)
        print(f"done at last: {delivery.payload}")


if __name__ == "__main__":
    try:
        main()
    except EmbeddedError as error:
        sys.exit(f"{error.message}. {error.hint}")
