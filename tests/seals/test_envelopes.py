"""Envelopes without a queue.

1. cryptography alone opens them, for both kinds of keys.
2. A change of any bit is told, and so is a wrong key, with the id of the right one.
3. No two are the same, and none gives its hash away without the key of it.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from decimal import Decimal
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from hypothesis import given
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from holdfast import (
    CannotOpenError,
    InvalidSealKeyError,
    PrivateKeyMissingError,
    is_sealed,
    open_sealed,
    seal,
)
from holdfast.seals.content import content, digest
from holdfast.seals.envelope import headed, read_envelope
from tests.seals.plainly import pair, plainly_opened

PAIRS = {kind: pair(kind) for kind in ("x25519", "rsa")}
MINE = PAIRS["x25519"]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(value=JSON, kind=st.sampled_from(sorted(PAIRS)))
def test_any_payload_comes_back(value: Any, kind: str) -> None:
    envelope = seal("q", Jsonb(value), public_key=PAIRS[kind].public)

    assert open_sealed(envelope, PAIRS[kind].private).payload == value
    assert json.loads(plainly_opened(envelope, PAIRS[kind].private)[1]) == value


@given(body=st.binary(max_size=300), kind=st.sampled_from(sorted(PAIRS)))
def test_any_body_comes_back(body: bytes, kind: str) -> None:
    envelope = seal("q", body=body, public_key=PAIRS[kind].public, content_type="a/b")

    opened = open_sealed(envelope, PAIRS[kind].private)
    assert (opened.body, opened.content_type, opened.payload, opened.queue) == (body, "a/b", None, "q")
    assert plainly_opened(envelope, PAIRS[kind].private)[1] == body


@pytest.mark.parametrize("kind", PAIRS)
def test_every_bit_counts(kind: str) -> None:
    envelope = seal("q", {"a": 1}, public_key=PAIRS[kind].public, content_type="text/plain")

    for place in range(len(envelope)):
        changed = bytearray(envelope)
        changed[place] ^= 1 << place % 8
        with pytest.raises((CannotOpenError, PrivateKeyMissingError)):
            open_sealed(bytes(changed), PAIRS[kind].private)


@pytest.mark.parametrize("kind", PAIRS)
def test_what_is_cut_off_or_added_is_told(kind: str) -> None:
    envelope = seal("q", {"a": 1}, public_key=PAIRS[kind].public)

    for changed in (*(envelope[:size] for size in range(0, len(envelope), 7)), envelope + b"\0"):
        with pytest.raises(CannotOpenError):
            open_sealed(changed, PAIRS[kind].private)


@pytest.mark.parametrize("field", ["alg", "enc", "kid", "epk", "iv", "kind"])
@pytest.mark.parametrize("value", [None, 1, "", "@", "AAAA", [], {}])
def test_a_header_with_other_values_is_told(field: str, value: Any) -> None:
    envelope = read_envelope(seal("q", 1, public_key=MINE.public))
    other = headed({**envelope.header, field: value})

    with pytest.raises((CannotOpenError, PrivateKeyMissingError)):
        open_sealed(other + envelope.ciphertext + envelope.tag, MINE.private)


@pytest.mark.parametrize("header", ["[]", "{}", "1", '{"kid": 1}', "{", "[" * 5000])
def test_another_header_is_told(header: str) -> None:
    text = header.encode()

    with pytest.raises(CannotOpenError):
        open_sealed(b"HFE1" + len(text).to_bytes(2, "big") + text + b"x" * 40, MINE.private)


def test_a_key_of_the_other_kind_under_the_same_id_is_told() -> None:
    envelope = read_envelope(seal("q", 1, public_key=PAIRS["rsa"].public))
    kid = read_envelope(seal("q", 1, public_key=MINE.public)).key_id
    other = headed({**envelope.header, "kid": kid})

    with pytest.raises(CannotOpenError):
        open_sealed(other + envelope.ciphertext + envelope.tag, MINE.private)


def test_a_wrong_key_is_told_with_the_id_of_the_right_one() -> None:
    envelope = seal("q", 1, public_key=MINE.public)
    kid = read_envelope(envelope).key_id

    with pytest.raises(PrivateKeyMissingError, match=kid):
        open_sealed(envelope, PAIRS["rsa"].private)
    with pytest.raises(PrivateKeyMissingError, match="there are: none"):
        open_sealed(envelope, [])


def test_keys_come_as_text_bytes_objects_or_several() -> None:
    envelope = seal("q", 1, public_key=MINE.public.encode())
    key = load_pem_private_key(MINE.private, None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word"))

    for given_key in (MINE.private, MINE.private.decode(), key, (PAIRS["rsa"].private, key)):
        assert open_sealed(envelope, given_key).payload == 1
    assert open_sealed(envelope, locked, password="word").payload == 1
    for password in (None, "other"):
        with pytest.raises(InvalidSealKeyError):
            open_sealed(envelope, locked, password=password)
    for bad in ("", b"-----BEGIN PRIVATE KEY-----", MINE.public, 7, None, pair("rsa", 1024).private):
        with pytest.raises(InvalidSealKeyError) as caught:
            open_sealed(envelope, bad)
        assert "AAAA" not in str(caught.value)


def test_messages_come_in_several_forms() -> None:
    envelope = seal("q", {"a": 1.50}, public_key=MINE.public)

    class Message:
        body = envelope

    for message in (
        envelope,
        bytearray(envelope),
        memoryview(envelope),
        Message(),
        {"body": b64encode(envelope).decode()},
    ):
        assert is_sealed(message)
        assert open_sealed(message, MINE.private, parse_float=Decimal).payload == {"a": Decimal("1.5")}
    nothing: list[Any] = [b"", b"x", None, {"body": None}, {"payload": 1}, {"body": "@@"}, 7]
    assert not any(map(is_sealed, nothing))


def test_no_two_envelopes_are_the_same_and_none_shows_what_is_in_it() -> None:
    envelopes = [
        seal("q", "a very secret word", public_key=keys.public) for keys in PAIRS.values() for _ in range(20)
    ]

    ivs = [read_envelope(envelope).header["iv"] for envelope in envelopes]
    assert len(set(ivs)) == len(set(envelopes)) == 40
    assert not any(b"secret" in envelope for envelope in envelopes)
    assert all("digest" not in read_envelope(envelope).header for envelope in envelopes)


def test_the_hash_needs_its_key_and_differs_between_idempotency_keys() -> None:
    def hashed(payload: Any, name: str = "a", key: bytes = b"k" * 32) -> bytes:
        envelope = seal("q", payload, public_key=MINE.public, idempotency_key=name, digest_key=key)
        return b64decode(read_envelope(envelope).header["digest"])

    assert hashed(1) == hashed(1)
    assert len({hashed(1), hashed(2), hashed(1, name="b"), hashed(1, key=b"l" * 32)}) == 4
    assert hashed(1) == digest(b"k" * 32, "a", content("1", None, None))
    assert digest(b"k", "a", content('"1"', None, None)) != digest(b"k", "a", content(None, b'"1"', None))
    assert hashed({"b": [1, 2], "a": 3}) == digest(
        b"k" * 32, "a", content('{ "a":3,"b":[1,\n2]}', None, None)
    )


def test_a_field_of_ours_can_be_told_without_the_private_key() -> None:
    for keys, field, size in ((MINE, "epk", 32), (PAIRS["rsa"], "ek", 256)):
        envelope = read_envelope(seal("q", 1, public_key=keys.public))

        assert (len(envelope.octets(field)), len(envelope.octets("iv")), len(envelope.tag)) == (size, 12, 16)
        assert len(envelope.ciphertext) == 1
