"""holdfast serve: the HTTP server."""

from __future__ import annotations

import os
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.database import database, key_folder

from ._command import Invocation, command
from ._origins import network, origin
from ._revival import revived
from ._tls import check_pair
from ._values import duration

if TYPE_CHECKING:
    from holdfast.server.settings import Dispatch

HOST_VARIABLE = "HOLDFAST_HOST"
PORT_VARIABLE = "HOLDFAST_PORT"
LISTEN_VARIABLE = "HOLDFAST_LISTEN_URL"
REDIS_VARIABLE = "HOLDFAST_REDIS_URL"
FORMAT_VARIABLE = "HOLDFAST_LOG_FORMAT"
LEVEL_VARIABLE = "HOLDFAST_LOG_LEVEL"
DIALECTS_VARIABLE = "HOLDFAST_DIALECTS"
ALLOW_VARIABLE = "HOLDFAST_ALLOW"
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8080
SHORTEST, LONGEST = {"statement_timeout": 0.1, "lease": 1.0}, 86_400.0  # seconds that an option takes

Host = Annotated[
    str | None,
    typer.Option(help=f"Where to listen. Else {HOST_VARIABLE}, else {DEFAULT_HOST}.", metavar="ADDRESS"),
]
Port = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help=f"Else {PORT_VARIABLE}, else {DEFAULT_PORT}; 0: any that is free."),
]
Workers = Annotated[int, typer.Option(min=1, max=64, help="How many processes serve.")]
PoolSize = Annotated[int, typer.Option(min=1, max=1000, help="Database connections of each process.")]
MaxBody = Annotated[
    int, typer.Option(min=1024, max=1 << 30, help="Bytes that the body of a request may have.")
]
ListenUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"The database for LISTEN, where the other goes through PgBouncer. Else {LISTEN_VARIABLE}.",
    ),
]
RedisUrl = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help=f"A Redis where servers keep what they know of queues. Else {REDIS_VARIABLE}, else none.",
    ),
]
NoListen = Annotated[bool, typer.Option("--no-listen", help="Never LISTEN: waiting claims poll.")]
Prepare = Annotated[
    bool, typer.Option("--prepare", help="Use prepared statements: not through PgBouncer before 1.21.")
]
Cors = Annotated[
    list[str] | None,
    typer.Option(parser=origin, metavar="ORIGIN", help="An origin whose pages may call; repeatable."),
]
Certificate = Annotated[str | None, typer.Option(metavar="FILE", help="Serve HTTPS with this certificate.")]
PrivateKey = Annotated[str | None, typer.Option(metavar="FILE", help="The key of the certificate.")]
TrustProxy = Annotated[
    bool, typer.Option("--trust-proxy", help="Take X-Forwarded-For and -Proto from a proxy on this machine.")
]
Dialects = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help=f"Other APIs to offer: all, none, or names with commas between them. Else {DIALECTS_VARIABLE}, "
        "else all on loopback, and none elsewhere.",
    ),
]
Proxy = Annotated[
    list[str] | None,
    typer.Option(
        parser=network,
        metavar="ADDRESS",
        help="Take them from this proxy on another machine, or from a network of them; repeatable.",
    ),
]


def lasting(help: str) -> Any:
    """An option that takes a duration."""
    return typer.Option(parser=duration, metavar="DURATION", help=help)


StatementTimeout = Annotated[
    timedelta | None, lasting("How long one call of the database may take; then it is 503. Else 30 s.")
]
Upkeep = Annotated[
    timedelta | None, lasting("Call maintain() so often, by turns with other servers; 0: never. Else 10 s.")
]
Wait = Annotated[timedelta | None, lasting("Wait so long for the database to be there.")]
Drain = Annotated[
    timedelta | None, lasting("When told to end, serve on for so long, while /readyz says 503.")
]
Grace = Annotated[
    timedelta | None, lasting("Then let requests finish for so long, and break them off. Else 15 s.")
]


NoDispatch = Annotated[
    bool, typer.Option("--no-dispatch", help="Deliver nothing to endpoints; somebody else does.")
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ADDRESS",
        help="A network, address or host that deliveries may reach beside the public internet, with or "
        f"without a port; repeatable. Else {ALLOW_VARIABLE}, with commas between them.",
    ),
]

MetricsQueues = Annotated[
    int, typer.Option(min=0, max=1000, help="Of how many queues /metrics has figures, the first by name.")
]


class LogFormat(StrEnum):
    """How lines of the log look."""

    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """From where on something is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


Format = Annotated[
    LogFormat | None,
    typer.Option("--log-format", help=f"Of the log on stderr. Else {FORMAT_VARIABLE}, else text."),
]
Level = Annotated[
    LogLevel | None,
    typer.Option("--log-level", help=f"From where on; requests are info. Else {LEVEL_VARIABLE}, else info."),
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    command(app)(serve)


def serve(
    invocation: Invocation,
    host: Host = None,
    port: Port = None,
    workers: Workers = 1,
    pool_size: PoolSize = 8,
    max_body: MaxBody = 16 * 1024 * 1024,
    listen_url: ListenUrl = None,
    no_listen: NoListen = False,
    redis_url: RedisUrl = None,
    prepare: Prepare = False,
    cors: Cors = None,
    tls_certificate: Certificate = None,
    tls_key: PrivateKey = None,
    trust_proxy: TrustProxy = False,
    dialects: Dialects = None,
    proxy: Proxy = None,
    statement_timeout: StatementTimeout = None,
    upkeep: Upkeep = None,
    wait: Wait = None,
    drain: Drain = None,
    grace: Grace = None,
    no_dispatch: NoDispatch = False,
    allow: Allow = None,
    metrics_queues: MetricsQueues = 100,
    log_format: Format = None,
    log_level: Level = None,
) -> None:
    """Serve HTTP until Ctrl-C or SIGTERM."""
    from holdfast.server.serve import address, bind, check, run
    from holdfast.server.settings import Settings

    check_pair(tls_certificate, tls_key)
    with database(invocation.database_url, create=False) as url:
        settings = Settings(
            database_url=url,
            listen_url=listen_url or os.environ.get(LISTEN_VARIABLE),
            listen=not no_listen,
            redis_url=which_redis(redis_url),
            host=where(host),
            port=which(port),
            max_body=max_body,
            pool_size=pool_size,
            prepare=prepare,
            cors=tuple(cors or ()),
            trust_proxy=trust_proxy,
            key_folder=key_folder(invocation.database_url),
            dialects=offered(dialects),
            proxies=tuple(proxy or ()),
            tls_certificate=tls_certificate,
            tls_key=tls_key,
            dispatch=None if no_dispatch else dispatching(allow),
            metrics_queues=metrics_queues,
            log_format=chosen(LogFormat, log_format, FORMAT_VARIABLE, LogFormat.TEXT),
            log_level=chosen(LogLevel, log_level, LEVEL_VARIABLE, LogLevel.INFO),
            **seconds(statement_timeout=statement_timeout, upkeep=upkeep, drain=drain, grace=grace),
        )
        check(settings, seconds(wait=wait).get("wait", 0.0))
        listener = bind(settings.host, settings.port)
        reached = address(listener, settings)
        invocation.output.document({"address": reached}, served(reached))
        with listener, revived(invocation.database_url, invocation.output.note):
            run(settings, listener, workers)
        invocation.output.say("Stopped.")


def where(host: str | None) -> str:
    """The address to listen on."""
    return host or os.environ.get(HOST_VARIABLE) or DEFAULT_HOST


def which(port: int | None) -> int:
    """The port to listen on."""
    if port is not None:
        return port
    given = os.environ.get(PORT_VARIABLE) or str(DEFAULT_PORT)
    if not (given.isascii() and given.isdigit() and int(given) <= 65535):
        raise typer.BadParameter(f"{PORT_VARIABLE} is {given!r}: a port is a number up to 65535")
    return int(given)


def which_redis(given: str | None) -> str | None:
    """The URL of a Redis, which is never shown: there may be a password in it."""
    from holdfast.server.redis_link import problem_with

    url = given or os.environ.get(REDIS_VARIABLE)
    if url and (problem := problem_with(url)):
        named = "--redis-url" if given else REDIS_VARIABLE
        raise typer.BadParameter(
            f"{named} is no URL of a Redis: {problem}. It is like redis://:password@127.0.0.1:6379/0"
        )
    return url or None


def offered(given: str | None) -> tuple[str, ...] | None:
    """Names of dialects, by the option or by the variable; None: nothing is said of them."""
    from holdfast.dialects import DIALECTS

    words = given or os.environ.get(DIALECTS_VARIABLE) or ""
    names = [name for name in (word.strip() for word in words.split(",")) if name]
    unknown = [name for name in names if name not in (*DIALECTS, "all", "none")]
    if unknown or (len(names) > 1 and {"all", "none"} & set(names)):
        raise typer.BadParameter(
            f"the dialects are {words!r}: it takes all, none, or names out of {', '.join(DIALECTS)}"
        )
    if not names:
        return None
    return {"all": tuple(DIALECTS), "none": ()}.get(names[0], tuple(names))


def dispatching(allow: list[str] | None, **options: Any) -> Dispatch:
    """How messages are delivered, by options and by the environment."""
    from holdfast.server.settings import Dispatch
    from holdfast.webhook.guard import Guard

    words = allow or [word for word in os.environ.get(ALLOW_VARIABLE, "").split(",") if word.strip()]
    try:
        Guard(words)
    except ValueError as error:
        raise typer.BadParameter(f"{'--allow' if allow else ALLOW_VARIABLE}: {error}") from None
    return Dispatch(allow=tuple(words), **options)


def chosen(kind: type[StrEnum], given: StrEnum | None, variable: str, default: StrEnum) -> str:
    """One of several words: by an option, else by a variable."""
    word = given or os.environ.get(variable) or default
    if word not in list(kind):
        raise typer.BadParameter(f"{variable} is {word!r}: it takes {', '.join(kind)}")
    return str(word)


def seconds(**durations: timedelta | None) -> dict[str, Any]:
    """The durations that were given, in seconds."""
    given = {name: value.total_seconds() for name, value in durations.items() if value is not None}
    for name, value in given.items():
        least = SHORTEST.get(name, 0.0)
        if not least <= value <= LONGEST:
            option = f"--{name.replace('_', '-')}"
            raise typer.BadParameter(f"{option} takes {least:g} to {LONGEST:g} seconds, not {value:g}")
    return given


def served(reached: str) -> str:
    """What people are told."""
    return f"Serving HTTP at {reached} (the API is described at {reached}/docs). Ctrl-C ends it."
