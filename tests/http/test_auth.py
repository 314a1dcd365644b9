"""Who is let in.

1. A key is taken in three forms, and as the token of a login.
2. Before the first key the server answers programs on this machine, and no web page.
3. The first key closes it, at every server and for ever; away from loopback it never is open.
4. A key that has ended is refused at every server: at once by notification, else within seconds.
5. Wrong keys are throttled by address; valid ones get in all the same; neither costs calls without bound.
6. A key's own rate holds for all servers together.
7. A login says how long it counts, ends with its key, and cannot be prolonged.
8. When a key was last used is written; its secret is in no log.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from functools import partial
from time import monotonic
from typing import Any

import httpx
import psycopg
import pytest

from holdfast import Holdfast, RequestError
from holdfast.server.auth import GUESS_SECONDS, Door
from holdfast.server.credentials import Credential, hashed
from holdfast.server.engine import Engine
from holdfast.server.limits import Limits
from holdfast.server.settings import Settings
from holdfast.server.tries import MOST_ADDRESSES, Tries
from tests.cli.conftest import environment, execute
from tests.fix_database import Connect
from tests.fix_http import Caller, Serve, ServeProcess, served
from tests.waiting import eventually

Conn = psycopg.Connection[Any]
READ = "/v1/queues"


@pytest.fixture
def key(engine: Holdfast) -> str:
    """The secret of a key that may read; its id is 1."""
    return engine.create_key("reader", scopes=["read"]).key


def refuses(server: Caller) -> bool:
    return server.call("GET", READ).status_code == 401


def basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


# --- 1. forms --------------------------------------------------------------------------------------


def test_a_key_is_taken_in_each_of_its_forms(key: str, http: Caller) -> None:
    forms: list[dict[str, str]] = [
        {"Authorization": f"Bearer {key}"},
        {"Authorization": f"bearer   {key}"},
        {"X-API-Key": key},
        {"Authorization": basic("", key)},
        {"Authorization": basic("anybody", key)},
        {"Authorization": "Bearer hf_wrong", "X-API-Key": key},
    ]

    for headers in forms:
        http.ok("GET", READ, headers=headers)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Basic", "Basic %%%", "Basic YWJj", basic("user", ""), "Digest abc", "hf_abc"],
)
def test_what_is_no_credential_is_as_none(key: str, http: Caller, authorization: str) -> None:
    error = http.refused("GET", READ, status=401, code="QH920", headers={"Authorization": authorization})

    assert error["message"] == "an API key is needed"


def test_a_prefix_a_hash_or_another_spelling_is_no_key(key: str, http: Caller, conn: Conn) -> None:
    row = conn.execute("select encode(hash, 'hex'), prefix from holdfast.api_key").fetchone()
    assert row is not None

    for wrong in (*row, key[:-1], key + "x", key.upper(), f"'{key}"):
        error = http.refused("GET", READ, status=401, code="QH920", headers={"X-API-Key": wrong})
        assert error["message"] == "the API key is not valid"


def test_a_key_in_the_address_is_none(key: str, http: Caller) -> None:
    http.refused("GET", f"{READ}?token={key}", status=401, code="QH920")


# --- 2. before the first key -----------------------------------------------------------------------


def test_without_any_key_programs_on_this_machine_need_none(http: Caller) -> None:
    http.ok("GET", READ)
    http.ok("GET", READ, headers={"Authorization": "Bearer hf_whatever"})
    assert http.ok("GET", "/api/auth/status") == {"auth_required": False}
    assert http.ok("POST", "/api/auth/login", {"username": "a", "password": "b"}) == {
        "token": "open",
        "expires_in": 900,
    }


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "localhost:1"])
def test_without_any_key_names_of_this_machine_are_taken(http: Caller, host: str) -> None:
    http.ok("GET", READ, headers={"Host": host})


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "attacker.test"},
        {"Host": "attacker.test:8080"},
        {"Host": "127.0.0.1.attacker.test"},
        {"Host": "localhost.attacker.test"},
        {"Host": "192.0.2.1"},
        {"Host": ""},
        {"Origin": "http" + "://attacker.test"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"X-Forwarded-For": "192.0.2.1"},
        {"Forwarded": "for=192.0.2.1"},
        {"X-Real-IP": "192.0.2.1"},
    ],
    ids=str,
)
def test_without_any_key_web_pages_and_proxies_are_turned_away(http: Caller, headers: dict[str, str]) -> None:
    http.refused("GET", READ, status=403, code="QH921", headers=headers)
    http.refused("PUT", "/v1/queues/orders", {}, status=403, code="QH921", headers=headers)
    assert http.ok("GET", READ)["queues"] == []


def test_without_any_key_a_page_of_the_server_itself_may_call(http: Caller) -> None:
    http.ok("GET", READ, headers={"Origin": http.address, "Sec-Fetch-Site": "same-origin"})
    http.ok("GET", READ, headers={"Origin": http.address})


def test_a_page_that_cors_names_may_call(serve: Serve) -> None:
    page = "http" + "://console.test"
    http = serve(cors=(page,))

    http.ok("GET", READ, headers={"Origin": page, "Sec-Fetch-Site": "cross-site"})
    http.refused("GET", READ, status=403, code="QH921", headers={"Origin": "http" + "://other.test"})


def test_with_keys_any_host_and_origin_will_do(key: str, http: Caller) -> None:
    headers = {"Host": "queues.test", "Origin": "http" + "://other.test", "X-API-Key": key}

    http.ok("GET", READ, headers=headers)


def test_a_password_that_a_browser_remembers_serves_no_other_page(key: str, http: Caller) -> None:
    remembered = {"Authorization": basic("me", key)}

    for foreign in ({"Origin": "http" + "://other.test"}, {"Sec-Fetch-Site": "cross-site"}):
        http.refused("GET", READ, status=403, code="QH921", headers={**remembered, **foreign})
    http.ok("GET", READ, headers={**remembered, "Sec-Fetch-Site": "same-origin", "Origin": "null"})


# --- 3. the first key ------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", [True, False])
def test_the_first_key_closes_every_server(serve: Serve, engine: Holdfast, listen: bool) -> None:
    servers = [serve(listen=listen), serve(listen=listen)]
    for server in servers:
        server.ok("GET", READ)

    engine.create_key("reader", scopes=["read"])

    for server in servers:
        eventually(partial(refuses, server), what="it is closed")


def test_a_server_that_was_closed_stays_so(key: str, engine: Holdfast, serve: Serve) -> None:
    engine.revoke_key(1)

    serve().refused("GET", READ, status=401, code="QH920")


async def test_away_from_loopback_a_server_is_never_open(database_url: str) -> None:
    settings = Settings(database_url=database_url, host="192.0.2.1")
    engine = Engine(settings)

    assert await Door(engine, settings, Limits(engine)).is_open() is False


def test_a_server_without_keys_refuses_to_listen_elsewhere(database_url: str) -> None:
    answer = execute("serve", "--host", "0.0.0.0", "--port", "0", env=environment(database_url))

    assert (answer.code, answer.out) == (1, "")
    assert "QH921" in answer.err
    assert "holdfast key create NAME --scope admin" in answer.err


# --- 4. ended keys ---------------------------------------------------------------------------------


@pytest.mark.parametrize("listen", [True, False])
@pytest.mark.parametrize("end", ["revoke", "rotate"])
def test_a_key_that_has_ended_is_refused_at_every_server(
    key: str, engine: Holdfast, serve: Serve, monkeypatch: pytest.MonkeyPatch, listen: bool, end: str
) -> None:
    if listen:  # then nothing has to grow old
        monkeypatch.setattr("holdfast.server.auth.FRESH_SECONDS", 3600.0)
    servers = [serve(listen=listen).with_key(key), serve(listen=listen).with_key(key)]
    for server in servers:
        server.ok("GET", READ)

    engine.revoke_key(1) if end == "revoke" else engine.rotate_key(1)

    for server in servers:
        with server:
            eventually(partial(refuses, server), what="it is refused")


def test_a_key_that_has_ended_is_refused_by_each_of_several_processes(
    key: str, engine: Holdfast, serve_process: ServeProcess
) -> None:
    server = serve_process("--workers", "2")
    callers = [server.caller(key=key) for _ in range(10)]  # each a connection of its own
    for caller in callers:
        caller.ok("GET", READ)

    engine.revoke_key(1)

    for caller in callers:
        with caller:
            eventually(partial(refuses, caller), what="it is refused")


async def test_what_was_found_before_a_key_was_revoked_is_not_kept(
    key: str, connect: Connect, conn: Conn, database_url: str
) -> None:
    """The look takes its snapshot, waits, and ends after the notification has come."""
    settings = Settings(database_url=database_url)
    engine = Engine(settings)
    await engine.open()
    door = Door(engine, settings, Limits(engine))
    other = connect(autocommit=False)
    other.execute("lock table holdfast.api_key in access exclusive mode")
    looking = asyncio.create_task(door.caller_of(hashed(key.encode())))
    waiting = "select true from pg_locks where not granted and relation = 'holdfast.api_key'::regclass"
    await asyncio.to_thread(eventually, lambda: conn.execute(waiting.encode()).fetchone(), what="it waits")

    other.execute("select holdfast.revoke_key(1)")
    other.commit()
    door.forget()

    assert await looking is not None
    assert await door.caller_of(hashed(key.encode())) is None
    await engine.close()


def test_a_key_that_a_server_remembers_expires_by_the_clock(engine: Holdfast, http: Caller) -> None:
    key = engine.create_key("short", scopes=["read"], expires_in=1.5).key
    with http.with_key(key) as caller:
        caller.ok("GET", READ)

        eventually(partial(refuses, caller), what="it has expired")


def test_a_stream_ends_with_its_key_and_gives_back_what_it_holds(engine: Holdfast, serve: Serve) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    key = engine.create_key("worker", scopes=["consume"]).key
    with (
        serve(heartbeat=0.2).with_key(key) as caller,
        caller.client.stream("GET", "/v1/queues/orders/work") as response,
    ):
        lines = response.iter_lines()
        next(line for line in lines if line == "event: message")

        engine.revoke_key(1)

        rest = list(lines)
    assert any('"QH920"' in line for line in rest)
    eventually(lambda: engine.queue_stats("orders").ready == 1, what="the message is given back")


def test_an_open_stream_ends_when_the_first_key_is_made(engine: Holdfast, serve: Serve) -> None:
    engine.create_queue("orders")
    http = serve(heartbeat=0.2)
    with http.client.stream("GET", "/v1/queues/orders/work") as response:
        lines = response.iter_lines()
        next(line for line in lines if line == ": hb")

        engine.create_key("reader", scopes=["read"])

        assert any('"QH920"' in line for line in lines)


# --- 5. wrong keys ---------------------------------------------------------------------------------


def guesses(http: Caller, count: int, *, start: int = 0) -> list[httpx.Response]:
    """Wrong keys, one after the other."""
    numbers = range(start, start + count)
    return [http.call("GET", READ, headers={"X-API-Key": f"hf_guess{number}"}) for number in numbers]


def test_after_ten_wrong_keys_an_address_is_told_to_wait(key: str, http: Caller) -> None:
    answers = guesses(http, 12)

    assert [answer.status_code for answer in answers] == [401] * 10 + [429] * 2
    assert answers[-1].json()["error"]["code"] == "QH922"
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 60


def test_the_same_wrong_key_counts_every_time(key: str, http: Caller) -> None:
    wrong = [http.call("GET", READ, headers={"X-API-Key": "hf_old"}).status_code for _ in range(11)]

    assert wrong == [401] * 10 + [429]


def test_a_valid_key_gets_in_from_an_address_that_guesses(key: str, http: Caller, engine: Holdfast) -> None:
    guesses(http, 12)
    another = engine.create_key("another", scopes=["read"]).key

    http.ok("GET", READ, headers={"X-API-Key": key})
    http.ok("GET", READ, headers={"X-API-Key": another})
    http.refused("GET", READ, status=401, code="QH920")


def test_another_address_has_tries_of_its_own(key: str, http: Caller) -> None:
    guesses(http, 12)
    transport = httpx.HTTPTransport(local_address="127.0.0.2")

    with httpx.Client(base_url=http.address, transport=transport) as client:
        assert client.get(READ, headers={"X-API-Key": "hf_guess"}).status_code == 401


def test_a_proxy_on_this_machine_tells_addresses_whatever_the_environment_says(
    key: str, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "198.51.100.7")  # a variable of uvicorn's
    http = serve(trust_proxy=True)

    def guess_from(address: str) -> int:
        headers = {"X-API-Key": "hf_guess", "X-Forwarded-For": address}
        return http.call("GET", READ, headers=headers).status_code

    assert [guess_from("203.0.113.5") for _ in range(11)] == [401] * 10 + [429]
    assert guess_from("203.0.113.6") == 401


def test_a_proxy_elsewhere_is_trusted_by_its_address_and_nobody_else(key: str, serve: Serve) -> None:
    http = serve(proxies=("127.0.0.2/32",))

    def guesses_of(client: httpx.Client) -> list[int]:
        said = [{"X-API-Key": "hf_guess", "X-Forwarded-For": f"203.0.113.{number}"} for number in range(11)]
        return [client.get(READ, headers=headers).status_code for headers in said]

    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=http.address, transport=transport) as proxy:
        assert guesses_of(proxy) == [401] * 11
    assert guesses_of(http.client) == [401] * 10 + [429]


def test_an_address_gets_its_tries_back_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("holdfast.server.tries.monotonic", lambda: now)
    tries = Tries()

    taken = [tries.take("here") for _ in range(11)]
    now += 5.5
    too_soon = tries.take("here")
    now += 0.5
    again = [tries.take("here") for _ in range(2)]

    assert taken == [None] * 10 + [6]
    assert too_soon == 1
    assert again == [None, 6]
    assert tries.take("there") is None


def test_who_changes_addresses_within_a_network_has_no_more_tries() -> None:
    tries = Tries()

    refused = [tries.take(f"2001:db8:1:2::{number:x}") for number in range(12)]

    assert [pause is None for pause in refused] == [True] * 10 + [False] * 2
    assert not tries.are_left("2001:db8:1:2:ffff::1")
    assert tries.are_left("2001:db8:1:3::1")
    for number in range(10):
        assert tries.take(f"::ffff:192.0.2.{number}") is None
    assert tries.are_left("192.0.2.1")


def test_only_so_many_addresses_are_remembered() -> None:
    tries = Tries()
    for _ in range(10):
        tries.take("first")

    for number in range(MOST_ADDRESSES):
        tries.take(str(number))

    assert tries.are_left("first")
    assert len(tries) == MOST_ADDRESSES


class CountingEngine(Engine):
    """Counts the calls of the database."""

    calls = 0

    async def fetch(self, *arguments: Any) -> list[Any]:
        """Count, and call."""
        self.calls += 1
        return await super().fetch(*arguments)


@pytest.fixture
async def counting(database_url: str) -> AsyncIterator[tuple[Door, CountingEngine]]:
    """A door, and how often it asks the database."""
    settings = Settings(database_url=database_url)
    engine = CountingEngine(settings)
    await engine.open()
    yield Door(engine, settings, Limits(engine)), engine
    await engine.close()


async def guess(door: Door, secret: str) -> str:
    """The code with which a wrong key is refused."""
    with pytest.raises(RequestError) as caught:
        await door.identify(Credential(hashed(secret.encode())), {}, "192.0.2.7")
    return caught.value.code


async def test_guesses_cost_the_database_ten_calls_a_second(counting: tuple[Door, CountingEngine]) -> None:
    door, engine = counting
    for number in range(10):
        await guess(door, f"first {number}")
    engine.calls, started = 0, monotonic()

    tasks = []
    for number in range(50):
        tasks.append(asyncio.create_task(guess(door, f"more {number}")))
        await asyncio.sleep(0.01)
    codes = await asyncio.gather(*tasks)

    assert "QH922" in codes
    assert engine.calls <= 1 + (monotonic() - started) / GUESS_SECONDS


async def test_guesses_that_come_together_are_one_call(counting: tuple[Door, CountingEngine]) -> None:
    door, engine = counting

    await asyncio.gather(*(door.caller_of(hashed(b"%d" % number)) for number in range(500)))

    assert engine.calls <= 2


async def test_the_same_secret_is_looked_up_once(key: str, counting: tuple[Door, CountingEngine]) -> None:
    door, engine = counting

    for secret in (key, "hf_wrong") * 20:
        await door.caller_of(hashed(secret.encode()))

    assert engine.calls == 2


# --- 6. rates --------------------------------------------------------------------------------------


def test_the_rate_of_a_key_holds_for_all_servers_together(engine: Holdfast, serve: Serve) -> None:
    key = engine.create_key("slow", scopes=["read"], rate=0.01, burst=3).key
    servers = [serve().with_key(key), serve().with_key(key)]

    answers = [server.call("GET", READ) for _ in range(2) for server in servers]

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[-1].json()["error"]["code"] == "QH922"
    assert 90 <= int(answers[-1].headers["retry-after"]) <= 100
    for server in servers:
        server.client.close()


def test_the_rate_of_a_key_is_not_another_s(key: str, engine: Holdfast, http: Caller) -> None:
    slow = engine.create_key("slow", scopes=["read"], rate=0.01, burst=1).key
    with http.with_key(slow) as limited, http.with_key(key) as free:
        limited.ok("GET", READ)
        limited.refused("GET", READ, status=429, code="QH922")

        free.ok("GET", READ)


# --- 7. logins -------------------------------------------------------------------------------------


def log_in(http: Caller, password: str) -> str:
    token: str = http.ok("POST", "/api/auth/login", {"username": "me", "password": password})["token"]
    return token


def test_a_login_is_good_at_every_server_and_ends_with_its_key(
    key: str, engine: Holdfast, serve: Serve
) -> None:
    here, there = serve(), serve()
    token = log_in(here, key)
    with here.with_key(token) as one, there.with_key(token) as other:
        one.ok("GET", READ)
        other.ok("GET", READ)
        one.refused("POST", "/v1/maintain", {}, status=403, code="QH921")

        engine.revoke_key(1)

        eventually(partial(refuses, other), what="it has ended")


def test_a_login_says_how_long_it_counts(key: str, http: Caller, conn: Conn) -> None:
    conn.execute("select holdfast.set_clock(now())")

    answer = http.ok("POST", "/api/auth/login", {"password": key})

    left = conn.execute("select extract(epoch from expires_at - holdfast.now())::int from holdfast.api_login")
    assert answer["expires_in"] == 900
    assert left.fetchall() == [(900,)]


def test_a_login_can_do_without_a_user_name(key: str, http: Caller) -> None:
    assert http.ok("POST", "/api/auth/login", {"password": key})["token"].startswith("hft_")
    assert http.ok("GET", "/api/auth/status") == {"auth_required": True}


def test_a_login_cannot_be_prolonged(key: str, http: Caller) -> None:
    token = log_in(http, key)

    http.refused("POST", "/api/auth/login", {"password": token}, status=401, code="QH920")


def test_wrong_passwords_are_throttled_like_wrong_keys(key: str, http: Caller) -> None:
    for number in range(10):
        http.refused("POST", "/api/auth/login", {"password": f"{number}"}, status=401, code="QH920")

    http.refused("POST", "/api/auth/login", {"password": "wrong"}, status=429, code="QH922")
    assert log_in(http, key)


@pytest.mark.parametrize("body", [{}, {"username": "me"}, {"password": ""}, {"password": 1}, {"key": "hf"}])
def test_a_login_without_a_password_is_refused(key: str, http: Caller, body: dict[str, Any]) -> None:
    http.refused("POST", "/api/auth/login", body, status=422, code="QH911")


# --- 8. what is kept -------------------------------------------------------------------------------


def test_when_a_key_was_last_used_is_written_when_a_server_ends(
    key: str, engine: Holdfast, database_url: str
) -> None:
    unused = engine.create_key("unused", scopes=["read"])
    with served(Settings(database_url=database_url, port=0)) as http, http.with_key(key) as caller:
        caller.ok("GET", READ)

    listed = engine.keys()
    assert {each.id: each.last_used_at is not None for each in listed} == {1: True, unused.id: False}


def test_when_a_key_was_last_used_is_written_while_a_server_runs(
    key: str, engine: Holdfast, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.server.uses.EVERY_SECONDS", 0.05)
    with serve().with_key(key) as caller:
        caller.ok("GET", READ)

    eventually(lambda: engine.keys()[0].last_used_at is not None, what="it is written")


def test_no_secret_is_logged(engine: Holdfast, http: Caller, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    made = http.ok("POST", "/v1/keys", {"name": "shop", "scopes": ["read"]}, status=201)
    token = log_in(http, made["key"])
    for secret in (made["key"], token, "hf_guess"):
        http.call("GET", READ, headers={"Authorization": f"Bearer {secret}"})

    logged = "".join(str(vars(record)) for record in caplog.records if record.name.startswith("holdfast"))

    assert not [secret for secret in (made["key"], token, "hf_guess") if secret in logged]
