"""Topics: what several do at once, through one server or two."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from holdfast import Holdfast
from holdfast.server.settings import Settings
from tests.dialects.topics import Topics
from tests.fix_http import Serve, served
from tests.waiting import eventually

ROUNDS = 10
WAITING = (
    "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
)


def test_changes_that_come_together_all_count(topics: Topics, name: str) -> None:
    topics.queue(name)

    def change(field: str) -> None:
        with Topics(topics.address) as other:
            for value in range(1000, 1000 + ROUNDS):
                other.put(name, status=200, **{field: value})

    fields = ["lease_ms", "ttl_ms", "idempotency_window_ms", "claim_jitter_ms"]
    with ThreadPoolExecutor(len(fields)) as pool:
        list(pool.map(change, fields))

    config = topics.get(name)["config"]
    assert {field: config[field] for field in fields} == dict.fromkeys(fields, 1000 + ROUNDS - 1)


def test_a_change_leaves_alone_what_it_does_not_name(topics: Topics, holdfast: Holdfast, name: str) -> None:
    holdfast.create_queue(name, {"annotations": {"owner": "x"}, "dead_letter": False, "max_deliveries": 7})

    topics.put(name, status=200, ttl_ms=60_000)

    holdfast.configure_defaults({"lease": "50 s"})
    effective: Any = next(info for info in holdfast.queues() if info.queue == name).effective
    holdfast.configure_defaults({"lease": None})
    found = {field: effective[field] for field in ("lease", "max_deliveries", "dead_letter", "ttl")}
    assert found == {"lease": "50 s", "max_deliveries": 7, "dead_letter": False, "ttl": 60}
    assert effective["annotations"]["owner"] == "x"


def test_a_key_that_somebody_keeps_locked_leaves_others_their_connections(module_url: str, name: str) -> None:
    settings = Settings(database_url=module_url, port=0, pool_size=3)
    with served(settings) as http, Topics(http.address) as topics, psycopg.connect(module_url) as holder:
        topics.queue(name)
        holder.execute("select holdfast.send_once(%s, '[{\"payload\": 1}]', 'k')", [name])

        def append(_: int) -> list[int]:
            with Topics(topics.address) as other:
                return other.append(name, 1, idempotency_key="k")

        with ThreadPoolExecutor(8) as pool, psycopg.connect(module_url, autocommit=True) as looker:
            appending = [pool.submit(append, n) for n in range(8)]
            try:
                eventually(
                    lambda: (looker.execute(WAITING).fetchone() or (0,))[0] > 0, what="an append waits"
                )
                assert topics.get(name)["count"] == 0
                assert topics.append(name, 2, idempotency_key="other") != []
            finally:
                holder.rollback()
            assert len({tuple(done.result()) for done in appending}) == 1

        assert topics.get(name)["count"] == 2


def test_a_server_that_has_missed_a_topic_finds_it(serve: Serve, engine: Holdfast) -> None:
    http = serve(listen=False)
    key = engine.create_key("s", scopes=["send"]).key
    eventually(lambda: http.client.get("/v0/topics").status_code == 401, what="the server is closed")
    with Topics(http.address, key=key) as sender:
        sender.refused("POST", "/v0/topics/t", {"records": [{"data": 1}]}, status=404, code="topic_not_found")
        engine.create_queue("t")

        assert sender.append("t", 1) == [1]
