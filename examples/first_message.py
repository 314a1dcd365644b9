"""Send a message, claim it, and say that it is done.

The database is HOLDFAST_DATABASE_URL's, else the embedded server of the folder, which `holdfast up` makes.
"""

from __future__ import annotations

import sys

from holdfast import EmbeddedError, Holdfast
from holdfast.database import database


def main() -> None:
    with database(create=False) as url, Holdfast(url) as holdfast:
        holdfast.create_queue("example.first")
        holdfast.send("example.first", {"hello": "world"}, tag="greeting")

        for delivery in holdfast.claim("example.first", max=10):
            print(f"got {delivery.payload} with the tag {delivery.tag}")
            holdfast.ack(delivery.queue, delivery.token, [delivery.id])


if __name__ == "__main__":
    try:
        main()
    except EmbeddedError as error:
        sys.exit(f"{error.message}. {error.hint}")
