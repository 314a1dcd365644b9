# Made from ../_async/endpoints.py by tools/generate_sync.py: change that file, then run make generate.
"""Webhook endpoints: one method for each SQL function. Secrets are sealed on the way to the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

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
from holdfast.client._sync.calls import Calls
from holdfast.client._types import Duration, Json
from holdfast.vault import Vault


class EndpointVerbs(Calls):
    """What can be done with webhook endpoints, over some session."""

    vault: Vault | None = None  # by default that of the environment variable HOLDFAST_SECRET_KEY

    def create_endpoint(self, endpoint: str, config: Mapping[str, Json], *, queue: str | None = None) -> bool:
        """Deliver the messages of a queue to a URL; False if the endpoint was there, the same.

        The queue is one of the endpoint's name, unless `queue` names another; it is made if it is not there.
        Secrets in the configuration are sealed before they are stored. Durations may be timedeltas.
        """
        closed = self._sealed_config(endpoint, config)
        return self._value(bool, "create_endpoint", endpoint=endpoint, config=closed, queue=queue)

    def configure_endpoint(self, endpoint: str, config: Mapping[str, Json]) -> dict[str, Json]:
        """Change fields of an endpoint (None: back to the default); returns what is in force, no secrets."""
        closed = self._sealed_config(endpoint, config)
        return self._value(dict, "configure_endpoint", endpoint=endpoint, config=closed)

    def rotate_secret(
        self, endpoint: str, secret: str | None = None, *, overlap: Duration | None = None
    ) -> RotatedSecret:
        """Sign with another secret from now on, a new one unless it is given; old ones sign too for a time.

        The answer holds the secret, which nobody can tell again: keep it.
        """
        if secret is not None:
            secret = signing_secret(secret)
        return self._rotate(endpoint, secret, overlap)

    def enable_endpoint(self, endpoint: str) -> bool:
        """Deliver to an endpoint again; False if it was enabled."""
        return self._value(bool, "enable_endpoint", endpoint=endpoint)

    def disable_endpoint(self, endpoint: str, reason: str | None = None) -> bool:
        """Deliver nothing more to an endpoint; its messages wait. False if it was disabled."""
        return self._value(bool, "disable_endpoint", endpoint=endpoint, reason=reason)

    def drop_endpoint(self, endpoint: str, *, with_queue: bool = False) -> bool:
        """Remove an endpoint, and with_queue its queue and the messages in it; False if there was none."""
        return self._value(bool, "drop_endpoint", endpoint=endpoint, with_queue=with_queue)

    def endpoints(self) -> list[EndpointInfo]:
        """All endpoints, with what is in force, without their secrets."""
        return self._records(EndpointInfo, "endpoints")

    def endpoint_info(self, endpoint: str) -> EndpointInfo | None:
        """One endpoint; None: there is none of this name."""
        found = self._records(EndpointInfo, "endpoint_info", endpoint=endpoint)
        return found[0] if found else None

    def endpoint_health(
        self, endpoint: str | None = None, *, window: Duration | None = None
    ) -> list[EndpointHealth]:
        """How an endpoint does, or all of them: breaker, what waits, and the attempts of the last minutes."""
        return self._records(EndpointHealth, "endpoint_health", endpoint=endpoint, window=window)

    def endpoint_events(self, endpoint: str, limit: int | None = None) -> list[EndpointEvent]:
        """How the breaker of an endpoint moved, and when it was enabled or disabled; the last first."""
        return self._records(EndpointEvent, "endpoint_events", endpoint=endpoint, limit=limit)

    def reset_breaker(self, endpoint: str) -> bool:
        """Close the breaker of an endpoint, and forget its failures; False if there were none."""
        return self._value(bool, "reset_breaker", endpoint=endpoint)

    def attempts(self, queue: str, id: int, *, limit: int | None = None) -> list[Attempt]:
        """The attempts to deliver a message, the last first, wherever it has moved."""
        return self._records(Attempt, "attempts", queue=queue, id=id, limit=limit)

    def endpoint_attempts(
        self,
        endpoint: str,
        *,
        outcomes: Iterable[str] | None = None,
        limit: int | None = None,
        until: datetime | None = None,
    ) -> list[Attempt]:
        """The last attempts at an endpoint; with outcomes, those of them among the last 10,000."""
        return self._records(
            Attempt, "endpoint_attempts", endpoint=endpoint, outcomes=outcomes, limit=limit, until=until
        )

    def _sealed_config(self, endpoint: str, config: Any) -> Any:
        """A configuration as it goes to the database."""
        return sealed_config(self.vault or Vault.found(), endpoint, config)

    def _rotate(self, endpoint: str, secret: str | None, overlap: Duration | None) -> RotatedSecret:
        """Over SQL the secret is made and sealed here."""
        chosen = new_signing_secret() if secret is None else secret
        closed = sealed(self.vault or Vault.found(), endpoint, chosen)
        until: Any = self._value(object, "rotate_secret", endpoint=endpoint, sealed=closed, overlap=overlap)
        return RotatedSecret(secret=chosen, until=until)
