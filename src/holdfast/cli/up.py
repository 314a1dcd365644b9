"""holdfast up: a running Holdfast in one command, with a demonstration."""

from __future__ import annotations

import json
import shlex
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType, TracebackType
from typing import Annotated

import typer
from psycopg import conninfo

from holdfast.client import Delivery, Holdfast, QueueExistsError
from holdfast.database import URL_VARIABLE, configured_url, database, key_folder
from holdfast.embedded import DEFAULT_DATA_DIR, EmbeddedError
from holdfast.migrate import migrate

from ._command import Invocation, command
from ._revival import revived
from .postgres import find_program
from .serve import (
    FORMAT_VARIABLE,
    LEVEL_VARIABLE,
    Allow,
    Format,
    Host,
    LogFormat,
    LogLevel,
    NoDispatch,
    Port,
    chosen,
    dispatching,
    offered,
    where,
    which,
    which_redis,
)

DEMO = "demo"
OTHER = "orders"  # in the guide, where there is no demonstration
SECRETS = {"password", "sslpassword"}
UPKEEP_SECONDS = 10.0
SQL_DIALECTS = ("foundrydb",)
GREETINGS = ({"hello": "world"}, {"hello": "again"}, {"good": "bye"})

GUIDE = """\
{where}
{psql}
with Python:

{imports}    from holdfast import Holdfast
    with Holdfast({python}) as holdfast:
{create_python}        holdfast.send('{queue}', {{'hello': 'python'}})
        for delivery in holdfast.claim('{queue}', max=10):
            print(delivery.payload)
            holdfast.ack(delivery.queue, delivery.token, [delivery.id])

with HTTP, described at {reached}/docs:

{create_curl}    curl -s {reached}/v1/queues/{queue}/messages{key} -H 'Content-Type: application/json' \\
      -d '{{"messages": [{{"payload": {{"hello": "http"}}}}]}}'

or with the command line:

{create_shell}    {program} send {queue} '{{"hello": "shell"}}'
    {program} stats

{keys}

This calls maintain() every {upkeep:g} s; where it does not run, something else has to.
Ctrl-C ends it."""
PSQL = """
with psql:

    {program} psql
{create}    select holdfast.send('{queue}', '{{"hello": "psql"}}');
    select token, payload from holdfast.claim('{queue}') \\gset
    select holdfast.ack('{queue}', :token);
"""
CREATE_CURL = "    curl -s -X PUT {reached}/v1/queues/{queue}{key}\n"
OPEN = """\
While there is no API key, HTTP is open to programs on this machine alone; the first one closes it:

    {program} key create mine --scope admin"""
CLOSED = """\
HTTP takes requests with an API key alone, since there are keys, or were:

    {program} key list --all"""
KEY = ' -H "Authorization: Bearer $key"'
HERE = "PostgreSQL is up, and Holdfast is in it. Go on in another shell, in this folder:"
THERE = f"""\
Holdfast is in your database. Go on in another shell:

    export {URL_VARIABLE}={{url}}"""
SECRET = "\n\nThe password is not shown: add it there, or keep it in ~/.pgpass."

Demo = Annotated[
    bool, typer.Option("--demo", help=f"Make the queue {DEMO} in a database of yours too, and try it.")
]
QuietLevel = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level", help=f"From where on; requests are info. Else {LEVEL_VARIABLE}, else warning."
    ),
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(up)


def up(
    invocation: Invocation,
    demo: Demo = False,
    host: Host = None,
    port: Port = None,
    no_dispatch: NoDispatch = False,
    allow: Allow = None,
    log_format: Format = None,
    log_level: QuietLevel = None,
) -> None:
    """Start PostgreSQL for this folder, install Holdfast, try it, and serve it until Ctrl-C."""
    from holdfast.dialects import chosen as chosen_dialects
    from holdfast.server.logs import configure
    from holdfast.server.serve import address, bind, check, serving
    from holdfast.server.settings import Settings

    configured = configured_url(invocation.database_url)
    redis_url = which_redis(None)
    named = offered(None)
    # The port first: one that is taken shall not cost the making of a server.
    with (
        Stop() as stop,
        bind(where(host), which(port)) as listener,
        database(invocation.database_url) as url,
    ):
        # In a database of somebody's own there is nothing but what he asks for.
        report = migrate(url, dialects=() if configured else in_sql(named))
        settings = Settings(
            database_url=url,
            redis_url=redis_url,
            host=where(host),
            port=which(port),
            upkeep=UPKEEP_SECONDS,
            key_folder=key_folder(invocation.database_url),
            dialects=named,
            dispatch=None if no_dispatch else dispatching(allow),
            log_format=chosen(LogFormat, log_format, FORMAT_VARIABLE, LogFormat.TEXT),
            log_level=chosen(LogLevel, log_level, LEVEL_VARIABLE, LogLevel.WARNING),
        )
        closed = check(settings)
        configure(settings.log_format, settings.log_level)
        reached = address(listener, settings)
        tried = demonstrate(url) if demo or not configured else None
        stop.started()
        shown = without_password(url) if configured else url
        document = {"url": shown, "address": reached, "version": report.version, "queue": None, "acked": 0}
        if tried is not None:
            document |= {"queue": DEMO, "acked": len(tried)}
        lines = [f"Holdfast is installed, schema version {report.version}."]
        if not configured:
            lines += [f"PostgreSQL keeps its files in {(DEFAULT_DATA_DIR / 'server').resolve()}."]
        made = tried is not None
        way = (
            guide_to(url, reached, made=made, closed=closed)
            if configured
            else guide(url, reached, closed=closed)
        )
        others = chosen_dialects(settings.dialects, everything=settings.on_loopback)
        if others:
            names = listed([dialect.name for dialect in others])
            lines += [f"Clients of {names} run against it too, at {reached}."]
        lines += [*describe(tried), "", way]
        alive = revived(invocation.database_url, invocation.output.note)
        with serving(settings, listener, stop.hurries), alive:
            invocation.output.document(document, "\n".join(lines))
            stop.wait()
        invocation.output.say("Stopping.")


def in_sql(named: Sequence[str] | None) -> list[str]:
    """The dialects that are schemas too, out of those that are named; None: nothing is said of them."""
    return [name for name in SQL_DIALECTS if named is None or name in named]


def listed(names: Sequence[str]) -> str:
    """Names as a sentence has them."""
    return " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)


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


def guide(url: str, reached: str, *, closed: bool = False) -> str:
    """How to go on with the embedded server; closed: whether HTTP takes a key."""
    return filled(DEMO, made=True, closed=closed, where=HERE, imports="", python=repr(url), reached=reached)


def guide_to(url: str, reached: str, *, made: bool, closed: bool) -> str:
    """How to go on with a database of one's own: its address is told once, without the secrets."""
    secret = SECRET if conninfo.conninfo_to_dict(url).keys() & SECRETS else ""
    return filled(
        DEMO if made else OTHER,
        made=made,
        closed=closed,
        where=THERE.format(url=quoted(without_password(url))) + secret,
        imports="    import os\n",
        python=f'os.environ["{URL_VARIABLE}"]',
        reached=reached,
    )


def filled(queue: str, *, made: bool, closed: bool, **words: str) -> str:
    """The guide; it makes the queue first if that is not there."""
    program = shlex.quote(sys.argv[0])
    words |= {"key": KEY if closed else "", "keys": (CLOSED if closed else OPEN).format(program=program)}
    create = f"holdfast.create_queue('{queue}')"
    in_psql = PSQL.format(program=program, create="" if made else f"    select {create};\n", queue=queue)
    return GUIDE.format(
        queue=queue,
        psql=in_psql if has_psql() else "",
        create_curl="" if made else CREATE_CURL.format(queue=queue, **words),
        create_python="" if made else f"        {create}\n",
        create_shell="" if made else f"    {program} queue create {queue}\n",
        program=program,
        upkeep=UPKEEP_SECONDS,
        **words,
    )


def has_psql() -> bool:
    """Whether there is a psql to run."""
    try:
        find_program("psql")
    except EmbeddedError:
        return False
    return True


def quoted(url: str) -> str:
    """A word for the shell, always in quotes."""
    return "'" + url.replace("'", r"'\''") + "'"


class Stop:
    """Ctrl-C and SIGTERM: while things are starting they interrupt, from then on they end the wait.

    Being told twice hurries requests, but must not break off the stopping of PostgreSQL.
    """

    def __init__(self) -> None:
        self._told = threading.Event()
        self._started = False
        self._again = False

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
        self._again = not first
        self._told.set()
        if first and not self._started:
            raise KeyboardInterrupt

    def hurries(self) -> bool:
        """Whether a second signal came."""
        return self._again

    def started(self) -> None:
        """From now on a signal is the ordinary end."""
        self._started = True

    def wait(self, seconds: float | None = None) -> bool:
        """Stay until a signal comes, or so long; says whether one came."""
        return self._told.wait(seconds)
