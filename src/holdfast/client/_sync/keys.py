# Made from ../_async/keys.py by tools/generate_sync.py: change that file, then run make generate.
"""API keys of the HTTP server: one method for each SQL function."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.client._keys import ApiKey, NewKey, hash_of, new_secret, prefix_of
from holdfast.client._sync.calls import Calls
from holdfast.client._types import Duration


class KeyVerbs(Calls):
    """What can be done with API keys, over some session."""

    def create_key(
        self,
        name: str,
        *,
        scopes: Iterable[str],
        queues: Iterable[str] | None = None,
        expires_in: Duration | None = None,
        rate: float | None = None,
        burst: int | None = None,
    ) -> NewKey:
        """Make a key to the HTTP server: for what (send, consume, read, admin), and for which queues.

        The answer holds the secret, which is stored nowhere: keep it.
        """
        return self._make_key(
            "create_key",
            name=name,
            scopes=scopes,
            queues=queues,
            expires_in=expires_in,
            rate=rate,
            burst=burst,
        )

    def keys(self) -> list[ApiKey]:
        """All keys, without their secrets."""
        return self._records(ApiKey, "keys")

    def rotate_key(self, id: int, *, grace: Duration | None = None) -> NewKey:
        """Give a key another secret; the old one stays valid for `grace`, or ends at once."""
        return self._make_key("rotate_key", id=id, grace=grace)

    def revoke_key(self, id: int) -> bool:
        """Let a key be valid no more; False if it was revoked before."""
        return self._value(bool, "revoke_key", id=id)

    def _make_key(self, verb: str, **arguments: Any) -> NewKey:
        """Over SQL the secret is made here, and its hash alone goes to the database."""
        secret = new_secret()
        prefix = prefix_of(secret)
        made = self._value(int, verb, prefix=prefix, hash=hash_of(secret), **arguments)
        return NewKey(id=arguments.get("id", made), key=secret, prefix=prefix)
