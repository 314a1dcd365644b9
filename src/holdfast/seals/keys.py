"""Keys: public ones to seal with, private ones to open with, and the id by which both are known."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from holdfast.client._errors import InvalidSealKeyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    PublicKey: TypeAlias = RSAPublicKey | X25519PublicKey
    PrivateKey: TypeAlias = RSAPrivateKey | X25519PrivateKey

LEAST_BITS, MOST_BITS = 2048, 8192  # of RSA
TAKEN = "It takes RSA with 2,048 to 8,192 bits, or X25519, as PEM"


@lru_cache(maxsize=256)
def public_key(pem: str) -> PublicKey:
    """A public key from PEM."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key: Any = load_pem_public_key(pem.encode())
    except (UnsupportedAlgorithm, UnicodeEncodeError, ValueError) as error:
        raise refusal(
            "this is no public key", "It cannot be read.", f"{TAKEN} (BEGIN PUBLIC KEY)."
        ) from error
    check_kind(key, public=True)
    return key  # type: ignore[no-any-return]


def private_keys(given: Any, password: str | bytes | None = None) -> dict[str, PrivateKey]:
    """Private keys by their ids: one, or several, each as PEM or as cryptography has it."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | bytearray | Mapping)
    keys = [private_key(each, password) for each in (given if several else [given])]
    return {key_id(key.public_key()): key for key in keys}


def private_key(given: Any, password: str | bytes | None = None) -> PrivateKey:
    """A private key."""
    if isinstance(given, str | bytes | bytearray):
        secret = password.encode() if isinstance(password, str) else password
        given = loaded(given.encode() if isinstance(given, str) else bytes(given), secret)
    check_kind(given, public=False)
    return given  # type: ignore[no-any-return]


@lru_cache(maxsize=16)
def loaded(pem: bytes, password: bytes | None) -> Any:
    """What PEM holds."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, password)
    except (TypeError, UnsupportedAlgorithm, ValueError) as error:
        # Nothing of the key, and nothing of its password.
        detail = "It is encrypted." if b"ENCRYPTED" in pem and password is None else "It cannot be read."
        raise refusal("this is no private key", detail, f"{TAKEN} (BEGIN PRIVATE KEY).") from error


def check_kind(key: Any, *, public: bool) -> None:
    """Refuse a key that nothing can be sealed with."""
    from cryptography.hazmat.primitives.asymmetric import rsa, x25519

    kinds = (
        (rsa.RSAPublicKey, x25519.X25519PublicKey) if public else (rsa.RSAPrivateKey, x25519.X25519PrivateKey)
    )
    word = "public" if public else "private"
    if not isinstance(key, kinds):
        raise refusal(f"this is no {word} key for envelopes", f"Got {type(key).__name__}.", f"{TAKEN}.")
    if isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey) and not LEAST_BITS <= key.key_size <= MOST_BITS:
        raise refusal(f"this {word} key has the wrong size", f"It has {key.key_size} bits.", f"{TAKEN}.")


def key_id(key: PublicKey) -> str:
    """What a key is known by: SHA-256 of its SubjectPublicKeyInfo, in hex."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def raw(key: X25519PublicKey) -> bytes:
    """The 32 bytes of a public key."""
    return key.public_bytes_raw()


def refusal(message: str, detail: str, hint: str) -> InvalidSealKeyError:
    """The refusal of a key; nothing of it is told."""
    return InvalidSealKeyError("QH110", message, detail, hint)
