"""The messages that both contenders carry: JSON of about 200 bytes, never twice the same in a batch."""

from __future__ import annotations

import json
from functools import cache
from hashlib import md5
from uuid import UUID


@cache
def document(number: int) -> bytes:
    return json.dumps(
        {
            "order": str(UUID(bytes=md5(b"%d" % number, usedforsecurity=False).digest())),
            "customer": number * 7919 % 99_991,
            "status": "paid",
            "amount": number * 37 % 100_000 / 100,
            "currency": "EUR",
            "items": [{"sku": f"AB-{number * 31 % 9973:04}", "count": 1 + number % 5}],
            "note": "leave it with the neighbours",
        }
    ).encode()


@cache
def documents(size: int) -> bytes:
    """The literal of a jsonb[] with `size` documents."""
    quoted = (document(n).replace(b"\\", b"\\\\").replace(b'"', b'\\"') for n in range(size))
    return b'{"' + b'","'.join(quoted) + b'"}'
