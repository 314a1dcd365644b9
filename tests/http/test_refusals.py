"""Every error that the server itself raises has a scenario, and the status of its class."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from holdfast import Holdfast
from holdfast.client import ERRORS, RequestError
from holdfast.server.settings import Patience
from tests.contract import JSON
from tests.fix_http import Caller, Serve
from tests.fix_proxy import Proxy
from tests.waiting import eventually

CLAIM = "/v1/queues/orders/claim"
HELD_UP = (
    "select count(*) from pg_locks where not granted "
    "and database = (select oid from pg_database where datname = current_database())"
)
RAISED_BY_THE_CLIENT = {"QH933"}  # of an answer that no server of ours gives


@dataclass(frozen=True, slots=True)
class Scene:
    """A server with the queue orders, and what may befall it."""

    http: Caller
    engine: Holdfast
    conn: psycopg.Connection[Any]
    proxy: Proxy

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> str:
        """The code of the refusal, whose status must be that of its class: the caller checks that."""
        code: str = self.http.call(method, path, body, **options).json()["error"]["code"]
        return code

    def ask_with(self, key: str) -> str:
        """The same, with a key, once the server has heard that there are keys."""
        eventually(lambda: self.http.client.get("/v1/queues").status_code == 401, what="the server is closed")
        return self.ask("GET", "/v1/queues", headers={"X-API-Key": key})


def never_whole(scene: Scene) -> str:
    """A request that does not come to its end."""
    with socket.create_connection(scene.http.place) as connection:
        connection.sendall(b"GET /v1/queues HTTP/1.1\r\n")
        answer = connection.makefile("rb").read().decode()
    assert answer.startswith("HTTP/1.1 408 ")
    return next(code for code in ERRORS if code in answer)


def too_many_guesses(scene: Scene) -> str:
    scene.engine.create_key("reader", scopes=["read"])
    return [scene.ask_with(f"hf_guess{number}") for number in range(11)][-1]


def not_allowed(scene: Scene) -> str:
    return scene.ask_with(scene.engine.create_key("shop", scopes=["send"]).key)


def without_a_key(scene: Scene) -> str:
    scene.engine.create_key("reader", scopes=["read"])
    return scene.ask("GET", "/v1/queues")


def cut_off(scene: Scene) -> str:
    """The database goes away while it works on a request, and so before anybody can know that it is gone."""
    with ThreadPoolExecutor(1) as pool, scene.conn.transaction():
        scene.conn.execute("lock table holdfast.queue in access exclusive mode")
        asked = pool.submit(scene.ask, "GET", "/v1/queues/orders")
        eventually(lambda: scene.conn.execute(HELD_UP).fetchone() != (0,), what="it works on it")
        scene.proxy.stop()
        return asked.result()


def without_a_database(scene: Scene) -> str:
    """One connection of the pool after the other is found dead; then there is none."""
    found = (cut_off(scene) if turn == 0 else scene.ask("GET", "/v1/queues/orders") for turn in range(10))
    return next((code for code in found if code != "QH932"), "none")


def unforeseen(scene: Scene) -> str:
    scene.conn.execute("drop function holdfast.queue_stats(text)")
    return scene.ask("GET", "/v1/queues/orders/stats")


SCENARIOS: dict[str, Callable[[Scene], str]] = {
    "QH910": lambda scene: scene.ask("POST", CLAIM, content=b"{", headers={"Content-Type": JSON}),
    "QH911": lambda scene: scene.ask("POST", CLAIM, {"colour": "red"}),
    "QH912": lambda scene: scene.ask("POST", CLAIM, {"consumer": "x" * 5000}),
    "QH913": lambda scene: scene.ask("POST", CLAIM, content=b"{}", headers={"Content-Type": "text/plain"}),
    "QH914": lambda scene: scene.ask("GET", "/v1/nothing"),
    "QH915": lambda scene: scene.ask("DELETE", CLAIM),
    "QH916": lambda scene: scene.ask("GET", "/v1/queues/orders/work", headers={"Accept": "image/png"}),
    "QH917": lambda scene: scene.ask("GET", "/v1/queues", headers={"X-Long": "x" * 70_000}),
    "QH918": never_whole,
    "QH920": without_a_key,
    "QH921": not_allowed,
    "QH922": too_many_guesses,
    "QH923": lambda scene: scene.ask("PATCH", "/v1/queues/orders", {}, headers={"If-Match": '"old"'}),
    "QH924": lambda scene: scene.ask("GET", "/v1/queues/orders/messages/7"),
    "QH925": lambda scene: scene.ask("GET", "/v1/queues/orders/schema"),
    "QH930": without_a_database,
    "QH931": unforeseen,
    "QH932": cut_off,
}


@pytest.fixture
def scene(serve: Serve, engine: Holdfast, conn: psycopg.Connection[Any], proxy: Proxy) -> Scene:
    """A server that reaches its database through a proxy, and learns by requests alone that it is gone."""
    engine.create_queue("orders")
    http = serve(database_url=proxy.url, max_body=4096, patience=Patience(head=0.3), upkeep=0, listen=False)
    return Scene(http, engine, conn, proxy)


@pytest.mark.parametrize("code", SCENARIOS)
def test_a_refusal_of_the_server_has_its_code(scene: Scene, code: str) -> None:
    assert SCENARIOS[code](scene) == code


def test_every_refusal_of_the_server_has_a_scenario() -> None:
    codes = {code for code, kind in ERRORS.items() if issubclass(kind, RequestError)}

    assert set(SCENARIOS) == codes - RAISED_BY_THE_CLIENT
