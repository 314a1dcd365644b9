"""Rows as a dry run shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal

from holdfast.spark.pipelines._sample import shown


def test_rows_are_objects_with_what_their_payloads_say() -> None:
    row = shown(
        {
            "payload": '{"id": 1, "price": 1.0}',
            "headers": '{"a": [1]}',
            "tag": "5",
            "deliver_at": datetime(2030, 1, 1, tzinfo=UTC),
            "body": bytearray(b"\x01\xff"),
            "price": Decimal("1.50"),
        }
    )

    assert json.loads(json.dumps(row)) == {
        "payload": {"id": 1, "price": 1.0},
        "headers": {"a": [1]},
        "tag": "5",
        "deliver_at": "2030-01-01 00:00:00+00:00",
        "body": "01ff",
        "price": "1.50",
    }


def test_payloads_that_are_structs_or_no_json_stay_as_they_are() -> None:
    assert shown({"payload": {"id": 1}, "headers": None}) == {"payload": {"id": 1}, "headers": None}
    assert shown({"payload": "{"}) == {"payload": "{"}
