"""Webhook endpoints: one method for each SQL function. Secrets are sealed on the way to the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast.client._async.calls import AsyncCalls
from holdfast.client._endpoints import (
    Attempt,
    EndpointEvent,
    EndpointHealth,
    EndpointInfo,
    RotatedSecret,
    new_signing_secret,
    sealed,
    sealed_config,
    signing_secret,
)
from holdfast.client._types import Duration, Json
from holdfast.vault import Vault


class AsyncEndpointVerbs(AsyncCalls):
    """What can be done with webhook endpoints, over some session."""

    vault: Vault | None = None  # by default that of the environment variable HOLDFAST_SECRET_KEY

    async def create_endpoint(
        self, endpoint: str, config: Mapping[str, Json], *, queue: str | None = None
    ) -> bool:
        """Deliver the messages of a queue to a URL; False if the endpoint was there, the same.

        The queue is one of the endpoint's name, unless `queue` names another; it is made if it is not there.
        Secrets in the configuration are sealed before they are stored. Durations may be timedeltas.
        """
        closed = self._sealed_config(endpoint, config)
        return await self._value(bool, "create_endpoint", endpoint=endpoint, config=closed, queue=queue)

    async def configure_endpoint(self, endpoint: str, config: Mapping[str, Json]) -> dict[str, Json]:
        """Change fields of an endpoint (None: back to the default); returns what is in force, no secrets."""
        closed = self._sealed_config(endpoint, config)
        return await self._value(dict, "configure_endpoint", endpoint=endpoint, config=closed)

    async def rotate_secret(
        self, endpoint: str, secret: str | None = None, *, overlap: Duration | None = None
    ) -> RotatedSecret:
        """Sign with another secret from now on, a new one unless it is given; old ones sign too for a time.

        The answer holds the secret, which nobody can tell again: keep it.
        """
        if secret is not None:
            secret = signing_secret(secret)
        return await self._rotate(endpoint, secret, overlap)

    async def enable_endpoint(self, endpoint: str) -> bool:
        """Deliver to an endpoint again; False if it was enabled."""
        return await self._value(bool, "enable_endpoint", endpoint=endpoint)

    async def disable_endpoint(self, endpoint: str, reason: str | None = None) -> bool:
        """Deliver nothing more to an endpoint; its messages wait. False if it was disabled."""
        return await self._value(bool, "disable_endpoint", endpoint=endpoint, reason=reason)

    async def drop_endpoint(self, endpoint: str, *, with_queue: bool = False) -> bool:
        """Remove an endpoint, and with_queue its queue and the messages in it; False if there was none."""
        return await self._value(bool, "drop_endpoint", endpoint=endpoint, with_queue=with_queue)

    async def endpoints(self) -> list[EndpointInfo]:
        """All endpoints, with what is in force, without their secrets."""
        return await self._records(EndpointInfo, "endpoints")

    async def endpoint_info(self, endpoint: str) -> EndpointInfo | None:
        """One endpoint; None: there is none of this name."""
        found = await self._records(EndpointInfo, "endpoint_info", endpoint=endpoint)
        return found[0] if found else None

    async def endpoint_health(
        self, endpoint: str | None = None, *, window: Duration | None = None
    ) -> list[EndpointHealth]:
        """How an endpoint does, or all of them: breaker, what waits, and the attempts of the last minutes."""
        return await self._records(EndpointHealth, "endpoint_health", endpoint=endpoint, window=window)

    async def endpoint_events(self, endpoint: str, limit: int | None = None) -> list[EndpointEvent]:
        """How the breaker of an endpoint moved, and when it was enabled or disabled; the last first."""
        return await self._records(EndpointEvent, "endpoint_events", endpoint=endpoint, limit=limit)

    async def reset_breaker(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint, and forget its failures; False if there were none."""
        return await self._value(bool, "reset_breaker", endpoint=endpoint)

    async def attempts(self, queue: str, id: int, *, limit: int | None = None) -> list[Attempt]:
        """The attempts to deliver a message, the last first, wherever it has moved."""
        return await self._records(Attempt, "attempts", queue=queue, id=id, limit=limit)

    async def endpoint_attempts(
        self,
        endpoint: str,
        *,
        outcomes: Iterable[str] | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> list[Attempt]:
        """The last attempts at an endpoint; with outcomes, those of them among the last 10,000."""
        return await self._records(
            Attempt, "endpoint_attempts", endpoint=endpoint, outcomes=outcomes, limit=limit, until=until
        )

    def _sealed_config(self, endpoint: str, config: Any) -> Any:
        """A configuration as it goes to the database."""
        return sealed_config(self.vault or Vault.found(), endpoint, config)

    async def _rotate(self, endpoint: str, secret: str | None, overlap: Duration | None) -> RotatedSecret:
        """Over SQL the secret is made and sealed here."""
        chosen = new_signing_secret() if secret is None else secret
        closed = sealed(self.vault or Vault.found(), endpoint, chosen)
        until: Any = await self._value(
            object, "rotate_secret", endpoint=endpoint, sealed=closed, overlap=overlap
        )
        return RotatedSecret(secret=chosen, until=until)
