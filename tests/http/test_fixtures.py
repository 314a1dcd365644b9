"""The HTTP fixtures do what they promise, since every other test of the server leans on them."""

from __future__ import annotations

import signal

from holdfast import Holdfast
from tests.fix_http import Caller, ServeProcess, is_listening


def test_the_server_in_a_thread_works_on_the_test_s_database(http: Caller, engine: Holdfast) -> None:
    http.ok("PUT", "/v1/queues/orders", status=201)

    (id,) = http.send("orders", {"n": 1})

    (delivery,) = engine.claim("orders")
    assert (str(delivery.id), delivery.payload) == (id, {"n": 1})


def test_the_server_process_serves_until_it_is_told_to_end(serve_process: ServeProcess) -> None:
    server = serve_process()
    with server.caller() as http:
        assert http.ok("GET", "/readyz")["status"] == "ready"

        _, err = server.end(signal.SIGTERM)

        assert err == ""
        assert not is_listening(http.place)


def test_a_killed_server_process_is_gone(serve_process: ServeProcess) -> None:
    server = serve_process()

    server.kill()

    with server.caller() as http:
        assert not is_listening(http.place)
