"""Schemas, through every door: what is sent has to fit, and a change has to go with what was before.

1. A message that does not fit is refused with its place, and nothing of the call is sent.
2. A schema holds from when it is set until it is dropped; versions are told.
3. A change is compatible as the schema says, unless the change says otherwise.
4. check_schema tells all that without doing it.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from holdfast import (
    AsyncHoldfast,
    IncompatibleSchemaError,
    InvalidSchemaError,
    NewMessage,
    PayloadMismatchError,
    QueueNotFoundError,
    SchemaChangedError,
    SchemaFinding,
)
from tests.conformance.conftest import MakeQueue, OpenClient

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "price": {"type": "number", "multipleOf": 0.01}},
    "required": ["id"],
    "additionalProperties": False,
}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "id", "type": "long"}]}
GOOD, BAD = {"id": 1}, {"id": "x"}
TOLD = 'payload.id: "x" is not of type "integer".'


async def sent(client: AsyncHoldfast, queue: str) -> list[Any]:
    """The payloads in a queue."""
    return [entry.payload for entry in await client.browse(queue)]


async def test_what_fits_is_sent(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, ORDER)

    await client.send(queue, GOOD)
    await client.send_batch(queue, ({"id": number} for number in (2, 3)))
    await client.send_many(queue, [{"id": 4}, NewMessage(payload=Jsonb({"id": 5}), priority=3)])
    await client.bulk_send(queue, [{"id": 6}, NewMessage(payload={"id": 7}, tag="a")])

    assert sorted(payload["id"] for payload in await sent(client, queue)) == [1, 2, 3, 4, 5, 6, 7]


async def test_what_does_not_fit_is_refused_with_its_place(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, ORDER)

    refusals = []
    for call in (
        client.send(queue, BAD),
        client.send_batch(queue, iter([GOOD, BAD])),
        client.send_many(queue, [GOOD, GOOD, NewMessage(payload=BAD)]),
        client.bulk_send(queue, [*[GOOD] * 3, BAD]),
    ):
        with pytest.raises(PayloadMismatchError) as caught:
            await call
        assert caught.value.detail is not None
        assert caught.value.detail.endswith(TOLD)
        refusals.append(caught.value.index)

    assert refusals[1:] == [1, 2, 3]
    assert await sent(client, queue) == []


async def test_a_schema_takes_no_body(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, True)

    with pytest.raises(PayloadMismatchError, match="no bodies"):
        await client.send(queue, body=b"x")
    with pytest.raises(PayloadMismatchError, match="no bodies"):
        await client.send_many(queue, [NewMessage(body=b"x", content_type="avro/binary")])


async def test_a_schema_takes_no_message_without_a_payload(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, True)

    for call in (
        client.send(queue),
        client.send_batch(queue, [None]),
        client.send_many(queue, [NewMessage(tag="a")]),
        client.bulk_send(queue, [NewMessage(tag="a")]),
        client.bulk_send(queue, [None], atomic=False),
    ):
        with pytest.raises(PayloadMismatchError) as caught:
            await call
        assert caught.value.detail is not None
        assert caught.value.detail.endswith("payload: is missing.")
    assert await sent(client, queue) == []


async def test_null_is_a_payload(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, {"type": "null"})

    await client.send(queue, Jsonb(None))
    await client.send_many(queue, [NewMessage(payload=Jsonb(None))])

    assert await sent(client, queue) == [None, None]


async def test_numbers_keep_their_digits(open_client: OpenClient, queue: str) -> None:
    client = open_client(parse_float=Decimal)
    await client.set_schema(queue, ORDER)

    await client.send(queue, Jsonb('{"id": 1, "price": 19.99}', dumps=str))

    with pytest.raises(PayloadMismatchError, match=r"payload\.price"):
        await client.send(queue, Jsonb('{"id": 1, "price": 19.999}', dumps=str))


async def test_a_schema_is_told_with_its_versions(client: AsyncHoldfast, queue: str) -> None:
    assert await client.queue_schema(queue) is None
    assert await client.set_schema(queue, ORDER) == 1
    assert await client.set_schema(queue, ORDER) == 1
    assert await client.set_schema(queue, {**ORDER, "required": []}, compatibility="none") == 2

    found = await client.queue_schema(queue)
    versions = await client.schema_versions(queue)

    assert found is not None
    assert (found.version, found.kind, found.compatibility) == (2, "json", "none")
    assert found.definition == {**ORDER, "required": []}
    assert isinstance(found.created_at, datetime)
    assert [(each.version, each.definition["required"], each.dropped_at) for each in versions] == [
        (2, [], None),
        (1, ["id"], None),
    ]


async def test_after_a_drop_payloads_may_be_anything(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, ORDER)

    assert await client.drop_schema(queue) is True
    assert await client.drop_schema(queue) is False

    await client.send(queue, BAD)
    assert await client.queue_schema(queue) is None
    assert [each.dropped_at is None for each in await client.schema_versions(queue)] == [False]
    assert await client.set_schema(queue, {"type": "string"}) == 2


async def test_avro_is_a_kind_of_schema(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, NODE, kind="avro")

    await client.send(queue, GOOD)
    with pytest.raises(PayloadMismatchError, match=r"payload\.id"):
        await client.send(queue, BAD)


@pytest.mark.parametrize(
    ("definition", "kind", "told"),
    [
        ({"type": "text"}, "json", "definition.type"),
        ({"type": "text"}, "avro", "text"),
        (1, "json", "definition"),
        (None, "json", "definition"),
        ({}, "xml", "xml"),
        ({"$ref": "http://127.0.0.1:9/x"}, "json", "Retrieval is disabled"),
    ],
)
async def test_what_is_no_schema_is_refused(
    client: AsyncHoldfast, queue: str, definition: Any, kind: str, told: str
) -> None:
    with pytest.raises(InvalidSchemaError, match=told):
        await client.set_schema(queue, definition, kind=kind)

    assert await client.queue_schema(queue) is None


async def test_a_change_has_to_be_compatible(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, ORDER)
    narrower = {**ORDER, "required": ["id", "price"]}

    with pytest.raises(IncompatibleSchemaError) as caught:
        await client.set_schema(queue, narrower)

    assert caught.value.detail is not None
    assert caught.value.detail.startswith('definition.required: "price" may be missing')
    assert await client.set_schema(queue, narrower, compatibility="none") == 2
    assert await client.set_schema(queue, {"type": "string"}) == 3  # from now on, none


async def test_forward_and_full_look_the_other_way(client: AsyncHoldfast, make_queue: MakeQueue) -> None:
    wider = {**ORDER, "required": []}
    for mode in ("forward", "full"):
        queue = await make_queue()
        await client.set_schema(queue, ORDER, compatibility=mode)
        with pytest.raises(IncompatibleSchemaError, match="version before"):
            await client.set_schema(queue, wider)


async def test_a_change_of_another_version_is_refused(client: AsyncHoldfast, queue: str) -> None:
    await client.set_schema(queue, ORDER, expected_version=0)

    with pytest.raises(SchemaChangedError):
        await client.set_schema(queue, True, expected_version=2)

    assert await client.set_schema(queue, True, expected_version=1) == 2


async def test_a_check_tells_what_would_be_refused(client: AsyncHoldfast, queue: str) -> None:
    assert await client.check_schema(queue, [BAD]) == []
    await client.set_schema(queue, ORDER)

    of_payloads = await client.check_schema(queue, [GOOD, BAD, None])
    of_a_change = await client.check_schema(queue, [BAD], definition={"type": "object", "minProperties": 2})

    assert [(each.index, each.path) for each in of_payloads] == [(1, "payload.id"), (2, "payload")]
    assert of_a_change == [
        SchemaFinding(
            index=None,
            path="definition.minProperties",
            reason="what was sent may be beyond 2",
        ),
        SchemaFinding(index=0, path="payload", reason='{"id":"x"} has less than 2 properties'),
    ]
    with pytest.raises(InvalidSchemaError):
        await client.check_schema(queue, definition={"type": "text"})
    assert [each.version for each in await client.schema_versions(queue)] == [1]
    assert await sent(client, queue) == []


async def test_schemas_are_of_queues_that_are_there(client: AsyncHoldfast, name: str) -> None:
    for call in (
        client.set_schema(name, True),
        client.queue_schema(name),
        client.schema_versions(name),
        client.drop_schema(name),
        client.check_schema(name, [1]),
    ):
        with pytest.raises(QueueNotFoundError):
            await call
