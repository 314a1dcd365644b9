"""The FoundryDB dialect, held against its page: the claims of the page, and its examples as they stand there.

These are the claims, sentence by sentence; docs/dialects/foundrydb.md says which hold, and which do not and
why. A test that pins some says so: @pins(…). Those about SQL are in test_foundrydb_sql.py.

1. A queue is a durable, PostgreSQL-backed message queue provisioned inside one of your PostgreSQL managed
   services
2. Message data lives in a dedicated mdb_queue schema, transactional with your application data
3. Consumers claim messages using SELECT … FOR UPDATE SKIP LOCKED, so multiple workers can drain a queue
   concurrently without contention or double-processing
4. Queues use at-least-once delivery
5. A message that is claimed but never acknowledged reappears automatically when the visibility timeout
   expires
6. Queues are only supported on PostgreSQL: a running PostgreSQL managed service, and its ID, come first
7. Every request of the page brings -u admin:password
8. A queue is created by POST with the fields of the page: 201, and the queue with its id, its service_id, the
   status Pending and two timestamps
9. Provisioning is asynchronous: a queue goes from Pending through Provisioning to Active as the agent creates
   the schema objects inside your database
10. Only Active queues accept messages
11. name: required, lowercase alphanumerics, hyphens, and underscores; max 128 characters
12. database_name: target database within the PostgreSQL service, by default that of the service
13. visibility_timeout_seconds: how long a claimed message is hidden, 1 to 43200, 30 by default
14. max_attempts: maximum delivery attempts before a message moves to the DLQ, 1 to 100, 5 by default
15. dlq_enabled: whether exhausted messages are saved in mdb_queue.dead_messages, true by default
16. Queues are listed by GET, as the page shows them
17. One queue is got by its name; the path parameter is the name, not an ID
18. The HTTP enqueue path is brokered: the controller creates an agent task, the agent writes the batch in a
    single transaction, and returns the message IDs
19. Enqueue returns 202 Accepted with a task ID to poll
20. This path is useful for any caller without a direct database connection
21. When the task completes, the response includes the assigned message IDs in request order
22. While the task is pending or running, the response is 202 with that status
23. payload: arbitrary JSON document, max 256 KB
24. delay_seconds: a first visibility is postponed by 0 to 43200 seconds
25. A batch may contain up to 100 messages
26. Enqueue directly via SQL: faster, and atomic within your own transaction
27. Enqueue one message: the statement returns its id
28. Stats are brokered too: a request answers 202 with a task ID, and polling it with the snapshot
29. ready_messages: visible messages available for claim
30. inflight_messages: claimed messages currently hidden from other consumers
31. dead_messages: messages that exhausted max_attempts and moved to the DLQ
32. oldest_age_seconds: age of the oldest ready message
33. Deletion is asynchronous: the queue is Deprovisioning while the agent removes the schema objects, then its
    registry row is soft-deleted
34. DELETE returns 202 Accepted with the queue row in Deprovisioning status
35. Your application interacts with the queue directly over its injected PostgreSQL connection
36. The mdb_queue schema is owned by the platform but your primary user has full data access
37. Claim up to 10 messages with a 60-second visibility window
38. SKIP LOCKED ensures that concurrent consumers each claim a disjoint set of rows without blocking each
    other
39. Ack: delete the message once processing succeeds
40. Token-gated: an expired claim that was re-claimed by another consumer sees zero rows
41. Nack: reschedule the message for redelivery after a backoff, with an error note
42. Extend the claim to prevent redelivery
43. A message is redelivered if the consumer crashes between claiming and acknowledging it
44. Ordered by ID within a claim batch, no global FIFO guarantee across concurrent consumers
45. The claim statement first sweeps any over-budget messages to mdb_queue.dead_messages in the same atomic
    operation
46. No background daemon is required
47. Claim in autocommit or a short transaction: holding claimed rows inside a long transaction degrades
    throughput
48. Pending: create request received; agent task queued
49. Provisioning: agent is creating schema objects in the database
50. Active: queue is ready for enqueue and claim operations
51. Deprovisioning: deletion in progress; agent is removing schema objects
52. Failed: provisioning or deprovisioning failed; see error_message
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest

from holdfast import Holdfast
from tests.dialects.conftest import T0, At, Rows
from tests.dialects.foundrydb import AGENT, FoundryDb, Json
from tests.dialects.pins import claimed, listed, pinned, pins, verdicts
from tests.dialects.seeds import page
from tests.docs.pages import DOCS, blocks
from tests.waiting import eventually

# The requests of the page, as they stand there, and what it says they are answered with.
CREATE = """\
curl -u admin:password -X POST \\
https://api.foundrydb.com/managed-services/{service-id}/queues \\
-H "Content-Type: application/json" \\
-d '{
"name": "order-events",
"database_name": "defaultdb",
"visibility_timeout_seconds": 60,
"max_attempts": 5,
"dlq_enabled": true
}'"""
CREATED = """\
{
"id": "q-uuid",
"service_id": "pg-service-uuid",
"name": "order-events",
"database_name": "defaultdb",
"visibility_timeout_seconds": 60,
"max_attempts": 5,
"dlq_enabled": true,
"status": "Pending",
"created_at": "2026-06-22T14:00:00Z",
"updated_at": "2026-06-22T14:00:00Z"
}"""
LIST = """\
curl -u admin:password \\
https://api.foundrydb.com/managed-services/{service-id}/queues
"""
LISTED = """\
{
"queues": [
{
"id": "q-uuid",
"name": "order-events",
"database_name": "defaultdb",
"status": "Active",
"visibility_timeout_seconds": 60,
"max_attempts": 5,
"dlq_enabled": true
}
]
}"""
GET = """\
curl -u admin:password \\
https://api.foundrydb.com/managed-services/{service-id}/queues/order-events
"""
ENQUEUE = """\
curl -u admin:password -X POST \\
https://api.foundrydb.com/managed-services/{service-id}/queues/order-events/messages \\
-H "Content-Type: application/json" \\
-d '{
"messages": [
{"payload": {"order_id": 1001, "event": "created"}},
{"payload": {"order_id": 1002, "event": "paid"}, "delay_seconds": 30}
]
}'"""
POLL = """\
curl -u admin:password \\
"https://api.foundrydb.com/managed-services/{service-id}/queues/order-events/messages?task_id=task-uuid\""""
ENQUEUED = """\
{
"task_id": "task-uuid",
"status": "completed",
"result": {
"message_ids": [4217, 4218]
}
}"""
STATS = """\
curl -u admin:password -X POST \\
https://api.foundrydb.com/managed-services/{service-id}/queues/order-events/stats
"""
POLL_STATS = """\
curl -u admin:password \\
"https://api.foundrydb.com/managed-services/{service-id}/queues/order-events/stats?task_id=task-uuid\""""
COUNTED = """\
{
"task_id": "task-uuid",
"status": "completed",
"result": {
"queue_name": "order-events",
"ready_messages": 142,
"inflight_messages": 8,
"dead_messages": 3,
"oldest_age_seconds": 47.2
}
}"""
DELETE = """\
curl -u admin:password -X DELETE \\
https://api.foundrydb.com/managed-services/{service-id}/queues/order-events
"""
BEGUN = '{"task_id": "task-uuid"}'
COMMANDS = (CREATE, LIST, GET, ENQUEUE, POLL, STATS, POLL_STATS, DELETE)
ANSWERS = (CREATED, LISTED, ENQUEUED, COUNTED, BEGUN)
MOMENT = datetime(2026, 6, 22, 14, tzinfo=UTC)  # of the page
STEP = re.compile(r"(?P<commands>(?:(?!# ).*\n)+)# (?P<promise>.*)\n")  # what is typed, and what it prints
MARK = "\x1e"

Typed = Callable[..., tuple[int, Json]]
Stopped = Callable[[LiteralString], AbstractContextManager[None]]


# --- the claims ----------------------------------------------------------------------------------


def test_the_claims_above_are_those_of_the_documentation() -> None:
    assert listed(__doc__ or "") == claimed("foundrydb")


def test_every_claim_is_pinned_and_every_pin_is_a_claim() -> None:
    assert pinned("foundrydb") == set(claimed("foundrydb")) == set(range(1, 53))


def test_of_every_claim_it_is_said_whether_it_holds() -> None:
    unclear = {
        number: verdict
        for number, verdict in verdicts("foundrydb").items()
        if not re.match(r"(same\b|differs, because )", verdict)
    }

    assert unclear == {}


def test_the_examples_here_are_those_of_the_page() -> None:
    # Where the page is not there, the summary of the run says so.
    text = page("foundrydb-queues")

    assert [one for one in (*COMMANDS, *ANSWERS) if text is not None and one not in text] == []


def documents(text: str) -> Iterator[str]:
    """The JSON that stands in a text, each beginning with a line."""
    end = 0
    for found in re.finditer(r"^\{", text, re.MULTILINE):
        if found.start() >= end:
            end = json.JSONDecoder().raw_decode(text, found.start())[1]
            yield text[found.start() : end]


def test_every_example_of_the_page_is_among_those_here() -> None:
    text = page("foundrydb-queues") or ""

    assert text.count("curl ") == (len(COMMANDS) if text else 0)
    paths = re.findall(r"^.*api[.]foundrydb[.]com.*", text, re.MULTILINE)
    assert [path for path in paths if not any(path in command for command in COMMANDS)] == []
    for command in COMMANDS:
        text = text.replace(command, "")
    assert sorted(set(documents(text))) == (sorted(ANSWERS) if text else [])


# --- the examples --------------------------------------------------------------------------------


@pytest.fixture
def local(rows: Rows) -> str:
    """The id of the service that is Holdfast's own database."""
    ((id,),) = rows("select id::text from holdfast.services() where name = 'local'")
    return str(id)


@pytest.fixture
def typed(foundrydb: FoundryDb, local: str) -> Typed:
    """Types a command of the page into a shell; returns the status and what curl printed, as JSON."""
    bash, curl = shutil.which("bash"), shutil.which("curl")
    if bash is None or curl is None:
        pytest.fail("the page needs curl and bash, and the machine lacks one: apt-get install curl bash")

    def run(command: str, *, task: str = "task-uuid") -> tuple[int, Json]:
        here = command.replace("https://api.foundrydb.com", foundrydb.address)
        here = here.replace("{service-id}", local).replace("task-uuid", task)
        here = here.replace("curl ", "curl -s -w '\\n%{http_code}' ", 1)
        done = subprocess.run(
            [bash, "-uc", here],
            env={"PATH": os.environ["PATH"], "no_proxy": "*"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        body, _, status = done.stdout.rpartition("\n")
        return int(status), json.loads(body)

    return run


@pytest.fixture
def done(typed: Typed) -> Callable[[str, str], Json]:
    """Types a command of the page until the task is no longer on its way; returns what came of it."""

    def poll(command: str, task: str) -> Json:
        def answer() -> Json:
            status, document = typed(command, task=task)
            if status == 202:
                assert (document["task_id"], document["status"] in ("pending", "running")) == (task, True)
                return None
            return status, document

        answered = eventually(answer, what="the task is done", timeout=AGENT)
        status, document = answered
        assert status == 200, document
        return document

    return poll


@pins(7, 8, 9, 12, 16, 17, 18, 19, 20, 21, 24, 33, 34, 51)
def test_the_examples_of_the_page_do_what_it_says(
    foundrydb: FoundryDb, typed: Typed, done: Any, local: str, at: At, rows: Rows
) -> None:
    at((MOMENT - T0).total_seconds())
    created = typed(CREATE)
    id = created[1]["id"]
    foundrydb.becomes("order-events", "Active")
    listing, got = typed(LIST), typed(GET)
    begun = typed(ENQUEUE)
    task = begun[1]["task_id"]
    enqueued = done(POLL, task)
    messages = rows(
        "select id, payload, extract(epoch from visible_at - enqueued_at)::int, attempt_count, max_attempts"
        " from mdb_queue.messages where queue_name = 'order-events' order by id"
    )
    deleted = typed(DELETE)
    eventually(lambda: typed(GET)[0] == 404, what="it is gone", timeout=AGENT)

    queue = {**json.loads(CREATED), "id": id, "service_id": local}
    assert created == (201, queue)
    assert listing == (200, {"queues": [{**json.loads(LISTED)["queues"][0], "id": id}]})
    assert got == (200, {**queue, "status": "Active"})
    assert begun == (202, {"task_id": task})
    first, second = enqueued["result"]["message_ids"]
    assert enqueued == {"task_id": task, "status": "completed", "result": {"message_ids": [first, second]}}
    assert messages == [
        (first, {"order_id": 1001, "event": "created"}, 0, 0, 5),
        (second, {"order_id": 1002, "event": "paid"}, 30, 0, 5),
    ]
    assert {UUID(id).version, UUID(local).version, UUID(task).version} <= {4, 7}
    assert deleted == (202, {**queue, "status": "Deprovisioning"})


@pins(28, 29, 30, 31, 32)
def test_the_stats_of_the_page_are_counted(
    foundrydb: FoundryDb, typed: Typed, done: Any, holdfast: Holdfast, at: At
) -> None:
    foundrydb.opened("order-events", max_attempts=1)
    at(0)
    holdfast.send_batch("order-events", [{"n": n} for n in range(11)])
    dead = holdfast.claim("order-events", 3)
    holdfast.nack("order-events", dead[0].token)
    holdfast.claim("order-events", 8, lease=timedelta(hours=1))
    at(10)
    holdfast.send_batch("order-events", [{"n": n} for n in range(142)])
    holdfast.send("order-events", {"later": True}, delay=timedelta(hours=1))
    at(57.2)

    begun = typed(STATS)
    counted = done(POLL_STATS, begun[1]["task_id"])
    foundrydb.deleted("order-events")

    assert begun[0] == 202
    assert counted == {**json.loads(COUNTED), "task_id": begun[1]["task_id"]}


def test_every_command_of_the_documentation_answers_as_it_says(foundrydb: FoundryDb) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    steps = [
        (step["commands"], step["promise"])
        for language, block in blocks(DOCS / "dialects" / "foundrydb.md")
        if language == "sh"
        for step in STEP.finditer(block)
    ]
    script = "".join(f"{commands}\nprintf '\\n{MARK}\\n'\n" for commands, _ in steps)
    queues = f"{foundrydb.address}/managed-services/local/queues"

    finished = subprocess.run(
        [bash, "-us"],
        input=f'curl() {{ command curl -s "$@"; }}\n{script}',
        env={"PATH": os.environ["PATH"], "QUEUES": queues, "KEY": "hf_none"},
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )

    printed = [part.strip() for part in finished.stdout.split(MARK)[:-1]]
    assert (len(printed), finished.stderr) == (len(steps), "")
    assert len(steps) >= 7
    for (commands, promise), line in zip(steps, printed, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, promise.split("…"))), line), (commands, promise, line)


# --- what is told beside them --------------------------------------------------------------------


@pins(11, 13, 14, 15)
def test_a_queue_has_the_defaults_of_the_page(foundrydb: FoundryDb, name: str) -> None:
    usual = foundrydb.create(name)
    nulls = foundrydb.create(
        f"{name}-null",
        database_name=None,
        visibility_timeout_seconds=None,
        max_attempts=None,
        dlq_enabled=None,
    )
    widest = foundrydb.create(
        "x" * 128, visibility_timeout_seconds=43_200, max_attempts=100, dlq_enabled=False
    )

    settings = ("database_name", "visibility_timeout_seconds", "max_attempts", "dlq_enabled")
    assert [tuple(queue[field] for field in settings) for queue in (usual, nulls, widest)] == [
        ("defaultdb", 30, 5, True),
        ("defaultdb", 30, 5, True),
        ("defaultdb", 43_200, 100, False),
    ]
    for queue in (usual, nulls, widest):
        assert (queue["status"], queue["updated_at"]) == ("Pending", queue["created_at"])
        foundrydb.becomes(queue["name"], "Active")
        foundrydb.deleted(queue["name"])


@pins(1, 2, 13, 14, 15, 35, 36)
def test_what_is_made_here_is_there_for_sql(foundrydb: FoundryDb, name: str, rows: Rows) -> None:
    foundrydb.opened(name, visibility_timeout_seconds=77, max_attempts=2, dlq_enabled=False)

    settings = "visibility_timeout_seconds, max_attempts, dlq_enabled"
    found = rows(f"select {settings} from mdb_queue.queues where name = %s", name)
    ids = foundrydb.enqueue(name, {"n": 1}, "text", [1, 2.50], 7, True)

    assert found == [(77, 2, False)]
    assert rows("select id, payload from mdb_queue.messages where queue_name = %s order by id", name) == list(
        zip(ids, [{"n": 1}, "text", [1, 2.5], 7, True], strict=True)
    )


@pins(23, 24, 25)
def test_a_batch_has_a_hundred_messages_of_256_kb_put_off_by_twelve_hours(
    foundrydb: FoundryDb, name: str, rows: Rows
) -> None:
    foundrydb.opened(name)

    ids = foundrydb.enqueue(name, *range(100), delay=43_200)
    (large,) = foundrydb.enqueue(name, "x" * (262_144 - 2))

    assert (len(ids), sorted({*ids, large})) == (100, [*ids, large])
    columns = "payload, visible_at - enqueued_at"
    found = rows(f"select {columns} from mdb_queue.messages where id = any (%s) order by id", ids)
    assert found == [(n, timedelta(seconds=43_200)) for n in range(100)]


@pins(23)
def test_a_payload_stays_as_it_came(foundrydb: FoundryDb, name: str, rows: Rows) -> None:
    foundrydb.opened(name)
    payload = '{"a": 12345678901234567890.120, "é": ["\\u20ac", null, -0.0], "z": {}}'

    answer = foundrydb.call(
        "POST",
        f"/{name}/messages",
        content=f'{{"messages": [{{"payload": {payload}}}]}}'.encode(),
        headers={"content-type": "application/json"},
    )
    foundrydb.result(f"/{name}/messages", answer.json()["task_id"])

    statement = "select payload = %s::jsonb from mdb_queue.messages where queue_name = %s"
    assert rows(statement, payload, name) == [(True,)]


@pins(21)
def test_ids_come_in_the_order_of_the_request(foundrydb: FoundryDb, name: str, rows: Rows) -> None:
    foundrydb.opened(name)
    messages = [{"payload": n, "delay_seconds": 99 - n} for n in range(100)]

    ids = foundrydb.result(f"/{name}/messages", foundrydb.ask(name, *messages))["message_ids"]

    found = dict(rows("select id, payload from mdb_queue.messages where queue_name = %s", name))
    assert [found[id] for id in ids] == list(range(100))


@pins(32)
def test_where_nothing_is_ready_nothing_has_an_age(foundrydb: FoundryDb, name: str) -> None:
    foundrydb.opened(name)

    assert foundrydb.stats(name) == {
        "queue_name": name,
        "ready_messages": 0,
        "inflight_messages": 0,
        "dead_messages": 0,
        "oldest_age_seconds": 0,
    }


@pins(17)
def test_a_queue_is_not_found_by_its_id(foundrydb: FoundryDb, name: str) -> None:
    queue = foundrydb.create(name)

    foundrydb.refused("GET", f"/{queue['id']}", status=404, code="QH861")


@pins(6)
def test_a_service_is_named_by_its_id_or_its_name(
    foundrydb: FoundryDb, local: str, name: str
) -> None:
    by_name = foundrydb.create(name)
    with foundrydb.of(local) as by_id:
        found = by_id.get(name)

    assert (found["id"], found["service_id"]) == (by_name["id"], local)


@pins(33, 34)
def test_to_delete_again_does_no_harm_and_ends_the_messages(
    foundrydb: FoundryDb, name: str, rows: Rows, holdfast: Holdfast
) -> None:
    foundrydb.opened(name)
    foundrydb.enqueue(name, 1, 2)

    first = foundrydb.ok("DELETE", f"/{name}", status=202)
    again = foundrydb.call("DELETE", f"/{name}")
    eventually(lambda: name not in foundrydb.names(), what="it is gone", timeout=AGENT)

    assert first["status"] == "Deprovisioning"
    assert again.status_code in (202, 404)  # it may be gone by now
    if again.status_code == 202:
        assert (again.json()["id"], again.json()["status"]) == (first["id"], "Deprovisioning")
    foundrydb.refused("DELETE", f"/{name}", status=404, code="QH861")
    assert rows("select id from mdb_queue.messages where queue_name = %s", name) == []
    assert name not in [queue.queue for queue in holdfast.queues()]
    assert foundrydb.opened(name)["id"] != first["id"]
    assert foundrydb.stats(name)["ready_messages"] == 0


# --- while an agent is at it ---------------------------------------------------------------------


@pytest.fixture
def stopped(module_url: str) -> Stopped:
    """Keeps agents from changing a table, as long as the block lasts."""

    @contextmanager
    def hold(table: LiteralString) -> Iterator[None]:
        with psycopg.connect(module_url) as connection:
            connection.execute(f"lock table {table} in share mode")
            yield

    return hold


@pins(9, 10, 33, 34, 48, 49, 50, 51)
def test_a_queue_goes_through_its_statuses_and_is_sent_to_only_while_it_is_active(
    foundrydb: FoundryDb, stopped: Stopped, name: str
) -> None:
    batch = {"messages": [{"payload": 1}]}

    def refused() -> None:
        for path, body in (("messages", batch), ("stats", None)):
            foundrydb.refused("POST", f"/{name}/{path}", body, status=409, code="QH864")

    with stopped("holdfast.queue"):
        assert foundrydb.create(name)["status"] == "Pending"
        foundrydb.becomes(name, "Provisioning")
        refused()
    foundrydb.becomes(name, "Active")
    ids = foundrydb.enqueue(name, 1, 2)
    assert foundrydb.stats(name)["ready_messages"] == len(ids)
    with stopped("holdfast.queue"):
        first = foundrydb.ok("DELETE", f"/{name}", status=202)
        again = foundrydb.ok("DELETE", f"/{name}", status=202)
        assert (first["status"], again) == ("Deprovisioning", first)
        assert foundrydb.get(name)["status"] == "Deprovisioning"
        assert foundrydb.names().count(name) == 1
        foundrydb.refused("POST", "", {"name": name}, status=409, code="QH862")
        refused()
    eventually(lambda: name not in foundrydb.names(), what="it is gone", timeout=AGENT)
    foundrydb.refused("GET", f"/{name}", status=404, code="QH861")


@pins(19, 21, 22)
def test_a_task_is_pending_then_running_then_completed(
    foundrydb: FoundryDb, stopped: Stopped, name: str
) -> None:
    foundrydb.opened(name)
    path = f"/{name}/messages"

    def answer(task: str) -> tuple[int, Json]:
        found = foundrydb.call("GET", path, params={"task_id": task})
        return found.status_code, found.json()

    with stopped("holdfast.message"):
        first, second = foundrydb.ask(name, {"payload": 1}), foundrydb.ask(name, {"payload": 2})
        running = (202, {"task_id": first, "status": "running"})
        eventually(lambda: answer(first) == running, what="the first is running", timeout=AGENT)
        assert answer(second) == (202, {"task_id": second, "status": "pending"})
    ids = [foundrydb.result(path, task)["message_ids"] for task in (first, second)]

    # What was asked for first is sent first.
    assert ids == [[ids[0][0]], [ids[1][0]]]
    assert ids[0] < ids[1]


@pins(22)
def test_a_task_that_fails_says_why_and_has_sent_nothing(
    foundrydb: FoundryDb, holdfast: Holdfast, name: str
) -> None:
    foundrydb.opened(name)
    holdfast.drop_queue(name)  # somebody does so at another door
    holdfast.create_queue(name, {"by_row": True})

    for path, task in (
        ("messages", foundrydb.ask(name, {"payload": 1})),
        ("stats", foundrydb.ok("POST", f"/{name}/stats", status=202)["task_id"]),
    ):
        failed = foundrydb.end(f"/{name}/{path}", task)
        assert failed.status_code == 422
        assert failed.json() == {"error": failed.json()["error"], "task_id": task, "status": "failed"}
        assert "is not on the service any more" in failed.json()["error"]
    assert holdfast.claim(name) == []


@pins(18, 22)
def test_a_batch_that_does_not_fit_the_schema_of_its_queue_fails_as_a_whole(
    foundrydb: FoundryDb, holdfast: Holdfast, name: str
) -> None:
    foundrydb.opened(name)
    holdfast.set_schema(name, {"type": "object", "required": ["id"]})
    fits, misfits = {"payload": {"id": 1}}, {"payload": {"no": 1}}
    path = f"/{name}/messages"

    failed = foundrydb.end(path, foundrydb.ask(name, fits, misfits))
    sent = foundrydb.result(path, foundrydb.ask(name, fits))["message_ids"]

    assert failed.status_code == 422
    assert "schema" in failed.json()["error"]
    assert "messages[1]" in failed.json()["error"]
    assert [delivery.id for delivery in holdfast.claim(name, 10)] == sent


@pins(22)
def test_a_task_that_has_to_be_tried_again_says_why_and_is_done_in_the_end(
    foundrydb: FoundryDb, holdfast: Holdfast, name: str
) -> None:
    foundrydb.opened(name)
    holdfast.configure_queue(name, {"max_depth": 1})
    task = foundrydb.ask(name, {"payload": 1}, {"payload": 2})

    def trouble() -> Any:
        path, asked = f"/{name}/messages", {"task_id": task}
        return foundrydb.ok("GET", path, params=asked, status=202).get("error_message")

    assert "max_depth" in eventually(trouble, what="it was tried", timeout=AGENT)
    assert foundrydb.stats(name)["ready_messages"] == 0
    holdfast.configure_queue(name, {"max_depth": 2})
    assert len(foundrydb.result(f"/{name}/messages", task)["message_ids"]) == 2


@pins(29, 30)
def test_a_claim_whose_time_is_over_counts_as_ready(
    foundrydb: FoundryDb, holdfast: Holdfast, at: At, name: str
) -> None:
    foundrydb.opened(name)
    foundrydb.enqueue(name, 1)
    holdfast.claim(name, lease=timedelta(seconds=30))
    before = foundrydb.stats(name)
    at(31)

    after = foundrydb.stats(name)

    assert [(stats["ready_messages"], stats["inflight_messages"]) for stats in (before, after)] == [
        (0, 1),
        (1, 0),
    ]
