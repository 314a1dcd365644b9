"""Sealing: a content into an envelope that one private key opens."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from .content import Content
from .envelope import CIPHER, RSA, X25519, headed, text64
from .keys import key_id, public_key, raw, refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

KEY_BYTES, NONCE_BYTES = 32, 12
PURPOSE = b"holdfast sealed 1"


def sealed(content: Content, pem: str, queue: str, digest: bytes | None = None) -> bytes:
    """An envelope for the holder of the private key; it is another one each time."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    recipient: Any = public_key(pem)
    algorithm, field, carried, key = rsa(recipient) if hasattr(recipient, "encrypt") else x25519(recipient)
    nonce = secrets.token_bytes(NONCE_BYTES)
    header = {"alg": algorithm, "enc": CIPHER, "kid": key_id(recipient), field: text64(carried)}
    header |= {"iv": text64(nonce), "kind": content.kind, "queue": queue}
    if content.content_type is not None:
        header["type"] = content.content_type
    if digest is not None:
        header["digest"] = text64(digest)
    head = headed(header)
    return head + AESGCM(key).encrypt(nonce, content.data, head)


def rsa(recipient: Any) -> tuple[str, str, bytes, bytes]:
    """A new key, and what carries it: itself, encrypted."""
    key = secrets.token_bytes(KEY_BYTES)
    return RSA, "ek", recipient.encrypt(key, oaep()), key


def x25519(recipient: X25519PublicKey) -> tuple[str, str, bytes, bytes]:
    """A new key, and what carries it: the public half of a pair that was made for this alone."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    passing = X25519PrivateKey.generate()
    half = passing.public_key()
    try:
        return X25519, "epk", raw(half), agreed(passing, recipient, half, recipient)
    except ValueError as error:
        hint = "Make another pair of keys."
        raise refusal(
            "this public key is of no use", "What it leads to is known to everybody.", hint
        ) from error


def agreed(
    own: X25519PrivateKey, other: X25519PublicKey, passing: X25519PublicKey, recipient: X25519PublicKey
) -> bytes:
    """The key that both sides come to; a ValueError if anybody would."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    bound = PURPOSE + raw(passing) + raw(recipient)
    return HKDF(SHA256(), KEY_BYTES, None, bound).derive(own.exchange(other))


def oaep() -> Any:
    """The padding of RSA."""
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, OAEP
    from cryptography.hazmat.primitives.hashes import SHA256

    return OAEP(MGF1(SHA256()), SHA256(), None)
