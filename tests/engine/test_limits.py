"""Limits at their edges, and values that are easy to get wrong.

1. A payload of exactly max_payload bytes (as JSON text) is taken, one byte more is not; the same for bodies,
   for every way to send, and also when the value arrives compressed.
2. JSON null, scalars, empty arrays and objects, and zero-length bodies arrive as they were.
3. Text of any script arrives as it was; lengths are counted in characters, sizes in bytes.
4. Times and counts are taken at both ends of their ranges.
5. 100,000 messages go in one call, one more does not.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine, payloads

MIB = 1024 * 1024
VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    12345678901234567890123456789,
    "",
    "x",
    [],
    {},
    [[]],
    [None],
    {"": {}},
    {"a": [1, {"b": None}]},
    "\u00e9\u4e2d\U0001f600",
    {"\u4e2d": "\U0001f600"},
    'quote " back \\ slash / \n \t',
    "x" * 100_000,
]


def code_of(engine: Engine, verb: str, **arguments: Any) -> str | None:
    """The error code of a call, or None; a call that works is undone."""
    try:
        with engine.conn.transaction(force_rollback=True):
            engine.value(verb, queue="q", **arguments)
    except psycopg.Error as error:
        return error.sqlstate
    return None


@pytest.mark.parametrize("value", VALUES, ids=range(len(VALUES)))
def test_json_arrives_as_it_was(queue: Engine, value: Any) -> None:
    queue.send(value)
    queue.value("send_batch", queue="q", payloads=[Jsonb(value)])
    queue.value("send_many", queue="q", messages=Jsonb([{"payload": value}]))

    rows = queue.claim(3)

    assert payloads(rows) == [value, value, value]
    assert queue.look("select bool_and(payload is not null) from holdfast.message") is True


@pytest.mark.parametrize(
    "body", [b"", b"\x00", bytes(range(256)), b"x" * 100_000], ids=["empty", "nul", "all", "long"]
)
def test_bytes_arrive_as_they_were(queue: Engine, body: bytes) -> None:
    queue.value("send", queue="q", body=body)

    assert queue.claim_one()["body"] == body


def test_json_null_and_no_payload_are_different(queue: Engine) -> None:
    queue.send(None)
    queue.value("send", queue="q")

    kinds = queue.look("select array_agg(jsonb_typeof(payload) order by id) from holdfast.message")

    assert kinds == ["null", None]


@pytest.mark.parametrize(("extra", "code"), [(0, None), (1, "QH201")])
def test_a_payload_may_have_exactly_a_mebibyte(refusing: Engine, extra: int, code: str | None) -> None:
    text = "x" * (MIB - 2 + extra)

    assert code_of(refusing, "send", payload=Jsonb(text)) == code
    assert code_of(refusing, "send_batch", payloads=[Jsonb(1), Jsonb(text)]) == code
    assert code_of(refusing, "send_many", messages=Jsonb([{"payload": text}])) == code


@pytest.mark.parametrize(("extra", "code"), [(0, None), (1, "QH201")])
def test_a_body_may_have_exactly_a_mebibyte(refusing: Engine, extra: int, code: str | None) -> None:
    body = b"x" * (MIB + extra)

    assert code_of(refusing, "send", body=body) == code
    refusing.conn.execute("create temp table if not exists t as select ''::bytea as body")
    try:
        with refusing.conn.transaction(force_rollback=True):
            refusing.conn.execute("insert into holdfast.inbox (queue, body) values ('q', %s)", [body])
        found = None
    except psycopg.Error as error:
        found = error.sqlstate
    assert found == code


@pytest.mark.parametrize(("extra", "code"), [(0, None), (1, "QH201")])
def test_a_payload_that_arrives_compressed_is_measured_in_full(
    refusing: Engine, extra: int, code: str | None
) -> None:
    with refusing.conn.transaction(force_rollback=True):
        refusing.conn.execute("create table public.source (payload jsonb)")
        refusing.conn.execute("insert into public.source values (%s)", [Jsonb("x" * (MIB - 2 + extra))])
        found = None
        try:
            refusing.conn.execute("select holdfast.send('q', payload) from public.source")
        except psycopg.Error as error:
            found = error.sqlstate

    assert found == code


@pytest.mark.parametrize(("extra", "code"), [(0, None), (1, "QH201")])
def test_max_payload_is_the_queues(engine: Engine, extra: int, code: str | None) -> None:
    engine.create("q", max_payload=10)

    assert code_of(engine, "send", payload=Jsonb("x" * (8 + extra))) == code
    assert code_of(engine, "send", body=b"x" * (10 + extra)) == code
    assert code_of(engine, "send_batch", payloads=[Jsonb("x" * (8 + extra))]) == code
    assert code_of(engine, "send_many", messages=Jsonb([{"payload": "x" * (8 + extra)}])) == code


def test_sizes_are_counted_in_bytes(engine: Engine) -> None:
    engine.create("q", max_payload=10)

    assert code_of(engine, "send", payload=Jsonb("\u4e2d" * 2)) is None
    assert code_of(engine, "send", payload=Jsonb("\u4e2d" * 3)) == "QH201"


@pytest.mark.parametrize(("extra", "code"), [(0, None), (1, "QH202")])
def test_headers_may_have_exactly_64_kibibytes(refusing: Engine, extra: int, code: str | None) -> None:
    headers = {"h": "x" * (65536 - len('{"h": ""}') + extra)}

    assert code_of(refusing, "send", headers=headers) == code
    assert code_of(refusing, "send_batch", payloads=[Jsonb(1)], headers=headers) == code
    assert code_of(refusing, "send_many", messages=Jsonb([{"headers": headers}])) == code


@pytest.mark.parametrize("headers", [[], "x", 5, None, True])
def test_headers_must_be_an_object(refusing: Engine, headers: Any) -> None:
    assert code_of(refusing, "send", headers=Jsonb(headers)) == "QH203"
    assert code_of(refusing, "send_batch", payloads=[Jsonb(1)], headers=Jsonb(headers)) == "QH203"


@pytest.mark.parametrize("field", ["tag", "content_type"])
@pytest.mark.parametrize("character", ["x", "\u4e2d", "\U0001f600"])
def test_texts_may_have_exactly_200_characters(refusing: Engine, field: str, character: str) -> None:
    fits: dict[str, Any] = {field: character * 200}
    long: dict[str, Any] = {field: character * 201}

    assert (code_of(refusing, "send", **fits), code_of(refusing, "send", **long)) == (None, "QH207")
    assert code_of(refusing, "send_batch", payloads=[Jsonb(1)], **long) == "QH207"


def test_a_consumer_may_have_exactly_200_characters(refusing: Engine) -> None:
    assert code_of(refusing, "send") is None
    with refusing.conn.transaction(force_rollback=True):
        refusing.send(1)
        assert len(refusing.claim(1, consumer="\u4e2d" * 200)) == 1
    with pytest.raises(psycopg.Error) as caught:
        refusing.claim(1, consumer="x" * 201)
    assert caught.value.sqlstate == "QH207"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"priority": 0}, None),
        ({"priority": 10}, None),
        ({"priority": -1}, "QH204"),
        ({"priority": 11}, "QH204"),
        ({"priority": 2**31 - 1}, "QH204"),
        ({"max_deliveries": 0}, None),
        ({"max_deliveries": 1000}, None),
        ({"max_deliveries": -1}, "QH210"),
        ({"max_deliveries": 1001}, "QH210"),
        ({"delay": "0 s"}, None),
        ({"delay": "10 years"}, None),
        ({"delay": "-1 microsecond"}, "QH205"),
        ({"delay": "10 years 1 microsecond"}, "QH205"),
        ({"deliver_at": "0001-01-01T00:00Z"}, None),
        ({"deliver_at": "2040-01-01T00:00Z"}, None),
        ({"deliver_at": "2040-01-01T00:00:01Z"}, "QH205"),
        ({"deliver_at": "infinity"}, "QH205"),
        ({"deliver_at": "-infinity"}, "QH205"),
        ({"delay": "1 s", "deliver_at": "2031-01-01T00:00Z"}, "QH205"),
        ({"ttl": "1 microsecond"}, None),
        ({"ttl": "10 years"}, None),
        ({"ttl": "0 s"}, "QH206"),
        ({"ttl": "-1 s"}, "QH206"),
        ({"ttl": "10 years 1 microsecond"}, "QH206"),
        ({"expires_at": "2040-01-01T00:00Z"}, None),
        ({"expires_at": "2040-01-01T00:00:01Z"}, "QH206"),
        ({"expires_at": "infinity"}, "QH206"),
        ({"expires_at": "-infinity"}, "QH206"),
        ({"ttl": "1 s", "expires_at": "2031-01-01T00:00Z"}, "QH206"),
    ],
)
def test_options_are_taken_at_both_ends_of_their_ranges(
    refusing: Engine, options: dict[str, Any], code: str | None
) -> None:
    assert code_of(refusing, "send", **options) == code
    assert code_of(refusing, "send_batch", payloads=[Jsonb(1)], **options) == code
    assert code_of(refusing, "send_many", messages=Jsonb([options])) == code


@pytest.mark.parametrize(
    ("max", "code"),
    [(1, None), (10_000, None), (0, "QH301"), (-1, "QH301"), (10_001, "QH301"), (None, "QH301")],
)
@pytest.mark.parametrize("verb", ["claim", "next"])
def test_a_claim_takes_one_to_ten_thousand(
    refusing: Engine, verb: str, max: int | None, code: str | None
) -> None:
    arguments = {"token": 1} if verb == "next" else {}

    try:
        assert refusing.rows(verb, queue="q", max=max, **arguments) == []
        found = None
    except psycopg.Error as error:
        found = error.sqlstate
    assert found == code


@pytest.mark.parametrize(
    ("lease", "code"),
    [
        ("100 ms", None),
        ("24 h", None),
        ("99.999 ms", "QH302"),
        ("24 h 1 microsecond", "QH302"),
        ("-1 s", "QH302"),
        ("0", "QH302"),
    ],
)
@pytest.mark.parametrize("verb", ["claim", "extend", "next"])
def test_a_lease_lasts_from_100_ms_to_24_h(refusing: Engine, verb: str, lease: str, code: str | None) -> None:
    arguments = {} if verb == "claim" else {"token": 1}

    try:
        refusing.rows(verb, queue="q", lease=lease, **arguments)
        found = None
    except psycopg.Error as error:
        found = error.sqlstate
    assert found == code


def test_a_hundred_thousand_messages_go_in_one_call_and_one_more_does_not(refusing: Engine) -> None:
    fits = "select cardinality(holdfast.send_batch('q', array_agg('1'::jsonb))) from generate_series(1, %s)"
    with refusing.conn.transaction(force_rollback=True):
        assert refusing.look(fits, 100_000) == 100_000

    for query in (
        fits,
        "select holdfast.send_many('q', jsonb_agg('{}'::jsonb)) from generate_series(1, %s)",
        "insert into holdfast.inbox (queue) select 'q' from generate_series(1, %s)",
    ):
        with pytest.raises(psycopg.Error) as caught:
            refusing.conn.execute(query.encode(), [100_001])
        assert caught.value.sqlstate == "QH208"
    assert refusing.look("select count(*) from holdfast.message") == 0


def test_huge_values_come_back_whole(engine: Engine) -> None:
    engine.create("q", max_payload=64 * MIB)
    engine.conn.execute(
        "select holdfast.send('q', body => convert_to(repeat('x', 64 * 1024 * 1024), 'utf8'))"
    )

    assert len(engine.claim_one()["body"]) == 64 * MIB


def test_unicode_arrives_in_every_text(queue: Engine) -> None:
    text = "\u00fc \u4e2d\u6587 \U0001f600 \u202e"
    queue.send(1, tag=text, content_type=text, headers={text: text})
    held = queue.claim_one(consumer=text)
    queue.settle("nack", held["token"], error=text, delay="1 s")
    queue.at(T0 + timedelta(seconds=1))

    row = queue.claim_one(consumer=text)

    assert (row["tag"], row["content_type"], row["headers"], row["last_error"]) == (
        text,
        text,
        {text: text},
        text,
    )
    assert queue.rows("leases", queue="q")[0]["consumer"] == text
