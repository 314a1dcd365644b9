"""Opens envelopes as docs/sealed.md describes them, with cryptography and nothing of Holdfast."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

from cryptography.hazmat.primitives.asymmetric import padding, rsa, x25519
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)


def plainly_opened(body: bytes, private_pem: bytes) -> tuple[dict[str, Any], bytes]:
    """The header and the plaintext of an envelope."""
    assert body[:4] == b"HFE1"
    end = 6 + int.from_bytes(body[4:6], "big")
    header: dict[str, Any] = json.loads(body[6:end])
    key: Any = load_pem_private_key(private_pem, None)
    if header["alg"] == "RSA-OAEP-SHA256":
        oaep = padding.OAEP(padding.MGF1(SHA256()), SHA256(), None)
        secret = key.decrypt(b64decode(header["ek"]), oaep)
    else:
        assert header["alg"] == "X25519-HKDF-SHA256"
        passing = b64decode(header["epk"])
        shared = key.exchange(x25519.X25519PublicKey.from_public_bytes(passing))
        info = b"holdfast sealed 1" + passing + key.public_key().public_bytes_raw()
        secret = HKDF(SHA256(), 32, None, info).derive(shared)
    return header, AESGCM(secret).decrypt(b64decode(header["iv"]), body[end:], body[:end])


class Pair:
    """A pair of keys, as PEM."""

    def __init__(self, key: rsa.RSAPrivateKey | x25519.X25519PrivateKey) -> None:
        self.private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        public = key.public_key()
        self.public = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def pair(kind: str = "x25519", bits: int = 2048) -> Pair:
    """A new pair."""
    if kind == "x25519":
        return Pair(x25519.X25519PrivateKey.generate())
    return Pair(rsa.generate_private_key(65537, bits))
