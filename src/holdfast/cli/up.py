"""holdfast up: a running Holdfast in one command, with a demonstration."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Annotated

import typer
from psycopg import conninfo

from holdfast.client import Delivery, Holdfast, QueueExistsError
from holdfast.database import configured_url, database
from holdfast.embedded import DEFAULT_DATA_DIR
from holdfast.migrate import migrate

from ._command import Invocation, command

DEMO = "demo"
SECRETS = {"password", "sslpassword"}
GREETINGS = ({"hello": "world"}, {"hello": "again"}, {"good": "bye"})

GUIDE = """\
PostgreSQL is up, and Holdfast is in it. Go on with psql:

    psql {quoted}
{create}    select holdfast.send('{queue}', '{{"hello": "psql"}}');
    select * from holdfast.claim('{queue}');

with Python:

    from holdfast import Holdfast
    with Holdfast({url!r}) as holdfast:
        holdfast.send('{queue}', {{'hello': 'python'}})
        for delivery in holdfast.claim('{queue}', max=10):
            print(delivery.payload)
            holdfast.ack(delivery.queue, delivery.token, [delivery.id])

or in another shell{where}:

    {program} send {queue} '{{"hello": "shell"}}'
    {program} stats

Ctrl-C ends it."""
CREATE = f"    select holdfast.create_queue('{DEMO}');\n"

Demo = Annotated[
    bool, typer.Option("--demo", help=f"Make the queue {DEMO} in a database of yours too, and try it.")
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(up)


def up(invocation: Invocation, demo: Demo = False) -> None:
    """Start PostgreSQL for this folder, install Holdfast, try it, and stay until Ctrl-C."""
    configured = configured_url(invocation.database_url)
    with Stop() as stop, database(invocation.database_url) as url:
        report = migrate(url)
        tried = demonstrate(url) if demo or not configured else None
        stop.started()
        shown = without_password(url) if configured else url
        document = {"url": shown, "version": report.version, "queue": None, "acked": 0}
        if tried is not None:
            document |= {"queue": DEMO, "acked": len(tried)}
        lines = [f"Holdfast is installed, schema version {report.version}."]
        if not configured:
            lines += [f"PostgreSQL keeps its files in {(DEFAULT_DATA_DIR / 'server').resolve()}."]
        lines += [*describe(tried), "", guide(shown, embedded=not configured, made=tried is not None)]
        invocation.output.document(document, "\n".join(lines))
        stop.wait()
        invocation.output.say("Stopping.")


def demonstrate(url: str) -> list[Delivery]:
    """Send, claim and ack a few messages, in a queue that nobody used before."""
    with Holdfast(url, max_size=2) as client:
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


def without_password(url: str) -> str:
    """Where a database is and who connects, without the secrets: what may be read over a shoulder."""
    parts = conninfo.conninfo_to_dict(url)
    return conninfo.make_conninfo("", **{name: part for name, part in parts.items() if name not in SECRETS})


def describe(tried: list[Delivery] | None) -> list[str]:
    """What happened in the queue."""
    if tried is None:
        return ["No queue was made: --demo makes one, and tries it."]
    if not tried:
        return [f"The queue {DEMO} was there before: nothing was sent."]
    return [
        f"Sent, claimed and acked {len(tried)} messages in the queue {DEMO}:",
        *(f"    message {delivery.id}: {json.dumps(delivery.payload)}" for delivery in tried),
    ]


def guide(url: str, *, embedded: bool, made: bool) -> str:
    """How to go on."""
    return GUIDE.format(
        url=url,
        quoted="'" + url.replace("'", r"'\''") + "'",
        queue=DEMO,
        create="" if made else CREATE,
        where=" in this folder" if embedded else "",
        program=shlex.quote(sys.argv[0]),
    )


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

    def wait(self, seconds: float | None = None) -> bool:
        """Stay until a signal comes, or so long; says whether one came."""
        return self._told.wait(seconds)
