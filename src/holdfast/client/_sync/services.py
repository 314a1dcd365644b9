# Made from ../_async/services.py by tools/generate_sync.py: change that file, then run make generate.
"""Services and the queues on them: one method for each SQL function."""

from __future__ import annotations

from uuid import UUID

from holdfast.client._arguments import text
from holdfast.client._services import ServiceInfo, ServiceQueue, purpose_of, shown
from holdfast.client._sync.calls import Calls
from holdfast.vault import Vault


class ServiceVerbs(Calls):
    """What can be done with services, over some session."""

    vault: Vault | None = None  # by default that of the environment variable HOLDFAST_SECRET_KEY

    def put_service(self, name: str, url: str) -> UUID:
        """Make a PostgreSQL service on which queues can be made, or say anew where it is; returns its id."""
        return self._put_service(text("name", name), text("url", url))

    def _put_service(self, name: str, url: str) -> UUID:
        """Over SQL the URL is sealed here: the database is never told its password."""
        address = shown(url)
        sealed = (self.vault or Vault.found()).seal(url, purpose_of(name))
        return self._value(UUID, "put_service", name=name, address=address, sealed=sealed)

    def services(self) -> list[ServiceInfo]:
        """All services, without their secrets; `local`, this database itself, is the first."""
        return self._records(ServiceInfo, "services")

    def drop_service(self, name: str, *, forget: bool = False) -> bool:
        """Take a service off the list; False if there is none. forget: and its queues too."""
        return self._value(bool, "drop_service", name=name, forget=forget)

    def create_service_queue(
        self,
        service: str,
        name: str,
        *,
        database_name: str | None = None,
        visibility_timeout_seconds: int | None = None,
        max_attempts: int | None = None,
        dlq_enabled: bool | None = None,
    ) -> ServiceQueue:
        """Ask for a queue on a service, by its name or id; an agent will make it."""
        asked = self._records(
            ServiceQueue,
            "create_service_queue",
            service=service,
            name=name,
            database_name=database_name,
            visibility_timeout_seconds=visibility_timeout_seconds,
            max_attempts=max_attempts,
            dlq_enabled=dlq_enabled,
        )
        return asked[0]

    def service_queues(self, service: str, name: str | None = None) -> list[ServiceQueue]:
        """The queues of a service that are not gone; with a name that one, or an error."""
        return self._records(ServiceQueue, "service_queues", service=service, name=name)

    def delete_service_queue(self, service: str, name: str) -> ServiceQueue:
        """Ask for a queue on a service to be removed, with all its messages; an agent will do it."""
        return (self._records(ServiceQueue, "delete_service_queue", service=service, name=name))[0]

    def retry_service_queue(self, service: str, name: str) -> ServiceQueue:
        """Try again to make, or to remove, a queue on a service for which that has failed."""
        return (self._records(ServiceQueue, "retry_service_queue", service=service, name=name))[0]
