"""Opening: what was sealed, for whoever has the private key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.client._errors import PrivateKeyMissingError

from .envelope import RSA, Envelope, damaged
from .sealing import KEY_BYTES, NONCE_BYTES, agreed, oaep

if TYPE_CHECKING:
    from .keys import PrivateKey


def opened(envelope: Envelope, keys: dict[str, PrivateKey]) -> bytes:
    """The plaintext of an envelope."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key = keys.get(envelope.key_id)
    if key is None:
        raise PrivateKeyMissingError(
            "QH243",
            "the private key that opens this message is not at hand",
            f"It is sealed with the key {envelope.key_id[:100]}; there are: {', '.join(keys) or 'none'}.",
            "Pass the private key to that public key, too; holdfast.seal_keys lists them with their ids.",
        )
    secret = unwrapped(envelope, key)
    nonce = envelope.octets("iv")
    if len(nonce) != NONCE_BYTES:
        raise damaged("Its iv has the wrong length.")
    try:
        return AESGCM(secret).decrypt(nonce, envelope.ciphertext + envelope.tag, envelope.head)
    except InvalidTag as error:
        raise damaged("It is not what was sealed: something was changed.") from error


def unwrapped(envelope: Envelope, key: Any) -> bytes:
    """The key that the ciphertext was made with."""
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    is_rsa = hasattr(key, "decrypt")
    if is_rsa != (envelope.header["alg"] == RSA):
        raise damaged("Its alg is none that its key is for.")
    try:
        if is_rsa:
            secret: bytes = key.decrypt(envelope.octets("ek"), oaep())
        else:
            passing = X25519PublicKey.from_public_bytes(envelope.octets("epk"))
            secret = agreed(key, passing, passing, key.public_key())
    except ValueError as error:
        raise damaged("What carries its key was changed.") from error
    if len(secret) != KEY_BYTES:
        raise damaged("Its key has the wrong length.")
    return secret
