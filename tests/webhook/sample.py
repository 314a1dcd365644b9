"""Endpoints and messages as the dispatcher is given them."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from holdfast.client import Delivery
from holdfast.webhook.target import Target, TargetRow, as_target

SECRET = "whsec_" + b64encode(b"s" * 32).decode()
AT = datetime(2026, 11, 19, 12, 0, 0, 250_000, UTC)


def target(url: str, *secrets: str, auth: Any = None, **config: Any) -> Target:
    """An endpoint; its secrets are sealed by turning them around."""
    row = TargetRow(
        endpoint="shop",
        queue="shop",
        enabled=True,
        url=url,
        version=1,
        config=msgspec.Raw(msgspec.json.encode(config)),
        secrets=[secret[::-1] for secret in secrets],
        auth=None if auth is None else msgspec.Raw(msgspec.json.encode(auth)),
    )
    return as_target(row, opened)


def opened(sealed: str, purpose: str) -> str:
    """A secret in clear."""
    assert purpose == "webhook:shop"
    return sealed[::-1]


def delivery(payload: str | None = '{"n": 1}', **fields: Any) -> Delivery:
    """A message, with JSON as the server has it: as it came from the database."""
    given: dict[str, Any] = {
        "token": 5,
        "id": 7,
        "queue": "shop",
        "payload": None if payload is None else msgspec.Raw(payload.encode()),
        "body": None,
        "content_type": None,
        "headers": None,
        "priority": 0,
        "key": None,
        "ordering_key": None,
        "correlation_id": None,
        "tag": None,
        "deliveries": 1,
        "max_deliveries": 10,
        "enqueued_at": AT,
        "deadline": AT + timedelta(seconds=30),
        "last_error": None,
        "origin": None,
    }
    for name in ("headers", "origin"):
        if fields.get(name) is not None:
            fields[name] = msgspec.Raw(msgspec.json.encode(fields[name]))
    return Delivery(**(given | fields))


