"""queue-ti: schemas of topics, in Avro and JSON Schema."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast import Holdfast
from tests.dialects.queue_ti import QueueTi, as_payload

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
PERSON = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize(
    ("definition", "kind", "fits", "misfits"),
    [(ORDER, "avro", {"id": 1}, {"id": "x"}), (PERSON, "json", {"name": "ada"}, {"name": 1})],
)
def test_payloads_have_to_fit_the_schema_of_their_topic(
    queue_ti: QueueTi, name: str, definition: Any, kind: str, fits: Any, misfits: Any, as_text: bool
) -> None:
    given = json.dumps(definition) if as_text else definition

    set_ = queue_ti.ok("PUT", f"/topic-schemas/{name}", {"schema_json": given})

    assert (set_["topic"], set_["kind"], set_["version"]) == (name, kind, 1)
    assert json.loads(set_["schema_json"]) == definition
    assert queue_ti.ok("GET", f"/topic-schemas/{name}") == set_
    assert set_ in queue_ti.ok("GET", "/topic-schemas")["items"]
    queue_ti.send(name, json.dumps(fits))
    for content in (json.dumps(misfits), "{", "\ufeff{}"):
        queue_ti.refused("POST", "/messages", {"topic": name, "payload": as_payload(content)}, status=422)
    assert [json.loads(content) for content in queue_ti.contents(name)] == [fits]


def test_without_its_schema_a_topic_takes_anything(queue_ti: QueueTi, name: str) -> None:
    queue_ti.ok("PUT", f"/topic-schemas/{name}", {"schema_json": PERSON})

    queue_ti.ok("DELETE", f"/topic-schemas/{name}", status=204)

    queue_ti.send(name, b"\xff")
    for method in ("GET", "DELETE"):
        text = queue_ti.refused(method, f"/topic-schemas/{name}", status=404)
        assert text == f'topic "{name}" has no schema'


def test_what_fits_a_schema_is_json_at_the_native_doors(
    queue_ti: QueueTi, holdfast: Holdfast, name: str
) -> None:
    queue_ti.ok("PUT", f"/topic-schemas/{name}", {"schema_json": {"type": "int"}, "kind": "avro"})
    queue_ti.send(name, "7")

    (delivery,) = holdfast.claim(name)

    assert (delivery.payload, delivery.body) == (7, None)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"schema_json": "{"},
        {"schema_json": {"type": "nothing"}},
        {"schema_json": PERSON, "kind": "avro"},
        {"schema_json": PERSON, "kind": "xml"},
        {"schema_json": None},
    ],
)
def test_what_is_no_schema_is_refused_and_makes_no_topic(
    queue_ti: QueueTi, holdfast: Holdfast, name: str, body: Any
) -> None:
    queue_ti.refused("PUT", f"/topic-schemas/{name}", body, status=400)

    assert name not in {info.queue for info in holdfast.queues()}


@pytest.mark.parametrize("number", ["1e999", "1" * 5000])
def test_a_number_that_nothing_can_hold_is_no_schema(queue_ti: QueueTi, name: str, number: str) -> None:
    body = f'{{"schema_json": {number}}}'.encode()
    headers = {"content-type": "application/json"}

    queue_ti.refused("PUT", f"/topic-schemas/{name}", status=400, content=body, headers=headers)
