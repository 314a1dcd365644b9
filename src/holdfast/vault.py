"""Secrets at rest: what Holdfast has to be able to read again is sealed before it goes to the database.

AES-256-GCM, by a key that is never in the database: that of HOLDFAST_SECRET_KEY, or of the file `secret_key`
beside the embedded server. A sealed text names the key it was made with, and what it is for: moved to another
place it cannot be opened. Keys are looked for when something is sealed or opened, and not before.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from base64 import b64decode, b64encode, urlsafe_b64decode, urlsafe_b64encode
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

from holdfast.client._errors import SealedError, SecretKeyError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE = "HOLDFAST_SECRET_KEY"
KEY_FILE = "secret_key"
KEY_BYTES, NONCE_BYTES = 32, 12
VERSION = "hfs1"
MAKE_ONE = "Make one with: openssl rand -base64 32"


class Vault:
    """Seals and opens, with the first of its keys and with all of them."""

    def __init__(self, keys: str | None = None, folder: Path | str | None = None) -> None:
        """keys: as HOLDFAST_SECRET_KEY has them; folder: where the file is, or is made, if there are none."""
        self._given = keys
        self._folder = None if folder is None else Path(folder)

    @classmethod
    def found(cls, folder: Path | str | None = None) -> Vault:
        """The vault of the environment, else of a folder."""
        return cls(os.environ.get(KEY_VARIABLE) or None, folder)

    def __repr__(self) -> str:
        return f"Vault(folder={self._folder!r})"

    @property
    def path(self) -> Path | None:
        """The file of the keys, if they may be in one."""
        return None if self._folder is None else self._folder / KEY_FILE

    @property
    def makes_key(self) -> bool:
        """Whether there is no key yet, and the first secret makes one."""
        return self._given is None and self.path is not None and not self.path.exists()

    def seal(self, secret: str, purpose: str) -> str:
        """A text that can be stored, and opened for the same purpose only."""
        if self._given is None and self.path is not None:
            make_key_file(self.path)
        keys = self._keys()
        if not keys:
            raise SecretKeyError(
                "QH840",
                "there is no key to seal secrets with",
                f"{self._nowhere} Nothing was stored.",
                f"Set {KEY_VARIABLE}, the same wherever secrets are stored or used. {MAKE_ONE}",
            )
        id, key = next(iter(keys.items()))
        nonce = secrets.token_bytes(NONCE_BYTES)
        locked = cipher(key).encrypt(nonce, secret.encode(), bound(id, purpose))
        return f"{VERSION}.{id}.{urlsafe_b64encode(nonce + locked).decode()}"

    def open(self, sealed: str, purpose: str) -> str:
        """What was sealed for this purpose."""
        id, data = parts(sealed)
        keys = self._keys()
        if not keys:
            raise SecretKeyError(
                "QH840",
                "there is no key to open secrets with",
                f"The secret was sealed with the key {id}. {self._nowhere}",
                f"Put that key back{'' if self.path is None else ', or its file'}. If it is lost,"
                " store the secret again, with a new one.",
            )
        key = keys.get(id)
        if key is None:
            raise SealedError(
                "QH841",
                "the key that this secret was sealed with is not at hand",
                f"It was sealed with the key {id}; there are: {', '.join(keys)}.",
                f"Add the older key to {KEY_VARIABLE}, after a comma; or store the secret again.",
            )
        gcm = cipher(key)
        from cryptography.exceptions import InvalidTag

        try:
            return gcm.decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], bound(id, purpose)).decode()
        except InvalidTag:
            raise changed("It was changed, or sealed for another purpose.") from None

    def is_current(self, sealed: str) -> bool:
        """Whether it is sealed with the key that seals now; else open it, and seal it again."""
        return parts(sealed)[0] == next(iter(self._keys()), None)

    def _keys(self) -> dict[str, bytes]:
        """All keys by their ids, the one that seals first; none where there is none."""
        named, text = KEY_VARIABLE, self._given
        if text is None and self.path is not None:
            named = str(self.path)
            with suppress(FileNotFoundError):
                text = self.path.read_text(encoding="ascii", errors="replace")
        if text is None:
            return {}
        keys = [decoded(word, named) for word in text.replace(",", " ").split()] or [decoded("", named)]
        return {id_of(key): key for key in keys}

    @property
    def _nowhere(self) -> str:
        """Where there is no key."""
        if self.path is None:
            return f"{KEY_VARIABLE} is not set here."
        return f"{KEY_VARIABLE} is not set here, and there is no file {self.path}."


def decoded(word: str, named: str) -> bytes:
    """A key, as it is written down; nothing of it is told."""
    try:
        key = b64decode(word, validate=True)
    except ValueError:  # not base64, or not even ASCII
        key = b""
    if len(key) != KEY_BYTES:
        raise SecretKeyError(
            "QH840",
            f"{named} holds no key",
            f"It takes {KEY_BYTES} bytes in base64; older keys may follow after commas.",
            MAKE_ONE,
        )
    return key


def id_of(key: bytes) -> str:
    """What tells keys apart, and nothing else about them."""
    return hashlib.sha256(b"holdfast key id\0" + key).hexdigest()[:8]


def bound(id: str, purpose: str) -> bytes:
    """What goes with a sealed text and is checked when it is opened."""
    return f"{VERSION}.{id}.{purpose}".encode()


def parts(sealed: str) -> tuple[str, bytes]:
    """The id of the key, and nonce and cipher text."""
    version, _, rest = sealed.partition(".")
    id, _, encoded = rest.partition(".")
    try:
        data = urlsafe_b64decode(encoded.encode("ascii"))
    except ValueError:
        data = b""
    if version != VERSION or len(data) < NONCE_BYTES:
        raise changed(f"A sealed text begins with {VERSION}, the id of a key, and a dot after each.")
    return id, data


def changed(detail: str) -> SealedError:
    """The refusal of a text that nobody sealed like this."""
    return SealedError("QH841", "a sealed secret cannot be opened", detail, "Store the secret again.")


def cipher(key: bytes) -> AESGCM:
    """The cipher with a key; a clear error where the library is missing."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise SecretKeyError(
            "QH840",
            "the library that seals secrets is not installed",
            f"{error}.",
            "Install it with: pip install 'holdfast[secrets]'",
        ) from error
    return AESGCM(key)


def make_key_file(path: Path) -> None:
    """Make a key where there is none yet; of several who do, one key counts."""
    if path.exists():
        return
    # A file that has its name has its key too: others may read it at any moment.
    with NamedTemporaryFile("w", dir=path.parent, prefix=f".{KEY_FILE}-", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(f"{b64encode(secrets.token_bytes(KEY_BYTES)).decode()}\n")
        file.flush()
        os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(file.name, path)
