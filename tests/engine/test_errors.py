"""Every error: its code, a message, a detail and a hint, and nothing changed.

1. Each QH code of the contract that SQL raises is raised by its scenario.
2. Each comes with a message, a detail and a hint that say something; the message ends with the code, which
   psql would not show otherwise.
3. After it everything is as it was: queues, lanes, messages, leases, gaps, inbox.
4. The codes in SQL, in the client's table and in the documentation are the same.
5. A call without a queue's name says what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

import holdfast
from holdfast import seal
from holdfast.client._errors import ERRORS, RequestError
from tests.engine.engine import T0, Engine
from tests.seals.plainly import pair

Scenario = Callable[[Engine], Any]
SQL = Path(holdfast.__file__).parent / "sql"
KEY = pair().public
DOCUMENTED = Path(__file__).parents[2] / "docs" / "errors.md"
RAISED_BY_CLIENTS = {"QH108", "QH240", "QH242", "QH243", "QH501", "QH502", "QH503", "QH504"}
RAISED_BY_CLIENTS |= {"QH840", "QH841", "QH853", "QH883", "QH884"}
# tests/http/test_refusals.py has a scenario for each of them.
RAISED_BY_SERVERS = {code for code, kind in ERRORS.items() if issubclass(kind, RequestError)}


def send(**options: Any) -> Scenario:
    return lambda engine: engine.value("send", queue="q", **options)


def call(verb: str, **arguments: Any) -> Scenario:
    return lambda engine: engine.rows(verb, **{"queue": "q"} | arguments)


def many(message: Any) -> Scenario:
    return lambda engine: engine.value("send_many", queue="q", messages=Jsonb([message]))


def put(rollups: Any = None, **arguments: Any) -> Scenario:
    stretch = {"bucket": "1 h", "since": "2030-01-01Z", "until": "2030-01-01 03:00Z"} | arguments
    return lambda engine: engine.value("put_rollups", queue="q", **stretch, rollups=Jsonb(rollups or []))


def claim_in(level: str) -> Scenario:
    def scenario(engine: Engine) -> None:
        with engine.conn.transaction():
            engine.conn.execute(f"set transaction isolation level {level}".encode())
            engine.claim(1)

    return scenario


def inserted(columns: str, values: str) -> Scenario:
    return lambda engine: engine.conn.execute(
        f"insert into holdfast.inbox ({columns}) values ({values})".encode()
    )


def rate(**arguments: Any) -> Scenario:
    return lambda engine: engine.rows("take_rate", **{"limiter": "a", "rate": 1} | arguments)


def schema(definition: Any, **arguments: Any) -> Scenario:
    return lambda engine: engine.value(
        "set_schema", **{"queue": "q"} | arguments, definition=Jsonb(definition)
    )


def new_key(**arguments: Any) -> Scenario:
    given = {"name": "shop", "prefix": "hf_new", "hash": b"n" * 32, "scopes": ["send"]} | arguments
    return lambda engine: engine.value("create_key", **given)


def another_secret(**arguments: Any) -> Scenario:
    given = {"id": 1, "prefix": "hf_new", "hash": b"n" * 32} | arguments
    return lambda engine: engine.value("rotate_key", **given)


def login(**arguments: Any) -> Scenario:
    given = {"hash": b"k" * 32, "token": b"n" * 32} | arguments
    return lambda engine: engine.value("begin_login", **given)


def stored(**arguments: Any) -> Scenario:
    given = {"name": "shop", "address": "postgresql://db/shop", "sealed": SEALED} | arguments
    return lambda engine: engine.value("put_service", **given)


def elsewhere(verb: str, **arguments: Any) -> Scenario:
    return lambda engine: engine.rows(verb, **{"service": "local"} | arguments)


def enqueued(messages: Any) -> Scenario:
    given = None if messages is None else Jsonb(messages)
    return elsewhere("enqueue_task", name="active", messages=given)


def endpoint(verb: str, **arguments: Any) -> Scenario:
    return lambda engine: engine.rows(verb, **{"endpoint": "shop"} | arguments)


def hook(verb: str, **arguments: Any) -> Scenario:
    return lambda engine: engine.rows(verb, **{"hook": "shop"} | arguments)


def new_hook(**arguments: Any) -> Scenario:
    return hook("create_hook", **{"hook": "new", "prefix": "new", "hash": b"n" * 32} | arguments)


def made(queue: str | None = None, **config: Any) -> Scenario:
    given = Jsonb({"url": "https://new.example/"} | config)
    return endpoint("create_endpoint", endpoint="new", queue=queue, config=given)


def event(verb: str, **arguments: Any) -> Scenario:
    return lambda engine: engine.rows(verb, **{"name": "sold"} | arguments)


def one_limiter_too_many(engine: Engine) -> None:
    with engine.conn.transaction():
        engine.conn.execute(
            "insert into holdfast.limiter (name) select 'x' || n from generate_series(1, 10000) n"
        )
        engine.rows("take_rate", limiter="a", rate=1)


def settle_in(verb: str) -> Scenario:
    """Settle an ordered message, with a snapshot that may be too old to see who waits behind it."""

    def scenario(engine: Engine) -> None:
        with engine.conn.transaction():
            engine.conn.execute("set transaction isolation level repeatable read")
            held = engine.look("select ids[1] from holdfast.lease where token = 9")
            arguments: dict[str, Any] = {"token": 9} if verb == "ack" else {"ids": [held]}
            engine.rows(verb, queue="strict", **arguments)

    return scenario


def send_in(level: str) -> Scenario:
    def scenario(engine: Engine) -> None:
        with engine.conn.transaction():
            engine.conn.execute(f"set transaction isolation level {level}".encode())
            engine.send(1, key="k")

    return scenario


def staged_in(level: str) -> Scenario:
    def scenario(engine: Engine) -> None:
        with engine.conn.transaction():
            engine.conn.execute(f"set transaction isolation level {level}".encode())
            engine.row("send_staged", queue="q", write_id="w", stages=[], messages=0)

    return scenario


LONG = "x" * 201
LAKES = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
NOWHERE = "00000000-0000-4000-8000-000000000003"

ONE = {"payload": 1}
SEALED = "hfs1.01234567.AAAA"
URL = "https://shop.example/"
# On the service local `full` has all the tasks that it takes; the service `used` has 50 queues.
SERVICES = """
select holdfast.create_service_queue('local', q) from unnest('{pending,active,full}'::text[]) q;
update holdfast.service_queue set status = 'Active' where name in ('active', 'full');
select holdfast.stats_task('local', 'full') from generate_series(1, 999);
select holdfast.put_service('used', 'postgresql://db/used', 'hfs1.01234567.AAAA');
select holdfast.create_service_queue('used', 'q' || n) from generate_series(1, 50) n;
"""

# In the shared queues: `q` holds one message in flight under token 7; `full` has max_depth 1 and one message;
# `off` has no dead letters. Key 1 has the hash k, had o before, and a login t; key 2 is revoked, key 3 has
# expired.
SCENARIOS: list[tuple[str, str, Scenario]] = [
    ("QH601", "kind", call("configure_queue", config={"kind": "log"})),
    ("QH601", "back", call("configure_queue", queue="log", config={"kind": None})),
    ("QH602", "claim", call("claim", queue="log")),
    ("QH602", "ack", call("ack", queue="log", token=7)),
    ("QH602", "target", call("redrive", target="log")),
    ("QH602", "replay", call("replay", target="log")),
    ("QH602", "replay a log", call("replay", queue="log")),
    ("QH603", "delete", call("log_delete", seqs=[1])),
    ("QH603", "lanes", call("read", queue="lanes")),
    ("QH604", "delay", call("send", queue="log", delay="1 s")),
    ("QH605", "after", call("read", queue="log", after=-1)),
    ("QH605", "nothing", call("log_delete", queue="log")),
    ("QH701", "rate", rate(rate=0)),
    ("QH701", "burst", rate(burst=0)),
    ("QH701", "want", rate(want=2)),
    ("QH701", "ten years to fill", rate(rate=0.000001, burst=1_000_000)),
    ("QH701", "just over", rate(rate=0.000001, burst=316)),
    ("QH702", "name", rate(limiter="")),
    ("QH703", "too many", one_limiter_too_many),
    ("QH109", "messages", call("drop_queue", if_empty=True)),
    ("QH101", "send", call("send", queue="nowhere")),
    ("QH101", "batch", call("send_batch", queue="nowhere", payloads=[])),
    ("QH101", "many", call("send_many", queue="nowhere", messages=Jsonb([]))),
    ("QH101", "claim", call("claim", queue="nowhere")),
    ("QH101", "null", call("claim", queue=None)),
    ("QH101", "long name", call("claim", queue="x" * 5000)),
    ("QH101", "listen", call("listen", queue="nowhere")),
    ("QH101", "sweep", call("sweep", queue="nowhere")),
    ("QH101", "repair", call("repair", queue="nowhere")),
    ("QH101", "redrive", call("redrive", queue="nowhere")),
    ("QH101", "discard", call("discard", queue="nowhere", ids=[])),
    ("QH101", "inbox", inserted("queue", "'nowhere'")),
    ("QH102", "exists", call("create_queue", config={"max_deliveries": 9})),
    ("QH103", "name", call("create_queue", queue="not a name")),
    ("QH103", "null", call("create_queue", queue=None)),
    ("QH104", "range", call("configure_queue", config={"lease": 0})),
    ("QH104", "duration", call("configure_queue", config={"lease": "soon"})),
    ("QH104", "unknown", call("configure_queue", config={"colour": "red"})),
    ("QH104", "backoff", call("configure_queue", config={"backoff": {"slope": 1}})),
    ("QH104", "keep", call("configure_queue", config={"keep": ["done", "lost"]})),
    ("QH104", "keep_for", call("configure_queue", config={"keep_for": "1 s"})),
    ("QH104", "no object", call("configure_queue", config=Jsonb([]))),
    ("QH104", "defaults", lambda engine: engine.value("configure_defaults", config={"dead_letter": "x"})),
    ("QH104", "ordering", call("configure_queue", config={"ordering": "some"})),
    ("QH104", "on_dead", call("configure_queue", config={"on_dead": "panic"})),
    ("QH104", "replaces", call("configure_queue", config={"replaces": "all"})),
    ("QH104", "shards", call("create_queue", queue="s", config={"ordering": "strict", "shards": 2})),
    ("QH104", "lanes", call("create_queue", queue="s", config={"ordering": "strict", "priorities": [3]})),
    ("QH104", "no default", lambda engine: engine.value("configure_defaults", config={"ordering": "key"})),
    ("QH105", "off", call("redrive", queue="off")),
    ("QH105", "target", call("redrive", target="nowhere")),
    ("QH201", "payload", send(payload=Jsonb("x" * 1048576))),
    ("QH201", "body", send(body=b"x" * 1048577)),
    ("QH202", "headers", send(headers={"x": "y" * 65536})),
    ("QH203", "both", send(payload=Jsonb(1), body=b"1")),
    ("QH203", "headers", send(headers=Jsonb([]))),
    ("QH203", "no array", call("send_many", messages=Jsonb(5))),
    ("QH203", "no object", many(5)),
    ("QH203", "unknown field", many({"colour": 1})),
    ("QH203", "wrong type", many({"priority": "high"})),
    ("QH204", "send", send(priority=11)),
    ("QH204", "inbox", inserted("queue, priority", "'q', 11")),
    ("QH205", "both", send(delay="1 s", deliver_at="2031-01-01")),
    ("QH205", "range", send(delay="-1 s")),
    ("QH205", "clock", lambda engine: engine.value("set_clock", at="infinity")),
    ("QH206", "both", send(ttl="1 s", expires_at="2031-01-01")),
    ("QH206", "range", send(ttl="0 s")),
    ("QH207", "tag", send(tag=LONG)),
    ("QH207", "content_type", send(content_type=LONG)),
    ("QH207", "consumer", call("claim", consumer=LONG)),
    ("QH208", "batch", call("send_batch", payloads=[Jsonb(1)] * 100_001)),
    ("QH209", "send", call("send", queue="full")),
    ("QH209", "batch", call("send_batch", queue="full", payloads=[Jsonb(1)])),
    ("QH210", "send", send(max_deliveries=1001)),
    ("QH220", "empty", send(key="")),
    ("QH220", "both", send(key="k", idempotency_key="k")),
    ("QH221", "no order", send(ordering_key="k")),
    ("QH221", "strict", call("send", queue="strict", ordering_key="k")),
    ("QH221", "priority", call("send", queue="strict", priority=3)),
    ("QH222", "send", call("send", queue="strict", payload=Jsonb(2), idempotency_key="once")),
    ("QH230", "empty", call("open_stage", write_id="", run="a", part=0)),
    ("QH230", "long", call("send_staged", write_id=LONG, stages=[], messages=0)),
    ("QH230", "no part", call("open_stage", write_id="w", run="a", part=None)),
    ("QH231", "gone", call("send_staged", write_id="w", stages=[1], messages=1)),
    ("QH231", "no number", call("send_staged", write_id="w", stages=[], messages=None)),
    ("QH231", "no stages", call("send_staged", write_id="w", stages=None, messages=1)),
    ("QH303", "staged", staged_in("repeatable read")),
    ("QH401", "scan", call("scan_bounds", state="asleep")),
    ("QH232", "unknown", call("redrive_staged", stage=1, columns=["payload", "colour"])),
    ("QH232", "null", call("redrive_staged", stage=1, columns=[None])),
    ("QH232", "no columns", call("check_redrive", stage=1, columns=None)),
    ("QH230", "replayed", call("replay_staged", write_id=LONG, stages=[], messages=0)),
    ("QH231", "replayed", call("replay_staged", write_id="w", stages=[1], messages=1)),
    ("QH231", "no stage", call("redrive_staged", stage=1)),
    ("QH231", "rows", lambda engine: engine.value("gather_staged", stages=[1], messages=1)),
    ("QH105", "repair off", call("redrive_staged", queue="off", stage=1)),
    ("QH105", "repair target", call("check_redrive", stage=1, columns=[], target="nowhere")),
    ("QH402", "redrive_staged", call("redrive_staged", stage=1, limit=10_001)),
    ("QH301", "claim", call("claim", max=0)),
    ("QH301", "null", call("claim", max=None)),
    ("QH301", "next", call("next", token=7, max=10_001)),
    ("QH302", "claim", call("claim", lease="1 ms")),
    ("QH302", "extend", call("extend", token=7, lease="25 h")),
    ("QH302", "next", call("next", token=7, lease="25 h")),
    ("QH303", "repeatable read", claim_in("repeatable read")),
    ("QH303", "serializable", claim_in("serializable")),
    ("QH304", "ack", call("ack", token=7, ids=[42], strict=True)),
    ("QH304", "nothing held", call("ack", token=8, strict=True)),
    ("QH304", "next", call("next", token=8, strict=True)),
    ("QH305", "nack", call("nack", token=7, delay="-1 s")),
    ("QH303", "ack", settle_in("ack")),
    ("QH303", "discard", settle_in("discard")),
    ("QH303", "keyed send", send_in("repeatable read")),
    ("QH310", "to strict", call("configure_queue", config={"ordering": "strict"})),
    ("QH310", "from strict", call("configure_queue", queue="strict", config={"ordering": None})),
    ("QH311", "unblock", call("unblock", key="k", how="hope")),
    ("QH312", "unblock", call("unblock", key="k")),
    ("QH401", "browse", call("browse", state="asleep")),
    ("QH401", "null", call("browse", state=None)),
    ("QH402", "browse", call("browse", limit=0)),
    ("QH402", "leases", call("leases", limit=10_001)),
    ("QH402", "redrive", call("redrive", limit=None)),
    ("QH403", "unknown field", call("redrive", filter={"colour": 1})),
    ("QH403", "no object", call("redrive", filter=Jsonb([]))),
    ("QH403", "time", call("redrive", filter={"dead_before": "soon"})),
    ("QH410", "unknown", call("purge", states=["ready", "asleep"])),
    ("QH410", "none", call("purge", states=[])),
    ("QH410", "null", call("purge", states=None)),
    ("QH411", "outcome", call("replay", outcomes=["lost"])),
    ("QH411", "no outcome", call("replay", outcomes=[])),
    ("QH411", "period", call("replay", **{"from": "2030-01-02", "to": "2030-01-01"})),
    ("QH411", "target", call("replay", target="nowhere")),
    ("QH421", "samples", call("samples", since="2031-01-01", until="2030-01-01")),
    ("QH422", "maintain", lambda engine: engine.value("maintain", budget="11 s")),
    ("QH422", "null", lambda engine: engine.value("maintain", budget=None)),
    ("QH801", "exclusive", lambda engine: engine.value("begin_run", pipeline="load", exclusive="x")),
    ("QH802", "pipeline", lambda engine: engine.value("begin_run", pipeline="")),
    ("QH802", "null", lambda engine: engine.value("begin_run", pipeline=None)),
    ("QH802", "exclusive", lambda engine: engine.value("begin_run", pipeline="load", exclusive=LONG)),
    ("QH802", "parameters", lambda engine: engine.value("begin_run", pipeline="a", parameters=Jsonb([]))),
    ("QH802", "state", lambda engine: engine.value("end_run", run_id=1, state="lost")),
    ("QH803", "bucket", call("rollups", bucket="2 min")),
    ("QH803", "no bucket", call("rollups", bucket=None)),
    ("QH803", "stretch", put(since="2030-01-01 00:30Z")),
    ("QH803", "backwards", put(until="2029-12-31Z")),
    ("QH803", "no array", put({"start": 1})),
    ("QH803", "too many", put([{}] * 1001)),
    ("QH803", "a number", put([{"start": "2030-01-01Z", "sent": "many"}])),
    ("QH803", "no start", put([{"sent": 1}])),
    ("QH803", "outside", put([{"start": "2030-01-02Z"}])),
    ("QH803", "between", put([{"start": "2030-01-01 00:30Z"}])),
    ("QH803", "twice", put([{"start": "2030-01-01Z"}] * 2)),
    ("QH421", "rollups", call("rollups", since="2031-01-01", until="2030-01-01")),
    ("QH421", "archived", lambda engine: engine.rows("archived", since="2031-01-01", until="2030-01-01")),
    ("QH802", "figures", lambda engine: engine.value("end_run", run_id=1, state="done", figures=Jsonb(1))),
    ("QH810", "lake", lambda engine: engine.value("open_batches", lake=NOWHERE)),
    ("QH810", "batch", lambda engine: engine.value("read_batch", batch=99)),
    ("QH810", "place", lambda engine: engine.value("register_lake", place="")),
    ("QH811", "other lake", lambda engine: engine.value("open_batch", lake=LAKES[1], queue="kept")),
    ("QH830", "job", lambda engine: engine.value("set_schedule", name="", cron="* * * * *", next_at=T0)),
    ("QH831", "cron", lambda engine: engine.value("set_schedule", name="j", cron="daily", next_at=T0)),
    ("QH831", "tick", lambda engine: engine.value("set_schedule", name="j", cron="* * * * *", next_at=None)),
    ("QH850", "name", stored(name="Shop")),
    ("QH850", "null", stored(name=None)),
    ("QH850", "local", stored(name="local")),
    ("QH850", "id", stored(name=NOWHERE)),
    ("QH850", "address", stored(address="")),
    ("QH850", "password", stored(address="postgresql://a:b@c/d")),
    ("QH850", "clear", stored(sealed="postgresql://a:b@c/d")),
    ("QH850", "not sealed", stored(sealed=None)),
    ("QH850", "drop", lambda engine: engine.value("drop_service", name="local")),
    ("QH851", "service", elsewhere("service_queues", service="none", name=None)),
    ("QH851", "null", elsewhere("service_queues", service=None, name=None)),
    ("QH852", "queues", lambda engine: engine.value("drop_service", name="used")),
    ("QH860", "name", elsewhere("create_service_queue", name="Orders")),
    ("QH860", "long name", elsewhere("create_service_queue", name="x" * 129)),
    ("QH860", "database", elsewhere("create_service_queue", name="new", database_name="a b")),
    ("QH860", "timeout", elsewhere("create_service_queue", name="new", visibility_timeout_seconds=43_201)),
    ("QH860", "no timeout", elsewhere("create_service_queue", name="new", visibility_timeout_seconds=0)),
    ("QH860", "attempts", elsewhere("create_service_queue", name="new", max_attempts=101)),
    ("QH860", "dlq", elsewhere("create_service_queue", name="new", dlq_enabled=None)),
    ("QH861", "queue", elsewhere("service_queues", name="none")),
    ("QH861", "delete", elsewhere("delete_service_queue", name="none")),
    ("QH861", "retry", elsewhere("retry_service_queue", name="none")),
    ("QH862", "exists", elsewhere("create_service_queue", name="pending")),
    ("QH863", "fifty", elsewhere("create_service_queue", service="used", name="new")),
    ("QH864", "enqueue", elsewhere("enqueue_task", name="pending", messages=Jsonb([ONE]))),
    ("QH864", "stats", elsewhere("stats_task", name="pending")),
    ("QH865", "retry", elsewhere("retry_service_queue", name="pending")),
    ("QH866", "no array", enqueued({})),
    ("QH866", "null", enqueued(None)),
    ("QH866", "none", enqueued([])),
    ("QH866", "too many", enqueued([ONE] * 101)),
    ("QH866", "no object", enqueued([1])),
    ("QH866", "no payload", enqueued([{"payload": None}])),
    ("QH866", "field", enqueued([{**ONE, "x": 1}])),
    ("QH866", "large", enqueued([{"payload": "x" * 262_143}])),
    ("QH866", "delay", enqueued([{**ONE, "delay_seconds": 1.5}])),
    ("QH866", "late", enqueued([{**ONE, "delay_seconds": 43_201}])),
    ("QH866", "text", enqueued([{**ONE, "delay_seconds": "1"}])),
    ("QH867", "full", elsewhere("stats_task", name="full")),
    ("QH868", "task", elsewhere("service_task", name="active", task=NOWHERE)),
    ("QH868", "no task", elsewhere("service_task", name="active", task=None)),
    ("QH870", "enable", endpoint("enable_endpoint", endpoint="none")),
    ("QH870", "admit", endpoint("admit", endpoint="none")),
    ("QH870", "configure", endpoint("configure_endpoint", endpoint="none", config=Jsonb({}))),
    ("QH870", "attempts", endpoint("record_attempts", endpoint="none", attempts=Jsonb([]))),
    ("QH871", "another url", endpoint("create_endpoint", config=Jsonb({"url": "https://new.example/"}))),
    ("QH872", "name", endpoint("create_endpoint", endpoint="a b", config=Jsonb({"url": "https://a.example/"}))),
    ("QH872", "no url", endpoint("create_endpoint", endpoint="new", config=Jsonb({}))),
    ("QH872", "no config", endpoint("create_endpoint", endpoint="new", config=None)),
    ("QH872", "field", made(colour="red")),
    ("QH872", "scheme", made(url="ftp://new.example/")),
    ("QH873", "address", made(url="http://127.0.0.1/")),
    ("QH874", "secret", made(signing_secret="whsec_c2VjcmV0")),
    ("QH874", "rotate", endpoint("rotate_secret", sealed="whsec_c2VjcmV0")),
    ("QH875", "drop", lambda engine: engine.value("drop_queue", queue="shop")),
    ("QH875", "second", made(queue="shop")),
    ("QH876", "publish", lambda engine: engine.rows("publish", event_type="none", payload=Jsonb(1))),
    ("QH876", "subscribe", endpoint("subscribe", event_type="none")),
    ("QH877", "exists", event("create_event_type", description="another")),
    ("QH878", "name", event("create_event_type", name="a b")),
    ("QH878", "filter", endpoint("subscribe", event_type="sold", filter=Jsonb([1]))),
    ("QH879", "null", endpoint("record_attempts", attempts=None)),
    ("QH879", "no outcome", endpoint("record_attempts", attempts=Jsonb([{"message": 1}]))),
    ("QH880", "configure", hook("configure_hook", hook="none", config=Jsonb({}))),
    ("QH880", "rotate", hook("rotate_hook", hook=None, prefix="new", hash=b"n" * 32)),
    ("QH880", "calls", hook("hook_calls", hook="none")),
    ("QH881", "name", new_hook(hook="shop")),
    ("QH881", "slug", new_hook(hash=b"s" * 32)),
    ("QH881", "slug of another", hook("rotate_hook", prefix="new", hash=b"s" * 32)),
    ("QH882", "name", new_hook(hook="a b")),
    ("QH882", "null", new_hook(hook=None)),
    ("QH882", "prefix", new_hook(prefix="x" * 9)),
    ("QH882", "hash", new_hook(hash=b"x")),
    ("QH882", "field", new_hook(config=Jsonb({"colour": "red"}))),
    ("QH882", "no config", hook("configure_hook", config=None)),
    ("QH882", "nothing", hook("rotate_hook")),
    ("QH882", "overlap", hook("rotate_hook", prefix="new", hash=b"n" * 32, overlap="91 days")),
    ("QH885", "drop", lambda engine: engine.value("drop_queue", queue="filled")),
    ("QH402", "tasks", lambda engine: engine.rows("take_tasks", agent="a", limit=0)),
    ("QH402", "rows", lambda engine: engine.value("open_batch", lake=LAKES[0], queue="kept", limit=0)),
    ("QH106", "kind", schema({}, kind="xml")),
    ("QH106", "null kind", schema({}, kind=None)),
    ("QH106", "number", schema(1)),
    ("QH106", "no avro", schema(True, kind="avro")),
    ("QH106", "null", lambda engine: engine.value("set_schema", queue="q", definition=None)),
    ("QH106", "large", schema({"title": "x" * 262_144})),
    ("QH106", "compatibility", schema({}, compatibility="sideways")),
    ("QH107", "another version", schema({}, expected_version=3)),
    ("QH101", "schema", schema({}, queue="nowhere")),
    ("QH101", "no queue", schema({}, queue=None)),
    ("QH101", "drop", call("drop_schema", queue="nowhere")),
    ("QH101", "in force", call("queue_schema", queue="nowhere")),
    ("QH101", "versions", call("schema_versions", queue="nowhere")),
    ("QH110", "null", call("set_seal_key", public_key=None)),
    ("QH110", "text", call("set_seal_key", public_key="key")),
    ("QH110", "weak", call("set_seal_key", public_key=pair("rsa", bits=1024).public)),
    ("QH110", "private", call("set_seal_key", public_key=pair().private.decode())),
    ("QH101", "seal key", call("set_seal_key", queue="nowhere", public_key=KEY)),
    ("QH101", "seal keys", call("seal_keys", queue="nowhere")),
    ("QH101", "sealing", call("sealing", queue="nowhere")),
    ("QH101", "drop seal key", call("drop_seal_key", queue="nowhere", key_id="")),
    ("QH241", "send", call("send", queue="sealed", payload=Jsonb(1))),
    ("QH241", "nothing", call("send", queue="sealed")),
    ("QH241", "another key", call("send", queue="sealed", body=seal("sealed", 1, public_key=pair().public))),
    ("QH241", "no envelope", call("send", queue="sealed", body=b"HFE1")),
    ("QH241", "no length", call("send", queue="sealed", body=b"HFE1\xff\xff" + b"x" * 99)),
    ("QH241", "no json", call("send", queue="sealed", body=b"HFE1\0\2{" + b"x" * 99)),
    ("QH241", "no text", call("send", queue="sealed", body=b"HFE1\0\2\xff\0" + b"x" * 99)),
    ("QH241", "no object", call("send", queue="sealed", body=b"HFE1\0\1" + b"1" * 99)),
    ("QH241", "batch", call("send_batch", queue="sealed", payloads=[Jsonb(1)])),
    ("QH241", "under a key", call("send", queue="sealed", payload=Jsonb(1), idempotency_key="a")),
    ("QH241", "many", call("send_many", queue="sealed", messages=Jsonb([{"payload": 1}]))),
    ("QH241", "inbox", inserted("queue, payload", "'sealed', '1'")),
    ("QH901", "no name", new_key(name="")),
    ("QH901", "null", new_key(name=None)),
    ("QH901", "spaces", new_key(name="  ")),
    ("QH901", "long name", new_key(name="x" * 65)),
    ("QH901", "two lines", new_key(name="a\nb")),
    ("QH901", "no prefix", new_key(prefix="")),
    ("QH901", "prefix", new_key(prefix="hf_" + "x" * 18)),
    ("QH901", "prefix with a space", new_key(prefix="hf x")),
    ("QH901", "short hash", new_key(hash=b"n" * 31)),
    ("QH901", "no hash", new_key(hash=None)),
    ("QH901", "hash in use", new_key(hash=b"k" * 32)),
    ("QH901", "no scopes", new_key(scopes=[])),
    ("QH901", "null scopes", new_key(scopes=None)),
    ("QH901", "null scope", new_key(scopes=["send", None])),
    ("QH901", "scope", new_key(scopes=["send", "delete"])),
    ("QH901", "no queues", new_key(queues=[])),
    ("QH901", "null queues", new_key(queues=None)),
    ("QH901", "null queue", new_key(queues=[None])),
    ("QH901", "too many queues", new_key(queues=["q"] * 101)),
    ("QH901", "question mark", new_key(queues=["orders?"])),
    ("QH901", "bracket", new_key(queues=["orders[ab]"])),
    ("QH901", "long pattern", new_key(queues=["x" * 201])),
    ("QH901", "line", new_key(queues=["orders\n"])),
    ("QH901", "expired", new_key(expires_in="0 s")),
    ("QH901", "for ever", new_key(expires_in="11 years")),
    ("QH901", "burst alone", new_key(burst=5)),
    ("QH701", "rate of a key", new_key(rate=0)),
    ("QH701", "burst of a key", new_key(rate=1, burst=0)),
    ("QH901", "hash of the key", another_secret(hash=b"k" * 32)),
    ("QH901", "hash before", another_secret(hash=b"o" * 32)),
    ("QH901", "grace", another_secret(grace="8 days")),
    ("QH901", "less than none", another_secret(grace="-1 s")),
    ("QH901", "null grace", another_secret(grace=None)),
    ("QH902", "rotate", another_secret(id=99)),
    ("QH902", "rotate revoked", another_secret(id=2)),
    ("QH902", "rotate expired", another_secret(id=3)),
    ("QH902", "rotate null", another_secret(id=None)),
    ("QH902", "revoke", lambda engine: engine.value("revoke_key", id=99)),
    ("QH901", "token", login(token=b"short")),
    ("QH901", "token in use", login(token=b"t" * 32)),
    ("QH901", "endless login", login(lasts="2 days")),
    ("QH901", "ended login", login(lasts="0 s")),
]


@pytest.fixture(scope="module")
def furnished(refusing: Engine) -> Engine:
    """Queues in which a call could change something."""
    refusing.send("held")
    refusing.claim_one()
    refusing.conn.execute("update holdfast.lease set token = 7")
    refusing.value("begin_run", pipeline="load", exclusive="x")
    refusing.create("full", max_depth=1)
    refusing.send(1, queue="full")
    refusing.create("off", dead_letter=False)
    refusing.create("log", kind="log")
    refusing.create("lanes", priorities=[0, 5])
    refusing.create("strict", ordering="strict")
    refusing.send(1, queue="strict", idempotency_key="once")
    refusing.claim_one(queue="strict")
    refusing.conn.execute("update holdfast.lease set token = 9 where token <> 7")
    refusing.create("kept", keep=["discarded"])
    refusing.create("sealed")
    refusing.value("set_seal_key", queue="sealed", public_key=KEY)
    refusing.value("discard", queue="kept", ids=[refusing.send(1, queue="kept")])
    for lake in LAKES:
        refusing.conn.execute("insert into holdfast.lake values (%s, 'x', holdfast.now())", [lake])
    refusing.rows("open_batch", lake=LAKES[0], queue="kept")
    for hash in (b"o", b"r", b"e"):
        refusing.value("create_key", name="key", prefix="hf_", hash=hash * 32, scopes=["admin"])
    refusing.value("rotate_key", id=1, prefix="hf_", hash=b"k" * 32, grace="1 h")
    refusing.value("begin_login", hash=b"k" * 32, token=b"t" * 32)
    refusing.value("revoke_key", id=2)
    refusing.conn.execute(SERVICES)
    refusing.value("create_hook", hook="shop", prefix="slug", hash=b"s" * 32, queue="filled")
    refusing.value("create_endpoint", endpoint="shop", config=Jsonb({"url": URL}))
    refusing.value("create_event_type", name="sold")
    refusing.conn.execute("update holdfast.api_key set expires_at = holdfast.now() where id = 3")
    return refusing


@pytest.mark.parametrize(
    ("code", "scenario"), [s[::2] for s in SCENARIOS], ids=[f"{code}-{what}" for code, what, _ in SCENARIOS]
)
def test_an_error_says_what_was_found_and_what_to_do_and_changes_nothing(
    furnished: Engine, code: str, scenario: Scenario
) -> None:
    before = furnished.state()

    with pytest.raises(psycopg.Error) as caught:
        scenario(furnished)

    diag = caught.value.diag
    assert diag.sqlstate == code
    assert diag.message_primary
    assert re.fullmatch(rf"[^\[\]]+ \[{code}\]", diag.message_primary)
    assert len(diag.message_primary) < 400
    assert diag.message_detail
    assert diag.message_hint
    assert furnished.state() == before


def test_a_send_without_a_queue_says_what_was_expected(refusing: Engine) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.conn.execute("select holdfast.send(null)")

    diag = caught.value.diag
    assert diag.message_primary == "the name of the queue is null [QH101]"
    assert "payload (JSON) or body (bytes)" in (diag.message_hint or "")


def codes_in(path: Path) -> set[str]:
    return set(re.findall(r"QH(?!000)\d{3}", path.read_text(encoding="utf-8")))


def codes_of_the_engine() -> set[str]:
    return {
        code
        for folder in ("migrations", "functions")
        for path in (SQL / folder).iterdir()
        for code in codes_in(path)
    }


def test_every_code_that_sql_raises_is_in_the_clients_table_and_the_other_way_round() -> None:
    assert codes_of_the_engine() == set(ERRORS) - RAISED_BY_CLIENTS - RAISED_BY_SERVERS


def test_every_code_of_the_installation_script_is_in_the_clients_table() -> None:
    assert codes_in(SQL / "install.sql") <= set(ERRORS)


def test_every_code_that_the_engine_raises_has_a_scenario_here() -> None:
    assert {code for code, _, _ in SCENARIOS} == codes_of_the_engine()


def test_no_error_of_ours_has_a_code_of_another_kind() -> None:
    raised = [
        line
        for path in (SQL / "functions").glob("*.sql")
        for line in path.read_text().splitlines()
        if re.search(r"\braise exception\b", line)
    ]

    assert len(raised) >= 1
    assert all("errcode" in line for line in raised)


def test_the_documentation_has_every_code_and_no_other() -> None:
    assert codes_in(DOCUMENTED) == set(ERRORS)
