"""A worker over HTTP: the server pushes messages, at most three of them in flight, until all are done.

    python examples/http_worker.py http://127.0.0.1:8080

The address is that of `holdfast serve`; if the server asks for a key, it is in HOLDFAST_API_KEY. The worker
opens its stream again by itself whenever the server is restarted: what was in flight then comes once more.
"""

from __future__ import annotations

import sys

import holdfast
from holdfast import Client, HttpHoldfast, UnavailableError

QUEUE = "example.http"
TASKS = 12


def produce(client: Client) -> None:
    """Send the tasks; with idempotency keys the client may repeat a send whose answer was lost."""
    messages = [holdfast.NewMessage(payload={"task": n}, idempotency_key=f"task-{n}") for n in range(TASKS)]
    client.send_many(QUEUE, messages)


def work(client: HttpHoldfast) -> int:
    """Do what is pushed, until nothing is left; how many were done."""
    done = 0
    for delivery in client.work(QUEUE, max=3, consumer="example"):
        done += len(client.ack(QUEUE, delivery.token, [delivery.id]).settled)
        if done == TASKS:
            break
    return done


def main(address: str) -> None:
    with HttpHoldfast(address) as client:
        client.create_queue(QUEUE)
        produce(client)
        print(f"pushed and done: {work(client)}")


if __name__ == "__main__":
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080")
    except UnavailableError as error:
        sys.exit(f"{error.message}. {error.hint}")
