"""What a check against a schema costs: CPU time for each message, in the server's way and in the client's.

python -m bench.schemas
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from time import process_time
from typing import Any

from holdfast.client._queue_schema import InForce
from holdfast.client._schema_rules import refuse_misfit
from holdfast.schemas.judge import misfit

ROUNDS = 5
ITEM = {"sku": "tea-green-100", "count": 2, "price": 4.5}
ITEMS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "sku": {"type": "string"},
            "count": {"type": "integer", "minimum": 1},
            "price": {"type": "number"},
        },
        "required": ["sku", "count"],
    },
}
STATES = ["new", "paid", "sent"]
AVRO_ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [
        {"name": "sku", "type": "string"},
        {"name": "count", "type": "int"},
        {"name": "price", "type": ["null", "double"], "default": None},
    ],
}
DEFINITIONS: dict[str, Any] = {
    "json": {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "customer": {"type": "string", "minLength": 1},
            "state": {"enum": STATES},
            "items": ITEMS,
        },
        "required": ["id", "customer"],
        "additionalProperties": False,
    },
    "avro": {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "state", "type": {"type": "enum", "name": "State", "symbols": STATES}},
            {"name": "items", "type": {"type": "array", "items": AVRO_ITEM}},
        ],
    },
}


def order(items: int) -> dict[str, Any]:
    """A payload."""
    return {"id": 123456, "customer": "C-10293", "state": "paid", "items": [ITEM] * items}


def microseconds(check: Callable[[], object], times: int) -> float:
    """The CPU time of one call, in the best of some rounds."""

    def once() -> float:
        began = process_time()
        for _ in range(times):
            check()
        return (process_time() - began) / times * 1e6

    return min(once() for _ in range(ROUNDS))


def main() -> None:
    """Print a table."""
    print("| kind | bytes | server, µs | client, µs |\n|---|---:|---:|---:|")
    for kind, definition in DEFINITIONS.items():
        schema = InForce(version=1, kind=kind, definition=json.dumps(definition), compatibility="backward")
        for items, times in ((2, 20_000), (200, 500)):
            payload = order(items)
            written = json.dumps(payload).encode()
            assert misfit(schema, written, False) is None
            server = microseconds(partial(misfit, schema, written, False), times)
            client = microseconds(partial(refuse_misfit, schema, payload, None), times)
            print(f"| {kind} | {len(written)} | {server:.1f} | {client:.1f} |")


if __name__ == "__main__":
    main()
