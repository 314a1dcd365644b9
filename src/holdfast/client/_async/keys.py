"""API keys of the HTTP server: one method for each SQL function; the secret is made here."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.client._async.calls import AsyncCalls
from holdfast.client._keys import ApiKey, NewKey, hash_of, new_secret, prefix_of
from holdfast.client._types import Duration


class AsyncKeyVerbs(AsyncCalls):
    """What can be done with API keys, over some session."""

    async def create_key(
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
        secret = new_secret()
        id = await self._value(
            int,
            "create_key",
            name=name,
            prefix=prefix_of(secret),
            hash=hash_of(secret),
            scopes=scopes,
            queues=queues,
            expires_in=expires_in,
            rate=rate,
            burst=burst,
        )
        return NewKey(id=id, key=secret, prefix=prefix_of(secret))

    async def keys(self) -> list[ApiKey]:
        """All keys, without their secrets."""
        return await self._records(ApiKey, "keys")

    async def rotate_key(self, id: int, *, grace: Duration | None = None) -> NewKey:
        """Give a key another secret; the old one stays valid for `grace`, or ends at once."""
        secret = new_secret()
        prefix = prefix_of(secret)
        await self._value(bool, "rotate_key", id=id, prefix=prefix, hash=hash_of(secret), grace=grace)
        return NewKey(id=id, key=secret, prefix=prefix)

    async def revoke_key(self, id: int) -> bool:
        """Let a key be valid no more; False if it was revoked before."""
        return await self._value(bool, "revoke_key", id=id)
