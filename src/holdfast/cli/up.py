"""holdfast up: a running Holdfast in one command, with a demonstration."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from types import FrameType, TracebackType

import typer

from holdfast.client import Delivery, Holdfast, QueueExistsError
from holdfast.database import configured_url, database
from holdfast.embedded import DEFAULT_DATA_DIR
from holdfast.migrate import migrate

from ._command import Invocation, command

SIGNALS = (signal.SIGINT, signal.SIGTERM)
DEMO = "demo"
GREETINGS = ({"hello": "world"}, {"hello": "again"}, {"good": "bye"})

GUIDE = """\
PostgreSQL is up, and Holdfast is in it. Go on with psql:

    psql '{url}'
    select holdfast.send('{queue}', '{{"hello": "psql"}}');
    select * from holdfast.claim('{queue}');

with Python:

    from holdfast import Holdfast
    with Holdfast('{url}') as holdfast:
        holdfast.send('{queue}', {{'hello': 'python'}})
        for delivery in holdfast.claim('{queue}', max=10):
            print(delivery.payload)
            holdfast.ack(delivery.queue, delivery.token, [delivery.id])

or in another shell{where}:

    {program} send {queue} '{{"hello": "shell"}}'
    {program} stats

Ctrl-C ends it."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(up)


def up(invocation: Invocation) -> None:
    """Start PostgreSQL for this folder, install Holdfast, try it, and stay until Ctrl-C."""
    with Stop() as stop, database(invocation.database_url) as url:
        report = migrate(url)
        with Holdfast(url, max_size=2) as client:
            deliveries = demonstrate(client)
        stop.started()
        document = {"url": url, "version": report.version, "queue": DEMO, "acked": len(deliveries)}
        invocation.output.document(document, describe(invocation, url, report.version, deliveries))
        stop.wait()
        invocation.output.say("Stopping.")


def demonstrate(client: Holdfast) -> list[Delivery]:
    """Send, claim and ack a few messages, in a queue that nobody used before."""
    try:
        if not client.create_queue(DEMO):
            return []
    except QueueExistsError:
        return []
    client.send_batch(DEMO, GREETINGS)
    deliveries = client.claim(DEMO, max=len(GREETINGS))
    if deliveries:
        client.ack(DEMO, deliveries[0].token)
    return deliveries


def describe(invocation: Invocation, url: str, version: int, deliveries: list[Delivery]) -> str:
    """What happened, and how to go on."""
    where = "" if configured_url(invocation.database_url) else " in this folder"
    lines = [f"Holdfast is installed, schema version {version}."]
    if where:
        lines += [f"PostgreSQL keeps its files in {(DEFAULT_DATA_DIR / 'server').resolve()}."]
    if deliveries:
        lines += [f"Sent, claimed and acked {len(deliveries)} messages in the queue {DEMO}:"]
        lines += [f"    message {delivery.id}: {json.dumps(delivery.payload)}" for delivery in deliveries]
    else:
        lines += [f"The queue {DEMO} was there before: nothing was sent."]
    guide = GUIDE.format(url=url, queue=DEMO, where=where, program=shlex.quote(sys.argv[0]))
    return "\n".join([*lines, "", guide])


class Stop:
    """Ctrl-C and SIGTERM: while things are starting they interrupt, from then on they end the wait.

    Only the first one counts: being told twice must not break off the stopping of the server.
    """

    def __init__(self) -> None:
        self._told = threading.Event()
        self._started = False

    def __enter__(self) -> Stop:
        self._before = {
            number: signal.signal(number, self._tell) for number in (signal.SIGINT, signal.SIGTERM)
        }
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        first = not self._told.is_set()
        self._told.set()
        if first and not self._started:
            raise KeyboardInterrupt

    def started(self) -> None:
        """From now on a signal is the ordinary end."""
        self._started = True

    def wait(self) -> None:
        """Stay until a signal comes."""
        self._told.wait()
