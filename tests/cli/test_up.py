"""holdfast up: one command to a running queue, and one signal to its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.cli._revival import keep_running
from holdfast.cli.up import guide, listed, without_password
from holdfast.embedded import EmbeddedError, EmbeddedPostgres
from holdfast.server.serve import bind
from tests.cli.conftest import PATIENCE, environment, execute, started
from tests.fix_redis import RedisServer
from tests.waiting import eventually


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it prints, up to a line that contains the text."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"it ended without saying {text!r}: {lines} {process.communicate()}")


def is_gone(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_until_a_signal_and_cleans_up(tmp_path: Path, number: signal.Signals) -> None:
    with started("up", "--port", "0", "--json", cwd=tmp_path) as process:
        up = json.loads(read_until(process, "url"))
        beside = execute("send", "demo", '{"from": "beside"}', env=environment(), cwd=tmp_path)
        with psycopg.connect(up["url"]) as connection:
            ready = connection.execute("select ready from holdfast.queue_stats('demo')").fetchone()

        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)

    assert (up["queue"], up["acked"]) == ("demo", 3)
    assert (beside.code, ready) == (0, (1,))
    assert (process.returncode, out, err) == (0, "", "")
    eventually(lambda: is_gone(up["url"]), what="the server is stopped", timeout=PATIENCE)


def test_up_tells_people_how_to_go_on_and_touches_no_message_of_theirs(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        with started("up", "--port", "0", cwd=tmp_path) as process:
            texts.append(read_until(process, "Ctrl-C ends it."))
            execute("send", "demo", "1", env=environment(), cwd=tmp_path)
            execute("key", "create", "mine", "--scope", "admin", env=environment(), cwd=tmp_path)
            process.send_signal(signal.SIGINT)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE)
            assert (process.returncode, out, err) == (0, "Stopping.\n", "")
    left = execute("stats", "demo", "--json", env=environment(), cwd=tmp_path)

    assert re.search(r"^    \S+holdfast psql$", texts[0], flags=re.MULTILINE)
    assert "from holdfast import Holdfast" in texts[0]
    assert "Sent, claimed and acked 3 messages" in texts[0]
    assert "Clients of foundrydb, queue-ti and topics run against it too, at http://127.0.0.1:" in texts[0]
    assert "Sent, claimed and acked" not in texts[1]
    assert "While there is no API key" in texts[0]
    assert "Authorization" not in texts[0]
    assert "While there is no API key" not in texts[1]
    assert '/v1/queues/demo/messages -H "Authorization: Bearer $key" -H' in texts[1]
    assert left.document["ready"] == 2


def test_psql_is_told_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("HOLDFAST_PG_BIN", raising=False)
    of_the_wheel = guide("postgresql://here", "http://127.0.0.1:1")
    monkeypatch.setenv("HOLDFAST_PG_BIN", str(tmp_path))
    nowhere = guide("postgresql://here", "http://127.0.0.1:1")
    (tmp_path / "psql").touch(mode=0o755)

    on_the_path = guide("postgresql://here", "http://127.0.0.1:1")

    assert " psql\n" in of_the_wheel
    assert "psql" not in nowhere
    assert " psql\n" in on_the_path


def test_a_port_that_is_taken_is_told_before_anything_is_made(tmp_path: Path) -> None:
    with bind("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        answer = execute("up", "--port", str(port), env=environment(), cwd=tmp_path)

    assert (answer.code, answer.out) == (1, "")
    assert f"can't listen on 127.0.0.1:{port}" in answer.err
    assert "Choose another port with --port, or HOLDFAST_PORT" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_it_starts_exits_with_130(tmp_path: Path) -> None:
    with started("up", "--port", "0", cwd=tmp_path) as process:
        eventually((tmp_path / ".holdfast" / "users").exists, what="it is starting", timeout=PATIENCE)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)

    assert process.returncode == 130


def ended_text(process: subprocess.Popen[str]) -> str:
    """What it says until it says how to end it, and then it is ended."""
    text = read_until(process, "Ctrl-C ends it.")
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    return text + rest


def test_a_database_of_yours_gets_no_queue_and_its_password_is_not_shown(
    empty_database_url: str, tmp_path: Path
) -> None:
    password = str(conninfo_to_dict(empty_database_url)["password"])

    with started("up", "--port", "0", cwd=tmp_path, database_url=empty_database_url) as process:
        text = ended_text(process)
    words = ("up", "--port", "0", "--json", "--database-url", empty_database_url)
    with started(*words, cwd=tmp_path) as process:
        document = json.loads(read_until(process, "url"))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=PATIENCE)
    queues = execute("queue", "list", "--json", env=environment(empty_database_url))

    shown = conninfo_to_dict(document["url"])
    assert password not in text + json.dumps(document)
    assert {**shown, "password": password} == conninfo_to_dict(empty_database_url)
    assert "demo" not in text.replace("--demo makes one", "")
    assert "select holdfast.create_queue('orders');" in text
    assert f"export HOLDFAST_DATABASE_URL='{document['url']}'\n" in text
    assert "The password is not shown" in text
    assert "holdfast psql\n" in text
    assert "        holdfast.create_queue('orders')\n" in text
    assert "queue create orders\n" in text
    assert (document["queue"], document["acked"]) == (None, 0)
    assert (queues.code, queues.out) == (0, "")
    assert list(tmp_path.iterdir()) == []


def test_a_database_of_yours_gets_the_demo_when_asked(empty_database_url: str, tmp_path: Path) -> None:
    with started("up", "--port", "0", "--demo", cwd=tmp_path, database_url=empty_database_url) as process:
        text = ended_text(process)

    assert "Sent, claimed and acked 3 messages in the queue demo" in text
    assert "create_queue" not in text


def test_secrets_are_taken_out_of_every_form_of_address() -> None:
    assert "geheim" not in without_password("postgresql://u:geheim@h1:1,h2:2/d?sslpassword=geheim")
    assert conninfo_to_dict(without_password("host=h user=u password='ge heim' dbname='a b'")) == {
        "host": "h",
        "user": "u",
        "dbname": "a b",
    }


@contextmanager
def watched(reach: Callable[[], AbstractContextManager[str]], notes: list[str]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=keep_running, args=(reach, over, notes.append, 0.05))
    thread.start()
    yield
    over.set()
    thread.join(timeout=PATIENCE)
    assert not thread.is_alive()


def test_an_embedded_server_that_dies_is_brought_back(tmp_path: Path) -> None:
    notes = list[str]()
    server = EmbeddedPostgres(data_dir=tmp_path / "data")
    with server as url, watched(lambda: EmbeddedPostgres(data_dir=tmp_path / "data"), notes):
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not is_gone(url), what="the server is up again", timeout=PATIENCE)


def test_a_server_that_does_not_start_is_told_once_and_so_is_its_start() -> None:
    notes, tries = list[str](), iter([1, 2, 3])

    @contextmanager
    def reach() -> Iterator[str]:
        if next(tries, None) is not None:
            raise EmbeddedError("QH504", "no server can run here")
        yield "here"

    with watched(reach, notes):
        eventually(lambda: len(notes) == 2, what="both are told", timeout=PATIENCE)

    assert notes[0].startswith("PostgreSQL does not start, and is tried again every 0.05 s: ")
    assert notes[1] == "PostgreSQL runs again."


def test_requests_are_logged_when_asked(empty_database_url: str, tmp_path: Path) -> None:
    words = ("up", "--json", "--port", "0", "--log-level", "info", "--log-format", "json")
    with started(*words, cwd=tmp_path, database_url=empty_database_url) as process:
        reached = json.loads(read_until(process, "url"))["address"]
        httpx.get(f"{reached}/healthz", trust_env=False)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)

    assert "/healthz" in [json.loads(line).get("route") for line in err.splitlines()]


def test_what_is_no_redis_is_told_before_anything_is_made(tmp_path: Path) -> None:
    told = environment(HOLDFAST_REDIS_URL="http://127.0.0.1")

    answer = execute("up", "--port", "0", env=told, cwd=tmp_path)

    assert (answer.code, answer.out) == (2, "")
    assert "HOLDFAST_REDIS_URL is no URL of a Redis" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_what_servers_know_is_kept_in_redis_by_this_one_too(
    empty_database_url: str, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_REDIS_URL", redis_server.url)
    with started("up", "--json", "--port", "0", cwd=tmp_path, database_url=empty_database_url) as process:
        reached = json.loads(read_until(process, "url"))["address"]

        def is_kept() -> bool:
            httpx.post(f"{reached}/v1/queues/orders/claim", json={}, trust_env=False)
            return bool(redis_server.client.keys("holdfast:1:*"))

        eventually(is_kept, what="Redis knows of the queue", timeout=PATIENCE)


def test_http_answers_and_upkeep_is_done_while_it_runs(empty_database_url: str, tmp_path: Path) -> None:
    with started("up", "--json", "--port", "0", cwd=tmp_path, database_url=empty_database_url) as process:
        reached = json.loads(read_until(process, "url"))["address"]
        ready = httpx.get(f"{reached}/readyz", trust_env=False)
        with psycopg.connect(empty_database_url, autocommit=True) as connection:
            eventually(
                lambda: connection.execute("select last_value > 0 from holdfast.maintained_at").fetchone()
                == (True,),
                what="maintain() was called",
                timeout=PATIENCE,
            )

    assert ready.status_code == 200


def test_up_makes_the_schemas_of_the_dialects_that_it_offers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    for dialects in ("topics", "foundrydb"):
        monkeypatch.setenv("HOLDFAST_DIALECTS", dialects)
        with started("up", "--port", "0", "--json", cwd=tmp_path) as process:
            up = json.loads(read_until(process, "url"))
            with psycopg.connect(up["url"]) as connection:
                made += connection.execute("select to_regnamespace('mdb_queue') is not null").fetchall()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE)

    assert made == [(False,), (True,)]


@pytest.mark.parametrize(
    ("names", "sentence"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_names_are_listed_as_in_a_sentence(names: list[str], sentence: str) -> None:
    assert listed(names) == sentence
