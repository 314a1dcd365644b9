"""Messages sent at one door and taken at another: what each hands out of what every other was given.

What is in a message is told as docs/dialects/queue_ti.md has it; its id, headers, tag and correlation id are
the same at every door that shows them.
"""

from __future__ import annotations

import itertools
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, LiteralString, TypeAlias

import psycopg
import pytest
from psycopg.types.json import Jsonb

from holdfast import Holdfast
from holdfast.dialects.queue_ti.ids import id_of
from holdfast.migrate import migrate
from tests.dialects.queue_ti import QueueTi, as_payload, content_of
from tests.dialects.topics import Json, Topics
from tests.docs.pages import DOCS, quoted, rows, sections
from tests.fix_database import holdfast_database
from tests.fix_http import Caller

Conn: TypeAlias = psycopg.Connection[Any]

BYTES, VALUE = b'{"a":1}', {"a": 1}
IN_BASE64 = b64encode(BYTES).decode()
HEADERS, TAG, CORRELATION = {"h": "1"}, "blue", "7f3a9c00-0000-4000-8000-000000000001"
NAMED: Json = {"headers": HEADERS, "tag": TAG, "correlation_id": CORRELATION}
# What each door hands out of JSON, and of bytes.
HANDED_OUT: dict[tuple[str, str], Any] = {
    ("JSON", "SQL"): VALUE,
    ("JSON", "HTTP"): VALUE,
    ("JSON", "topics"): VALUE,
    ("JSON", "queue-ti"): b'{"a": 1}',
    ("JSON", "mdb_queue"): VALUE,
    ("bytes", "SQL"): BYTES,
    ("bytes", "HTTP"): BYTES,
    ("bytes", "topics"): {"body": IN_BASE64, "content_type": None},
    ("bytes", "queue-ti"): BYTES,
    ("bytes", "mdb_queue"): {"body": IN_BASE64, "content_type": None},
}
INSERT = "insert into mdb_queue.messages (queue_name, payload) values (%s, %s) returning id"
UPDATE = """
update mdb_queue.messages set visible_at = now() + interval '1 minute', claimed_by = 'n',
  attempt_count = attempt_count + 1
where queue_name = %s and visible_at <= now() returning id, payload
"""


@dataclass(frozen=True, slots=True)
class Doors:
    """All ways to the same queues."""

    sql: Holdfast
    http: Caller
    topics: Topics
    queue_ti: QueueTi
    conn: Conn

    def base(self, queue: str) -> int:
        """What sequence numbers of a queue count from."""
        return int(self.row("select holdfast.base_id(%s)", queue)[0])

    def row(self, statement: LiteralString, *parameters: Any) -> tuple[Any, ...]:
        """The one row of a statement."""
        (row,) = self.conn.execute(statement, parameters).fetchall()
        return tuple(row)


@dataclass(frozen=True, slots=True)
class Message:
    """What a door says of a message; None: it does not say it."""

    content: Any
    headers: Json  # None also where a door does not show them
    id: int | None
    tag: str | None = None
    correlation_id: str | None = None


@pytest.fixture(scope="module")
def module_url(server_url: str, template_database: str) -> Iterator[str]:
    """A database that has the schema mdb_queue too."""
    with holdfast_database(server_url, template_database) as url:
        migrate(url, dialects=["foundrydb"])
        yield url


@pytest.fixture
def doors(
    holdfast: Holdfast, native: Caller, topics: Topics, queue_ti: QueueTi, module_url: str
) -> Iterator[Doors]:
    """All of one server."""
    with psycopg.connect(module_url, autocommit=True) as connection:
        yield Doors(holdfast, native, topics, queue_ti, connection)


# --- sending: each returns the id ----------------------------------------------------------------


def posted(doors: Doors, name: str, content: Json) -> int:
    """Send by the native API."""
    document = {"messages": [{**content, **NAMED}]}
    (id,) = doors.http.ok("POST", f"/v1/queues/{name}/messages", document, status=201)["ids"]
    return int(id)


def appended(doors: Doors, name: str) -> int:
    """Send as a record."""
    record = {"data": VALUE, "meta": HEADERS, "tag": TAG}
    (seq,) = doors.topics.ok("POST", f"/v0/topics/{name}", {"records": [record]})["seqs"]
    return doors.base(name) + int(seq)


def enqueued(doors: Doors, name: str) -> int | None:
    """Send as a message of queue-ti."""
    return id_of(doors.queue_ti.send(name, BYTES, metadata=HEADERS))


def enqueued_under_a_schema(doors: Doors, name: str) -> int | None:
    """The same to a topic whose payloads are JSON."""
    doors.queue_ti.ok("PUT", f"/topic-schemas/{name}", {"schema_json": {"type": "object"}})
    return enqueued(doors, name)


def inserted(doors: Doors, name: str) -> int:
    """Send as a row."""
    return int(doors.row(INSERT, name, Jsonb(VALUE))[0])


Send = Callable[[Doors, str], int | None]
# By name: how it is sent, what that is, and what else this door can say of it.
SENDERS: dict[str, tuple[Send, str, tuple[str | None, str | None]]] = {
    "SQL, payload": (lambda at, name: at.sql.send(name, VALUE, **NAMED), "JSON", (TAG, CORRELATION)),
    "SQL, body": (lambda at, name: at.sql.send(name, body=BYTES, **NAMED), "bytes", (TAG, CORRELATION)),
    "HTTP, payload": (lambda at, name: posted(at, name, {"payload": VALUE}), "JSON", (TAG, CORRELATION)),
    "HTTP, body": (lambda at, name: posted(at, name, {"body": IN_BASE64}), "bytes", (TAG, CORRELATION)),
    "topics": (appended, "JSON", (TAG, None)),
    "queue-ti": (enqueued, "bytes", (None, None)),
    "queue-ti, schema": (enqueued_under_a_schema, "JSON", (None, None)),
    "mdb_queue": (inserted, "JSON", (None, None)),
}


# --- taking --------------------------------------------------------------------------------------


def claimed(doors: Doors, name: str) -> Message:
    """Take in SQL."""
    (found,) = doors.sql.claim(name)
    content = found.payload if found.body is None else found.body
    correlation_id = None if found.correlation_id is None else str(found.correlation_id)
    return Message(content, found.headers, found.id, found.tag, correlation_id)


def fetched(doors: Doors, name: str) -> Message:
    """Take by the native API."""
    (found,) = doors.http.claim(name)
    content = found["payload"] if found["body"] is None else b64decode(found["body"])
    return Message(content, found["headers"], int(found["id"]), found["tag"], found["correlation_id"])


def taken_as_job(doors: Doors, name: str) -> Message:
    """Take as a job."""
    (job,) = doors.topics.claim(name)
    return Message(job["data"], job.get("meta"), doors.base(name) + job["$seq"], job.get("$tag"))


def dequeued(doors: Doors, name: str) -> Message:
    """Take as a message of queue-ti."""
    (message,) = doors.queue_ti.dequeue(name)
    return Message(content_of(message), message["metadata"], id_of(message["id"]))


def updated(doors: Doors, name: str) -> Message:
    """Take as a row."""
    id, payload = doors.row(UPDATE, name)
    return Message(payload, None, id)


# By name: how it is taken, and whether a tag and a correlation id are shown there.
TAKERS: dict[str, tuple[Callable[[Doors, str], Message], bool, bool]] = {
    "SQL": (claimed, True, True),
    "HTTP": (fetched, True, True),
    "topics": (taken_as_job, True, False),
    "queue-ti": (dequeued, False, False),
    "mdb_queue": (updated, False, False),
}


@pytest.mark.parametrize(("sender", "taker"), list(itertools.product(SENDERS, TAKERS)))
def test_a_message_crosses_from_every_door_to_every_other(
    doors: Doors, name: str, sender: str, taker: str
) -> None:
    send, kind, (tag, correlation_id) = SENDERS[sender]
    take, shows_tag, shows_correlation = TAKERS[taker]
    if "mdb_queue" in (sender, taker):
        doors.conn.execute("select mdb_queue.create_queue(%s)", [name])
    else:
        doors.queue_ti.configure(name)

    id = send(doors, name)

    assert take(doors, name) == Message(
        HANDED_OUT[kind, taker],
        None if "mdb_queue" in (sender, taker) else HEADERS,
        id,
        tag if shows_tag else None,
        correlation_id if shows_correlation else None,
    )


@pytest.mark.parametrize("door", ["topics", "queue-ti"])
def test_what_a_door_does_not_show_is_still_there_behind_it(doors: Doors, name: str, door: str) -> None:
    doors.queue_ti.configure(name)
    id = doors.sql.send(name, VALUE, **NAMED)
    TAKERS[door][0](doors, name)

    if door == "topics":
        doors.topics.settle("nack", name, [id - doors.base(name)])
    else:
        (item,) = doors.queue_ti.items(name)
        doors.queue_ti.nack(item["id"])

    assert claimed(doors, name) == Message(VALUE, HEADERS, id, TAG, CORRELATION)


def test_the_documentation_has_what_each_door_hands_out() -> None:
    page = (DOCS / "dialects" / "queue_ti.md").read_text(encoding="utf-8")
    table = rows(sections(page, 2)["Payloads across doors"])
    found = [[quoted(cell)[0] for cell in row[1:]] for row in table]

    assert found == [
        ['{"a": 1}', '{"a": 1}', as_payload(HANDED_OUT["JSON", "queue-ti"]), '{"a": 1}'],
        [
            IN_BASE64,
            json.dumps(HANDED_OUT["bytes", "topics"]),
            IN_BASE64,
            json.dumps(HANDED_OUT["bytes", "mdb_queue"]),
        ],
    ]
