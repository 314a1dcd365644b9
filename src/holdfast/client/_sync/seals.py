# Made from ../_async/seals.py by tools/generate_sync.py: change that file, then run make generate.
"""Public keys of queues, with which messages are sealed: one method for each SQL function."""

from __future__ import annotations

from holdfast.client._seals import SealKey, public_pem
from holdfast.client._sync.calls import Calls


class SealVerbs(Calls):
    """What can be done with public keys of queues, over some session."""

    def set_seal_key(self, queue: str, public_key: str | bytes) -> str:
        """Have messages sealed with this public key (PEM) from now on; returns its id."""
        return self._value(str, "set_seal_key", queue=queue, public_key=public_pem(public_key))

    def seal_keys(self, queue: str) -> list[SealKey]:
        """The public keys of a queue: the one in force, those before it, and those that were dropped."""
        return self._records(SealKey, "seal_keys", queue=queue)

    def drop_seal_key(self, queue: str, key_id: str) -> bool:
        """Take a public key from a queue; False if it does not have it."""
        return self._value(bool, "drop_seal_key", queue=queue, key_id=key_id)
