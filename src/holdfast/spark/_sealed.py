"""Rows on their way into a queue that has a public key: what is in them, in envelopes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from holdfast.client._errors import InvalidMessageError
from holdfast.client._rules import Seal
from holdfast.client._seals import is_sealed, packages

from ._outgoing import text_of

CONTENT = ("payload", "body", "content_type")


def sealed(seal: Seal, queue: str, rows: pa.RecordBatch, refused: dict[int, str]) -> pa.RecordBatch:
    """Staging rows with sealed bodies; those that cannot be sealed are added to the refused ones."""
    with packages():
        from holdfast.seals.envelope import CONTENT_TYPE

    bodies: list[bytes | None] = []
    for place, row in enumerate(
        zip(*(column(rows, name) for name in (*CONTENT, "idempotency_key")), strict=True)
    ):
        try:
            bodies.append(None if place in refused else enveloped(seal, queue, *row))
        except InvalidMessageError as error:
            bodies.append(None)
            refused[place] = f"{error.message} [{error.code}]"
    others = [name for name in rows.schema.names if name not in CONTENT]
    arrays = [rows[name] for name in others]
    arrays += [pa.array(bodies, pa.binary()), pa.array([CONTENT_TYPE] * len(bodies), pa.string())]
    return pa.RecordBatch.from_arrays(arrays, names=[*others, "body", "content_type"])


def enveloped(
    seal: Seal, queue: str, payload: str | None, body: bytes | None, content_type: str | None, key: str | None
) -> bytes:
    """The envelope of one row; one that is there is passed on."""
    from holdfast.seals.content import checked, content, digest
    from holdfast.seals.sealing import sealed

    if payload is None and body is not None and is_sealed(body):
        return body
    given = content(None if payload is None else checked(payload), body, content_type)
    known = key is not None and seal.digest_key is not None
    hashed = digest(seal.digest_key or b"", key or "", given) if known else None
    return sealed(given, seal.public_key, queue, hashed)


def column(rows: pa.RecordBatch, name: str) -> list[Any]:
    """The values of a column; nulls if there is none."""
    return text_of(rows, name).to_pylist() if name in rows.schema.names else [None] * rows.num_rows
