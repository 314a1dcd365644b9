"""The log of a server. Claims pinned here:

1. Each request is one line: as JSON an object, with method, route, queue, status, time, client, the key's id.
2. No line holds a body, a path's parts, a query, a header or a secret, whatever went wrong.
3. A request has an id: the one it brings if that is sane, else a new one. The answer has it, and lines of
   errors too.
4. An error that nobody foresaw is told once with its traceback, without what the database quotes of messages.
5. --log-level and --log-format, and variables in their place, say what is logged and how.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from holdfast.client import Holdfast
from holdfast.server import logs
from holdfast.server.answering import tell
from holdfast.server.visit import Visit, current
from tests.cli.conftest import environment, execute
from tests.fix_http import ServeProcess

Conn = psycopg.Connection[Any]
SECRET = "swordfish"  # in every place that must not be logged


@pytest.fixture
def orders(engine: Holdfast) -> Holdfast:
    """A client of a database with the queue `orders`."""
    engine.create_queue("orders")
    return engine


def lines(err: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in err.splitlines()]


def test_a_request_is_one_line_of_json(serve_process: ServeProcess, orders: Holdfast) -> None:
    key = orders.create_key("mine", scopes=["admin"])
    server = serve_process("--log-format", "json", "--log-level", "info")
    with server.caller(key=key.key) as caller:
        caller.send("orders", 1)
        caller.call("GET", "/healthz")

    _, err = server.end()

    sent, health = lines(err)
    changing = {name: sent.pop(name) for name in ("time", "request_id", "ms")}
    assert sent == {
        "level": "info",
        "logger": "holdfast.access",
        "method": "POST",
        "route": "/v1/queues/{queue}/messages",
        "queue": "orders",
        "status": 201,
        "client": "127.0.0.1",
        "key": key.id,
    }
    assert changing["time"].endswith("+00:00")
    assert changing["ms"] >= 0
    assert (health["route"], health["queue"], health["key"]) == ("/healthz", None, None)


def test_nothing_of_a_request_but_its_route_and_queue_is_logged(
    serve_process: ServeProcess, orders: Holdfast
) -> None:
    key = orders.create_key("mine", scopes=["admin"])
    server = serve_process("--log-format", "json", "--log-level", "debug")
    send = "/v1/queues/orders/messages"
    with server.caller(key=key.key) as caller:
        caller.ok("POST", send, {"messages": [{"payload": SECRET, "headers": {"a": SECRET}}]}, status=201)
        caller.call("POST", send, {"messages": [{"payload": f"{SECRET}\0"}]})
        caller.call("POST", send, {"messages": [{"payload": 1, "correlation_id": SECRET}]})
        caller.call("POST", send, content=SECRET, headers={"content-type": "application/json"})
        caller.call("GET", f"/v1/queues/orders/messages?state={SECRET}")
        caller.call("GET", f"/v1/queues/orders/messages/{SECRET}")
        caller.call("GET", f"/{SECRET}", headers={"x-api-key": SECRET, "user-agent": SECRET})
        caller.call("GET", f"/v1/queues/{SECRET}%0a/stats")
        caller.call("GET", "/v1/queues", headers={"authorization": f"Bearer {SECRET}"})
        caller.call("GET", "/v1/queues", headers={"x-request-id": f"a {SECRET}"})

    _, err = server.end()

    assert len(lines(err)) == 10
    assert SECRET not in err
    assert key.key not in err


def test_an_id_that_is_sane_is_kept_and_another_is_made_up(serve_process: ServeProcess) -> None:
    server = serve_process("--log-format", "json", "--log-level", "info")
    given = ["abc-1.2:3_X", "a" * 128, "a" * 129, "with space", "", "ünsane"]
    with server.caller() as caller:
        answers = [
            caller.call("GET", "/healthz", headers=[(b"x-request-id", each.encode())]).headers["x-request-id"]
            for each in given
        ]
        refused = caller.call("GET", "/nowhere", headers={"x-request-id": "mine"}).headers["x-request-id"]

    _, err = server.end()

    assert answers[:2] == given[:2]
    assert refused == "mine"
    assert len(set(answers)) == len(answers)
    assert all(logs_id not in given and logs_id.isascii() for logs_id in answers[2:])
    assert [line["request_id"] for line in lines(err)] == [*answers, "mine"]


def test_text_is_for_people(serve_process: ServeProcess, orders: Holdfast) -> None:
    server = serve_process("--log-format", "text", "--log-level", "info")
    with server.caller() as caller:
        caller.send("orders", 1)

    _, err = server.end()

    (line,) = err.splitlines()
    assert " info holdfast.access request_id=" in line
    assert " method=POST route=/v1/queues/{queue}/messages queue=orders status=201 ms=" in line
    assert "key=" not in line


def test_the_level_decides_what_is_logged(serve_process: ServeProcess) -> None:
    server = serve_process("--log-level", "warning")
    with server.caller() as caller:
        caller.ok("GET", "/healthz")

    assert server.end() == (0, "")


def test_variables_stand_for_the_options(serve_process: ServeProcess) -> None:
    server = serve_process(HOLDFAST_LOG_FORMAT="json", HOLDFAST_LOG_LEVEL="info")
    with server.caller() as caller:
        caller.ok("GET", "/healthz")

    _, err = server.end()

    assert lines(err)[0]["route"] == "/healthz"


def test_a_variable_with_a_word_that_is_not_known_is_refused(database_url: str) -> None:
    answer = execute("serve", "--json", env=environment(database_url, HOLDFAST_LOG_LEVEL="loud"))

    assert answer.code == 2
    assert "debug, info, warning, error" in json.loads(answer.err)["error"]["message"]


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What this process logs as JSON, while the test lasts."""
    root = logging.getLogger()
    before, level = root.handlers, root.level
    stream = io.StringIO()
    logs.configure("json", "info", stream)
    yield stream
    root.handlers = before
    root.setLevel(level)


def raised(conn: Conn, statement: str) -> Exception:
    try:
        try:
            conn.execute(statement.encode())
        except psycopg.Error as error:
            raise RuntimeError("while something was done") from error
    except RuntimeError as error:
        return error
    raise AssertionError("nothing was raised")


def test_an_error_is_told_once_with_its_traceback_and_the_id_of_its_request(
    log: io.StringIO, conn: Conn
) -> None:
    error = raised(conn, "select no_such_column")
    current.set(Visit("abc"))

    tell(error)
    tell(error)

    (line,) = lines(log.getvalue())
    assert (line["level"], line["request_id"]) == ("error", "abc")
    assert line["message"] == "an error that nobody foresaw"
    assert line["traceback"].count("in raised") == 2
    assert 'UndefinedColumn: 42703 column "no_such_column" does not exist' in line["traceback"]
    assert line["traceback"].endswith("builtins.RuntimeError: while something was done")


@pytest.mark.parametrize(
    "statement",
    [
        f"select '{SECRET}'::int",
        f"""select '{{"a": {SECRET}}}'::jsonb""",
        f"insert into holdfast.defaults select * from holdfast.defaults -- {SECRET}",
        f"do $$begin raise exception 'bad' using detail = '{SECRET}', hint = '{SECRET}'; end$$",
    ],
)
def test_what_the_database_quotes_of_values_is_not_told(log: io.StringIO, conn: Conn, statement: str) -> None:
    tell(raised(conn, statement))

    assert "Traceback" not in log.getvalue()
    assert "psycopg" in log.getvalue()
    assert SECRET not in log.getvalue()
