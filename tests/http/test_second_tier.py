"""What servers remember of queues, for themselves and in Redis. Claims pinned here:

1. What one server has looked up another finds in Redis, for 30 seconds, under the database's name.
2. A change is in force at all servers at once, by NOTIFY alone, by Redis alone, and by both.
3. A change of which nobody is told is in force when what is in Redis is too old, and no later.
4. What was looked up before a change is worth nothing after it, however late it comes.
5. Requests neither fail nor wait where Redis is not there, dies, hangs or refuses; it is told once, without
   the password. When it is back it is used again, and what had changed meanwhile is told.
6. What is in Redis and makes no sense is passed over.
7. Databases that share a Redis have nothing in common in it.
8. What is no URL of a Redis is refused before the server starts, without being shown.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast.server import configs, redis_link, second_tier
from holdfast.server.configs import QueueSettings
from holdfast.server.redis_link import problem_with
from holdfast.server.second_tier import SecondTier
from holdfast.server.service import Service
from holdfast.server.settings import Settings
from tests.cli.conftest import environment, execute
from tests.fix_database import holdfast_database
from tests.fix_http import Serve
from tests.fix_redis import PASSWORD, RedisServer
from tests.http.conftest import OpenService
from tests.waiting import comes, eventually

Conn = psycopg.Connection[Any]
AGES = 3600.0


@pytest.fixture
def orders(conn: Conn) -> Conn:
    """A connection to a database with the queue `orders`, whose colour is red."""
    conn.execute("select holdfast.create_queue('orders')")
    paint(conn, "red")
    return conn


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find out soon that Redis is gone, or back."""
    monkeypatch.setattr(redis_link, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(redis_link, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(redis_link, "FIRST_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(redis_link, "LONGEST_PAUSE_SECONDS", 0.1)


@pytest.fixture
def forgetless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a process remembers grows old by itself."""
    monkeypatch.setattr(configs, "FRESH_SECONDS", AGES)


def paint(conn: Conn, colour: str) -> None:
    conn.execute("select holdfast.configure_queue('orders', %s)", [Jsonb({"annotations": {"it": colour}})])


async def colour(service: Service, queue: str = "orders") -> str | None:
    return (await service.configs.of(queue)).annotations.get("it")


async def is_used(service: Service) -> None:
    """Wait until nothing keeps a server from asking Redis."""

    async def look() -> bool:
        return await tier_of(service).look("none") is not None

    await comes(look, what="Redis is used")


def tier_of(service: Service) -> SecondTier:
    assert service.tier is not None
    return service.tier


async def turns(service: Service, wanted: str) -> None:
    async def look() -> bool:
        return await colour(service) == wanted

    await comes(look, what=f"it is {wanted}")


def entries(redis: RedisServer) -> list[str]:
    return [key.decode() for key in redis.client.scan_iter("*:entry:*")]


async def is_entered(redis: RedisServer, count: int = 1) -> None:
    await asyncio.to_thread(eventually, lambda: len(entries(redis)) == count, what=f"{count} are in Redis")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in (record.getMessage() for record in caplog.records) if "Redis" in line]


# --- 1. remembered together -----------------------------------------------------------------------


async def test_what_one_has_looked_up_another_finds_in_redis(
    orders: Conn, redis_server: RedisServer, open_service: OpenService
) -> None:
    first, second = [await open_service(listen=False, redis_url=redis_server.url) for _ in range(2)]
    await asyncio.gather(is_used(first), is_used(second))

    await colour(first)
    await is_entered(redis_server)
    paint(orders, "blue")  # and nobody hears of it
    found = await colour(second)

    (key,) = entries(redis_server)
    row = orders.execute(
        "select c.system_identifier || '.' || d.oid from pg_control_system() c, pg_database d"
        " where d.datname = current_database()"
    ).fetchone()
    assert row is not None
    assert found == "red"
    assert key == f"holdfast:1:{{{row[0]}}}:entry:{configs.FORM}:orders"
    assert 0 < redis_server.client.pttl(key) <= 30_000


# --- 2. changes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("with_redis", [False, True])
async def test_by_notify_a_change_is_in_force_at_once(
    orders: Conn, redis_server: RedisServer, open_service: OpenService, forgetless: None, with_redis: bool
) -> None:
    url = redis_server.url if with_redis else None
    first, second = [await open_service(redis_url=url) for _ in range(2)]
    if with_redis:
        await asyncio.gather(is_used(first), is_used(second))
    assert [await colour(first), await colour(second)] == ["red", "red"]

    paint(orders, "blue")

    await asyncio.gather(turns(first, "blue"), turns(second, "blue"))


async def test_by_redis_alone_a_change_is_in_force_at_once(
    orders: Conn, redis_server: RedisServer, serve: Serve, open_service: OpenService, forgetless: None
) -> None:
    here = serve(listen=False, redis_url=redis_server.url)
    there = await open_service(listen=False, redis_url=redis_server.url)
    await is_used(there)

    async def after(wanted: Callable[[QueueSettings], bool], *request: Any, status: int = 200) -> None:
        assert not wanted(await there.configs.of("orders"))
        await asyncio.to_thread(here.ok, *request, status=status)

        async def look() -> bool:
            return wanted(await there.configs.of("orders"))

        await comes(look, what=f"{request}")

    await after(
        lambda found: found.annotations == {"it": "blue"},
        *("PATCH", "/v1/queues/orders", {"annotations": {"it": "blue"}}),
    )
    await after(lambda found: found.claim_window == 1, "PATCH", "/v1/defaults", {"claim_window": "1 s"})
    schema = {"definition": {"type": "object"}}
    await after(lambda found: found.schema is not None, "PUT", "/v1/queues/orders/schema", schema)
    await after(lambda found: found.schema is None, "DELETE", "/v1/queues/orders/schema")
    await after(lambda found: found.kind is None, "DELETE", "/v1/queues/orders")
    await after(lambda found: found.kind == "log", "PUT", "/v1/queues/orders", {"kind": "log"}, status=201)


# --- 3. both lost ---------------------------------------------------------------------------------


async def test_without_any_signal_it_takes_as_long_as_an_entry_is_good(
    orders: Conn,
    redis_server: RedisServer,
    open_service: OpenService,
    monkeypatch: pytest.MonkeyPatch,
    forgetless: None,
) -> None:
    monkeypatch.setattr(second_tier, "ENTRY_SECONDS", 1.0)
    first, second = [await open_service(listen=False, redis_url=redis_server.url) for _ in range(2)]
    await asyncio.gather(is_used(first), is_used(second))
    await colour(first)
    await is_entered(redis_server)
    paint(orders, "blue")

    found = await colour(second)

    assert found == "red"
    await turns(second, "blue")  # though a process would remember it for an hour


# --- 4. stale -------------------------------------------------------------------------------------


@pytest.mark.parametrize("changed", ["orders", ""])
async def test_what_was_looked_up_before_a_change_is_worth_nothing_after_it(
    orders: Conn, redis_server: RedisServer, open_service: OpenService, changed: str
) -> None:
    slow, other = [
        tier_of(await open_service(listen=False, redis_url=redis_server.url)) for _ in range(2)
    ]

    async def look(tier: SecondTier) -> second_tier.Place | None:
        return await tier.look("orders")

    place = await comes(lambda: look(slow), what="Redis is used")
    before = await comes(lambda: look(other), what="Redis is used")
    assert place is not None
    assert before is not None
    assert place.seal == before.seal

    other.tell(changed)
    refused_while_it_is_told = await look(other)
    after = await comes(lambda: look(other), what="it is told")
    slow.keep("orders", place, b"late")
    slow.keep("orders", after, b"good") if after else None

    async def kept() -> bytes | None:
        found = await look(other)
        return found.entry if found else None

    assert refused_while_it_is_told is None
    assert await comes(kept, what="something is in its place") == b"good"
    slow.keep("orders", place, b"late")
    await asyncio.gather(*slow._keeping)
    assert await kept() == b"good"


# --- 5. trouble -----------------------------------------------------------------------------------


async def ask_for_many(service: Service, count: int = 100) -> None:
    """Far longer than the limit, if each waited for Redis."""
    async with asyncio.timeout(0.6 * count * redis_link.ANSWER_SECONDS):
        for number in range(count):
            assert (await service.configs.of(f"none-{number}")).kind is None


@pytest.mark.parametrize("trouble", ["down", "dies", "hangs", "read-only"])
async def test_trouble_with_redis_is_told_once_and_held_against_nobody(
    orders: Conn,
    redis_server: RedisServer,
    open_service: OpenService,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    trouble: str,
) -> None:
    monkeypatch.setattr(configs, "FRESH_SECONDS", 0.0)
    caplog.set_level(logging.WARNING, logger="holdfast.server")
    begin, end = {
        "down": (redis_server.kill, redis_server.start),
        "dies": (redis_server.kill, redis_server.start),
        "hangs": (
            lambda: redis_server.signal(signal.SIGSTOP),
            lambda: redis_server.signal(signal.SIGCONT),
        ),
        "read-only": (
            lambda: redis_server.client.replicaof("127.0.0.1", "1"),
            lambda: redis_server.client.replicaof("NO", "ONE"),
        ),
    }[trouble]
    if trouble == "down":
        begin()
    service = await open_service(listen=False, redis_url=redis_server.url)
    if trouble != "down":
        await is_used(service)
        begin()

    assert await colour(service) == "red"
    await ask_for_many(service)
    paint(orders, "blue")
    service.configs.changed("orders")
    assert await colour(service) == "blue"
    await asyncio.to_thread(eventually, lambda: len(lines(caplog)) == 1, what="it is told")
    await asyncio.to_thread(end)

    await is_used(service)
    await turns(service, "blue")
    failed, again = lines(caplog)
    assert failed.startswith("Redis is not used for now: ")
    assert again == "Redis answers again"


async def test_a_change_that_could_not_be_told_is_told_when_redis_is_back(
    orders: Conn, redis_server: RedisServer, open_service: OpenService, forgetless: None
) -> None:
    first, second = [await open_service(listen=False, redis_url=redis_server.url) for _ in range(2)]
    await asyncio.gather(is_used(first), is_used(second))
    assert await colour(first) == await colour(second) == "red"
    await is_entered(redis_server)

    redis_server.signal(signal.SIGSTOP)

    async def is_given_up() -> bool:
        return await tier_of(first).look("orders") is None

    await comes(is_given_up, what="Redis is asked no more")
    paint(orders, "blue")
    first.configs.changed("orders")
    here = await colour(first)
    redis_server.signal(signal.SIGCONT)

    assert here == "blue"
    await turns(second, "blue")


async def test_who_may_have_missed_messages_looks_again(
    orders: Conn, redis_server: RedisServer, open_service: OpenService, forgetless: None
) -> None:
    service = await open_service(listen=False, redis_url=redis_server.url)
    await is_used(service)
    assert await colour(service) == "red"

    await asyncio.to_thread(redis_server.kill)
    paint(orders, "blue")
    await asyncio.to_thread(redis_server.start)

    await turns(service, "blue")


@pytest.mark.parametrize("held_up", [False, True])
async def test_a_server_ends_soon_whatever_it_has_to_tell(
    database_url: str, redis_server: RedisServer, held_up: bool
) -> None:
    settings = Settings(
        database_url=database_url, upkeep=0, listen=False, pool_size=2, redis_url=redis_server.url
    )

    async def live(number: int) -> None:
        async with Service(settings).running() as service:
            await is_used(service)
            if held_up:
                redis_server.signal(signal.SIGSTOP)
            service.configs.changed(f"q-{number}")
            await asyncio.sleep(0.001 * number)

    async with asyncio.timeout(15):
        for number in range(1 if held_up else 20):
            await live(number)
    redis_server.signal(signal.SIGCONT)
    tokens = {key.decode().rpartition(":")[2] for key in redis_server.client.scan_iter("*:generation:q-*")}
    assert held_up or tokens == {f"q-{number}" for number in range(20)}


async def test_a_password_that_is_wrong_is_not_told(
    orders: Conn, redis_server: RedisServer, open_service: OpenService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    url = redis_server.url.replace(PASSWORD, "shut-sesame")
    service = await open_service(listen=False, redis_url=url)
    await asyncio.to_thread(eventually, lambda: lines(caplog), what="it is told")

    assert await colour(service) == "red"
    assert "shut-sesame" not in caplog.text
    assert "shut-sesame" not in repr(service.settings)


# --- 6. garbage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plant",
    [
        lambda client, key, seal: client.set(key, b"\xff\x00garbage", ex=20),
        lambda client, key, seal: client.set(key, seal + b'{"claim_window": "red"', ex=20),
        lambda client, key, seal: client.set(key, seal + b'{"claim_window": "red"}', ex=20),
        lambda client, key, seal: client.set(key, seal + b"\xff", ex=20),
        lambda client, key, seal: client.set(key, seal + b'{"annotations": {"it": "blue"}}'),  # for ever
        lambda client, key, seal: client.set(key, seal + b'{"annotations": {"it": "blue"}}', ex=60),
        lambda client, key, seal: (client.delete(key), client.rpush(key, "a list")),
        lambda client, key, seal: [
            (client.delete(each), client.rpush(each, "a list")) for each in client.scan_iter("*:generation:*")
        ],
    ],
)
async def test_what_makes_no_sense_is_passed_over(
    orders: Conn, redis_server: RedisServer, open_service: OpenService, plant: Callable[..., object]
) -> None:
    service = await open_service(listen=False, redis_url=redis_server.url)
    await is_used(service)
    await colour(service)
    await is_entered(redis_server)
    (key,) = entries(redis_server)
    place = await tier_of(service).look("orders")
    assert place is not None

    plant(redis_server.client, key, place.seal)
    service.configs.forget("")

    assert await colour(service) == "red"
    assert await tier_of(service).look("orders") is not None  # it is no failure of Redis


@pytest.mark.parametrize("says", [b":many\r\n", b"*2\r\n:1\r\n:2\r\n", b"$-5\r\n", b"HTTP/1.1 400\r\n\r\n"])
async def test_what_is_no_redis_fails_no_request(orders: Conn, database_url: str, says: bytes) -> None:
    asked = asyncio.Event()
    talks: set[asyncio.Task[None] | None] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.add(asyncio.current_task())
        while request := await reader.read(65_536):
            if b"SUBSCRIBE" in request:
                writer.write(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n")
            elif b"PING" in request:
                writer.write(b"*2\r\n$4\r\npong\r\n$0\r\n\r\n")
            elif b"EVAL" in request and b"PUBLISH" not in request:
                asked.set()
                writer.write(says)
            else:
                writer.write(b"+OK\r\n" * (1 + request.count(b"\r\n*")))
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(talk, "127.0.0.1", 0) as place:
        url = "redis://127.0.0.1:{1}".format(*place.sockets[0].getsockname())
        settings = Settings(database_url=database_url, upkeep=0, listen=False, redis_url=url)
        async with Service(settings).running() as service, asyncio.timeout(20):
            while not asked.is_set():
                service.configs.forget("")
                assert await colour(service) == "red"
                await asyncio.sleep(0.01)
        await asyncio.wait_for(asyncio.gather(*(task for task in talks if task)), 20)


# --- 7. two databases -----------------------------------------------------------------------------


async def test_two_databases_on_one_redis_have_nothing_in_common(
    orders: Conn,
    redis_server: RedisServer,
    open_service: OpenService,
    server_url: str,
    template_database: str,
    forgetless: None,
) -> None:
    here = await open_service(listen=False, redis_url=redis_server.url)
    with (
        holdfast_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as other,
    ):
        other.execute("select holdfast.create_queue('orders')")
        paint(other, "blue")
        settings = Settings(database_url=url, upkeep=0, listen=False, redis_url=redis_server.url)
        async with Service(settings).running() as there:
            await asyncio.gather(is_used(here), is_used(there))

            assert (await colour(here), await colour(there)) == ("red", "blue")
            await is_entered(redis_server, 2)
            paint(other, "green")
            here.configs.changed("orders")
            await is_used(here)

            assert (await colour(here), await colour(there)) == ("red", "blue")
            there.configs.changed("orders")
            assert await colour(there) == "green"


# --- 8. URLs --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "redis://127.0.0.1",
        "redis://:secret@cache.example:6380/2",
        "rediss://user:secret@[::1]/0?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis.sock?db=3",
    ],
)
def test_a_url_is_taken(url: str) -> None:
    assert problem_with(url) is None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("localhost:6379", "it begins with none of redis://, rediss:// and unix://"),
        ("http://localhost", "it begins with none of redis://, rediss:// and unix://"),
        ("redis://", "it names no host, or a port that is none"),
        ("redis://:secret@", "it names no host, or a port that is none"),
        ("redis://localhost:0", "it names no host, or a port that is none"),
        ("redis://localhost:port", "it is no URL"),
        ("redis://localhost:70000", "it is no URL"),
        ("redis://[::1", "it is no URL"),
        ("redis://localhost/one", "its database is no number"),
        ("redis://localhost/-1", "its database is no number"),
        ("redis://localhost/?db=x", "its database is no number"),
        ("redis://localhost?socket_timeout=9", "it has options other than"),
        ("redis://localhost?", None),
        ("redis://localhost#1", "it has options other than"),
        ("unix://", "it names no socket"),
    ],
)
def test_what_is_no_url_is_refused(url: str, problem: str | None) -> None:
    found = problem_with(url)

    assert (found or "").startswith(problem or "")
    assert (found is None) == (problem is None)


@pytest.mark.parametrize("by_option", [True, False])
def test_the_server_does_not_start_with_it_and_does_not_show_it(database_url: str, by_option: bool) -> None:
    url = "redis://:open-sesame@localhost:port"
    given = ["--redis-url", url] if by_option else []
    variables = {} if by_option else {"HOLDFAST_REDIS_URL": url}

    ended = execute("serve", "--port", "0", *given, env=environment(database_url, **variables))

    named = "--redis-url" if by_option else "HOLDFAST_REDIS_URL"
    assert ended.code == 2
    assert f"{named} is no URL of a Redis: it is no URL" in " ".join(ended.err.split())
    assert "open-sesame" not in ended.out + ended.err
