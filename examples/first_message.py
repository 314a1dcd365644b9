"""Send a message, claim it, and say that it is done.

Run it with HOLDFAST_DATABASE_URL set to a database in which `holdfast migrate` has been run.
"""

from __future__ import annotations

import os

from holdfast import Holdfast


def main() -> None:
    with Holdfast(os.environ["HOLDFAST_DATABASE_URL"]) as holdfast:
        holdfast.create_queue("example.first")
        holdfast.send("example.first", {"hello": "world"}, tag="greeting")

        for delivery in holdfast.claim("example.first", max=10):
            print(f"got {delivery.payload} with the tag {delivery.tag}")
            holdfast.ack(delivery.queue, delivery.token, [delivery.id])


if __name__ == "__main__":
    main()
