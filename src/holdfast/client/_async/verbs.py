"""One method for each verb of Holdfast: it passes its arguments on by name and adds nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from holdfast.client._arguments import several
from holdfast.client._async.endpoints import AsyncEndpointVerbs
from holdfast.client._async.hooks import AsyncHookVerbs
from holdfast.client._async.keys import AsyncKeyVerbs
from holdfast.client._async.logs import AsyncLogVerbs
from holdfast.client._async.publishing import AsyncEventVerbs
from holdfast.client._async.schemas import AsyncSchemaVerbs
from holdfast.client._async.seals import AsyncSealVerbs
from holdfast.client._async.services import AsyncServiceVerbs
from holdfast.client._bulk import as_object, new_message
from holdfast.client._calls import unqualified
from holdfast.client._types import (
    BlockedKey,
    Claim,
    Delivery,
    Duration,
    Entry,
    Finding,
    Holder,
    Json,
    Lease,
    PipelineRun,
    Purged,
    QueueInfo,
    QueueStats,
    Redriven,
    Replayed,
    Rollup,
    Sample,
    Settlement,
)


@unqualified
class AsyncVerbs(
    AsyncLogVerbs,
    AsyncKeyVerbs,
    AsyncSchemaVerbs,
    AsyncSealVerbs,
    AsyncServiceVerbs,
    AsyncEndpointVerbs,
    AsyncEventVerbs,
    AsyncHookVerbs,
):
    """What can be done with queues and messages, over some session."""

    # Queues

    async def create_queue(self, queue: str, config: Mapping[str, Json] | None = None) -> bool:
        """Make a queue; False if it was there with the same configuration. Durations may be timedeltas."""
        return await self._value(bool, "create_queue", queue=queue, config=config)

    async def configure_queue(self, queue: str, config: Mapping[str, Json]) -> dict[str, Json]:
        """Change fields of a queue's configuration (None: back to the default); returns what is in force."""
        return await self._value(dict, "configure_queue", queue=queue, config=config)

    async def configure_defaults(self, config: Mapping[str, Json]) -> dict[str, Json]:
        """Change the defaults of all queues; returns what is in force."""
        return await self._value(dict, "configure_defaults", config=config)

    async def drop_queue(self, queue: str, *, if_empty: bool = False) -> bool:
        """Delete a queue and its messages; False if there was none. if_empty: only while it has none."""
        return await self._value(bool, "drop_queue", queue=queue, if_empty=if_empty)

    async def pause_queue(self, queue: str) -> bool:
        """Hand out nothing more for now; False if it was paused already."""
        return await self._value(bool, "pause_queue", queue=queue)

    async def resume_queue(self, queue: str) -> bool:
        """Hand out messages again; False if it was not paused."""
        return await self._value(bool, "resume_queue", queue=queue)

    async def queues(self) -> list[QueueInfo]:
        """All queues with their configuration."""
        return await self._records(QueueInfo, "queues")

    async def queue_stats(self, queue: str) -> QueueStats:
        """How many messages are ready, scheduled, in flight, dead."""
        return (await self._records(QueueStats, "queue_stats", queue=queue))[0]

    # Sending

    async def send(
        self,
        queue: str,
        payload: Json = None,
        *,
        body: bytes | None = None,
        content_type: str | None = None,
        headers: Mapping[str, Json] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        expires_at: datetime | None = None,
        correlation_id: UUID | None = None,
        tag: str | None = None,
        max_deliveries: int | None = None,
        ordering_key: str | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
    ) -> int:
        """Send one message and return its id. A payload of None is no payload, not the JSON value null."""
        return await self._value(
            int,
            "send",
            queue=queue,
            payload=payload,
            body=body,
            content_type=content_type,
            headers=headers,
            priority=priority,
            delay=delay,
            deliver_at=deliver_at,
            ttl=ttl,
            expires_at=expires_at,
            correlation_id=correlation_id,
            tag=tag,
            max_deliveries=max_deliveries,
            ordering_key=ordering_key,
            key=key,
            idempotency_key=idempotency_key,
            alone=self._session.alone,
        )

    async def send_batch(
        self,
        queue: str,
        payloads: Iterable[Json],
        *,
        content_type: str | None = None,
        headers: Mapping[str, Json] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
        deliver_at: datetime | None = None,
        ttl: Duration | None = None,
        expires_at: datetime | None = None,
        correlation_id: UUID | None = None,
        tag: str | None = None,
        max_deliveries: int | None = None,
        ordering_key: str | None = None,
        key: str | None = None,
        idempotency_key: str | None = None,
    ) -> list[int]:
        """Send many payloads with the same options and return their ids in order."""
        return await self._value(
            list,
            "send_batch",
            queue=queue,
            payloads=payloads,
            content_type=content_type,
            headers=headers,
            priority=priority,
            delay=delay,
            deliver_at=deliver_at,
            ttl=ttl,
            expires_at=expires_at,
            correlation_id=correlation_id,
            tag=tag,
            max_deliveries=max_deliveries,
            ordering_key=ordering_key,
            key=key,
            idempotency_key=idempotency_key,
            alone=self._session.alone,
        )

    async def send_many(self, queue: str, messages: Iterable[Any]) -> list[int]:
        """Send payloads or NewMessage values, each with its own options; returns their ids in order."""
        objects = [as_object(new_message(message)) for message in several("messages", messages)]
        alone = self._session.alone
        return await self._value(list, "send_many", queue=queue, messages=objects, alone=alone)

    # Receiving

    async def claim(
        self, queue: str, max: int = 1, *, lease: Duration | None = None, consumer: str | None = None
    ) -> list[Delivery]:
        """Take up to `max` messages; until the lease ends, nobody else gets them."""
        return await self._records(
            Delivery,
            "claim",
            queue=queue,
            max=max,
            lease=lease,
            consumer=consumer,
            alone=self._session.alone,
        )

    async def next(
        self,
        queue: str,
        token: int,
        max: int = 1,
        *,
        lease: Duration | None = None,
        consumer: str | None = None,
        strict: bool = False,
    ) -> list[Delivery]:
        """Ack everything held under the token and claim again, in one call."""
        return await self._records(
            Delivery,
            "next",
            queue=queue,
            token=token,
            max=max,
            lease=lease,
            consumer=consumer,
            alone=self._session.alone,
            strict=strict,
        )

    async def ack(
        self, queue: str, token: int, ids: Iterable[int] | None = None, *, strict: bool = False
    ) -> Settlement:
        """Done: delete these messages, or all that the token holds."""
        return await self._settle("ack", queue=queue, token=token, ids=ids, strict=strict)

    async def nack(
        self,
        queue: str,
        token: int,
        ids: Iterable[int] | None = None,
        *,
        delay: Duration | None = None,
        error: str | None = None,
        strict: bool = False,
    ) -> Settlement:
        """Failed: deliver again later, or move to the dead letters when the deliveries are used up."""
        return await self._settle(
            "nack", queue=queue, token=token, ids=ids, delay=delay, error=error, strict=strict
        )

    async def reject(
        self,
        queue: str,
        token: int,
        ids: Iterable[int] | None = None,
        *,
        error: str | None = None,
        strict: bool = False,
    ) -> Settlement:
        """Failed for good: move to the dead letters, whatever deliveries are left."""
        return await self._settle("reject", queue=queue, token=token, ids=ids, error=error, strict=strict)

    async def release(
        self, queue: str, token: int, ids: Iterable[int] | None = None, *, strict: bool = False
    ) -> Settlement:
        """Give messages back; it does not count as a delivery."""
        return await self._settle("release", queue=queue, token=token, ids=ids, strict=strict)

    async def extend(
        self,
        queue: str,
        token: int,
        lease: Duration | None = None,
        ids: Iterable[int] | None = None,
        *,
        strict: bool = False,
    ) -> Settlement:
        """Hold messages longer: the lease counts from now."""
        return await self._settle("extend", queue=queue, token=token, lease=lease, ids=ids, strict=strict)

    async def held(self, queue: str, token: int) -> list[Delivery]:
        """What the token still holds."""
        return await self._records(Delivery, "held", queue=queue, token=token)

    # Looking

    async def holders(self, queue: str, ids: Iterable[int]) -> list[Holder]:
        """Who holds these messages."""
        return await self._records(Holder, "holders", queue=queue, ids=ids)

    async def claims(self, queue: str, consumer: str) -> list[Claim]:
        """What a consumer of this name holds, with the tokens: for one that was restarted."""
        return await self._records(Claim, "claims", queue=queue, consumer=consumer)

    async def leases(self, queue: str, limit: int | None = None) -> list[Lease]:
        """The open claims of a queue."""
        return await self._records(Lease, "leases", queue=queue, limit=limit)

    async def browse(
        self, queue: str, state: str | None = None, *, limit: int | None = None, after: int | None = None
    ) -> list[Entry]:
        """Look at messages, without claiming: ready, scheduled, blocked, in_flight, dead, archive."""
        return await self._records(Entry, "browse", queue=queue, state=state, limit=limit, after=after)

    async def read_archive(
        self,
        queue: str,
        from_: datetime | None = None,
        to: datetime | None = None,
        *,
        limit: int | None = None,
        after: int | None = None,
    ) -> list[Entry]:
        """What ended and is kept, the first to end first; without to, as far as no more can turn up.

        To go on where a call stopped, pass the last `ended_at` as from_ and the last `id` as after.
        """
        period = {"from": from_, "to": to}
        return await self._records(Entry, "read_archive", queue=queue, **period, limit=limit, after=after)

    async def message(self, queue: str, id: int) -> Entry | None:
        """Look at one message, also in the archive; None if it is not, or no longer, there."""
        found = await self._records(Entry, "message", queue=queue, id=id)
        return found[0] if found else None

    async def why(self, queue: str) -> list[Finding]:
        """Why is nothing moving: one finding for each reason, each with what to do."""
        return await self._records(Finding, "why", queue=queue)

    async def samples(
        self, queue: str, since: datetime | None = None, until: datetime | None = None
    ) -> list[Sample]:
        """What happened in a queue, minute by minute; by default in the last hour."""
        return await self._records(Sample, "samples", queue=queue, since=since, until=until)

    async def rollups(
        self,
        queue: str,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: Duration | None = None,
        limit: int | None = None,
    ) -> list[Rollup]:
        """What the pipeline insights found out about a queue, by buckets of an hour, or of another size."""
        return await self._records(
            Rollup, "rollups", queue=queue, since=since, until=until, bucket=bucket, limit=limit
        )

    async def runs(self, pipeline: str | None = None, limit: int | None = None) -> list[PipelineRun]:
        """The runs of a pipeline, or of all, the newest first."""
        return await self._records(PipelineRun, "runs", pipeline=pipeline, limit=limit)

    # Repairing

    async def discard(self, queue: str, ids: Iterable[int]) -> list[int]:
        """Delete messages of the queue, or of its dead letters; returns the ids that were there."""
        return await self._value(list, "discard", queue=queue, ids=ids)

    async def discard_key(self, queue: str, key: str) -> list[int]:
        """Delete the messages of the queue that have this key; returns their ids."""
        return await self._value(list, "discard_key", queue=queue, key=key)

    async def blocked_keys(self, queue: str, limit: int | None = None) -> list[BlockedKey]:
        """Ordering keys whose messages wait behind their head, the dead ones first."""
        return await self._records(BlockedKey, "blocked_keys", queue=queue, limit=limit)

    async def unblock(self, queue: str, key: str | None = None, *, how: str = "retry") -> int:
        """Let a key go on that a dead message blocks: retry it, or skip it; returns its id.

        The key of a strict queue is None.
        """
        return await self._value(int, "unblock", queue=queue, key=key, how=how)

    async def redrive(
        self,
        queue: str,
        ids: Iterable[int] | None = None,
        *,
        filter: Mapping[str, Json] | None = None,
        limit: int | None = None,
        target: str | None = None,
    ) -> list[Redriven]:
        """Send dead letters back to the queue they came from, or to a target."""
        return await self._records(
            Redriven, "redrive", queue=queue, ids=ids, filter=filter, limit=limit, target=target
        )

    async def purge(self, queue: str, states: Iterable[str], *, limit: int | None = None) -> Purged:
        """End messages in these states: ready, scheduled, blocked, in_flight, dead, archive.

        One call ends at most `limit` (10,000); call again while there is more.
        """
        return (await self._records(Purged, "purge", queue=queue, states=states, limit=limit))[0]

    async def replay(
        self,
        queue: str,
        from_: datetime | None = None,
        to: datetime | None = None,
        *,
        outcomes: Iterable[str] | None = None,
        limit: int | None = None,
        target: str | None = None,
        after: int | None = None,
    ) -> list[Replayed]:
        """Send messages once more that ended in a period and are in the archive, the first to end first.

        To go on where a call stopped, pass the last `ended_at` as from_ and the last `id` as after.
        """
        period = {"from": from_, "to": to}
        return await self._records(
            Replayed,
            "replay",
            queue=queue,
            **period,
            outcomes=outcomes,
            limit=limit,
            target=target,
            after=after,
        )

    async def sweep(self, queue: str) -> int:
        """Take back what leases let go, now; claims do it by themselves."""
        return await self._value(int, "sweep", queue=queue)

    async def maintain(self, budget: Duration | None = None) -> dict[str, Json]:
        """Upkeep for about so long, 100 ms by default; returns what it did, and whether it is done."""
        return await self._value(dict, "maintain", budget=budget)

    async def repair(self, queue: str | None = None, *, unreadable_only: bool = False) -> int:
        """Start afresh after a failover or restore: every lease ends. Returns the number of lanes mended.

        With unreadable_only, only lanes whose registers a failover left unreadable.
        """
        return await self._value(int, "repair", queue=queue, unreadable_only=unreadable_only)

    async def now(self) -> datetime:
        """The time by Holdfast's clock."""
        return await self._value(datetime, "now")

    async def _settle(self, verb: str, **arguments: Any) -> Settlement:
        return (await self._records(Settlement, verb, **arguments))[0]
