"""Where each verb is: its method and path, what its request has, and what it answers with.

The server's routes and the client's calls are both made of this table. An argument that the path names goes
there; the others are fields of the body or of the query, under the names that they have in SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

from holdfast.client import (
    Allowance,
    ApiKey,
    Attempt,
    BlockedKey,
    Claim,
    Delivery,
    EndpointEvent,
    EndpointHealth,
    EndpointInfo,
    Entry,
    EventType,
    Finding,
    Holder,
    HookCall,
    HookInfo,
    Lease,
    LogStats,
    NewHook,
    NewKey,
    PipelineRun,
    Published,
    Purged,
    QueueInfo,
    QueueSchema,
    QueueStats,
    Record,
    Redriven,
    Replayed,
    Rollup,
    RotatedHook,
    RotatedSecret,
    Sample,
    SchemaFinding,
    SealKey,
    ServiceInfo,
    ServiceQueue,
    Settlement,
    Subscription,
)
from holdfast.client._types import Id

from . import requests
from .answers import Answer, Document, Field, Listing, Single

QUEUE = "/v1/queues/{queue}"
MESSAGES = QUEUE + "/messages"
RECORDS = QUEUE + "/records"
SCHEMA = QUEUE + "/schema"
SEAL_KEYS = QUEUE + "/seal-keys"
HOOK = "/v1/hooks/{hook}"
ELSEWHERE = "/v1/services/{service}/queues"
ENDPOINT = "/v1/endpoints/{endpoint}"
SUBSCRIPTIONS = "/v1/subscriptions"
EVENT_TYPE = "/v1/event-types/{name}"

DELIVERIES = Listing("messages", Delivery)
ENTRIES = Listing("messages", Entry)
SETTLED = Single(Settlement)
SENT = Field("Sent", "ids", list[Id])
DISCARDED = Field("Discarded", "ids", list[Id])
CHANGED = Field("Changed", "changed", bool)
ATTEMPTS = Listing("attempts", Attempt)
PUBLISHED = Listing("messages", Published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One verb over HTTP."""

    method: str
    path: str
    answer: Answer
    body: Any = None
    query: Any = None
    status: int = 200
    repeatable: bool = False  # a second time does no harm


def get(path: str, answer: Answer, query: Any = None) -> Route:
    """A look, which changes nothing."""
    return Route(method="GET", path=path, answer=answer, query=query, repeatable=True)


def post(path: str, answer: Answer, body: Any = None, **options: Any) -> Route:
    """Something to do."""
    return Route(method="POST", path=path, answer=answer, body=body, **options)


def change(method: str, path: str, answer: Answer, body: Any = None, query: Any = None) -> Route:
    """How something is to be from now on."""
    return Route(method=method, path=path, answer=answer, body=body, query=query, repeatable=True)


def settle(path: str, body: Any) -> Route:
    """A settlement; the token is a fence, so that a second one finds nothing to settle."""
    return post(path, SETTLED, body, repeatable=True)


SEND = post(MESSAGES, SENT, requests.Send, status=201)

ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        # Queues
        "create_queue": change("PUT", QUEUE, Field("Created", "created", bool), requests.Config),
        "configure_queue": change("PATCH", QUEUE, Document(), requests.Config),
        "configure_defaults": change("PATCH", "/v1/defaults", Document(), requests.Config),
        "drop_queue": change("DELETE", QUEUE, Field("Dropped", "dropped", bool), query=requests.DropQueue),
        "pause_queue": change("POST", QUEUE + "/pause", CHANGED),
        "resume_queue": change("POST", QUEUE + "/resume", CHANGED),
        "purge": post(QUEUE + "/purge", Single(Purged), requests.Purge),
        "queues": get("/v1/queues", Listing("queues", QueueInfo)),
        # Messages
        "send": SEND,
        "send_batch": SEND,
        "send_many": SEND,
        "browse": get(MESSAGES, ENTRIES, requests.Browse),
        "message": get(MESSAGES + "/{id}", Single(Entry)),
        "discard": post(QUEUE + "/discard", DISCARDED, requests.Discard),
        "discard_key": post(QUEUE + "/keys/discard", DISCARDED, requests.DiscardKey),
        # Claims
        # What a claim took whose answer was lost comes back when the lease ends, claimed again or not.
        "claim": post(QUEUE + "/claim", DELIVERIES, requests.Claim, repeatable=True),
        "next": post(QUEUE + "/next", DELIVERIES, requests.Next, repeatable=True),
        "ack": settle(QUEUE + "/ack", requests.Settle),
        "release": settle(QUEUE + "/release", requests.Settle),
        "nack": settle(QUEUE + "/nack", requests.Nack),
        "reject": settle(QUEUE + "/reject", requests.Reject),
        "extend": settle(QUEUE + "/extend", requests.Extend),
        "held": get(QUEUE + "/held", DELIVERIES, requests.Held),
        # Not GET: thousands of ids are too many for a path.
        "holders": post(QUEUE + "/holders", Listing("holders", Holder), requests.Holders, repeatable=True),
        "claims": get(QUEUE + "/claims", Listing("claims", Claim), requests.Claims),
        "leases": get(QUEUE + "/leases", Listing("leases", Lease), requests.Limit),
        "blocked_keys": get(QUEUE + "/blocked", Listing("keys", BlockedKey), requests.Limit),
        "unblock": post(QUEUE + "/unblock", Field("Unblocked", "id", Id), requests.Unblock),
        # Reports
        "queue_stats": get(QUEUE + "/stats", Single(QueueStats)),
        "why": get(QUEUE + "/why", Listing("findings", Finding)),
        "samples": get(QUEUE + "/samples", Listing("samples", Sample), requests.Period),
        "rollups": get(QUEUE + "/rollups", Listing("rollups", Rollup), requests.Rollups),
        "runs": get("/v1/pipelines/runs", Listing("runs", PipelineRun), requests.Runs),
        "read_archive": get(QUEUE + "/archive", ENTRIES, requests.Archive),
        "redrive": post(QUEUE + "/redrive", Listing("messages", Redriven), requests.Redrive),
        "replay": post(QUEUE + "/replay", Listing("messages", Replayed), requests.Replay),
        # Schemas
        "set_schema": change("PUT", SCHEMA, Field("SchemaSet", "version", int), requests.SetSchema),
        "queue_schema": get(SCHEMA, Single(QueueSchema)),
        "drop_schema": change("DELETE", SCHEMA, Field("SchemaDropped", "dropped", bool)),
        "schema_versions": get(SCHEMA + "/versions", Listing("versions", QueueSchema)),
        "check_schema": post(
            SCHEMA + "/check", Listing("findings", SchemaFinding), requests.CheckSchema, repeatable=True
        ),
        # Seals
        "set_seal_key": post(SEAL_KEYS, Field("SealKeySet", "id", str), requests.SetSealKey, repeatable=True),
        "seal_keys": get(SEAL_KEYS, Listing("keys", SealKey)),
        "drop_seal_key": change("DELETE", SEAL_KEYS + "/{key_id}", Field("SealKeyDropped", "dropped", bool)),
        # Logs
        "read": get(RECORDS, Listing("records", Record), requests.Read),
        "log_delete": post(RECORDS + "/delete", Field("Deleted", "deleted", int), requests.LogDelete),
        "log_stats": get(RECORDS + "/stats", Single(LogStats)),
        # API keys
        "create_key": post("/v1/keys", Single(NewKey), requests.CreateKey, status=201),
        "keys": get("/v1/keys", Listing("keys", ApiKey)),
        "rotate_key": post("/v1/keys/{id}/rotate", Single(NewKey), requests.RotateKey),
        "revoke_key": change("DELETE", "/v1/keys/{id}", Field("Revoked", "revoked", bool)),
        # Inbound hooks
        "create_hook": post("/v1/hooks", Single(NewHook), requests.CreateHook, status=201),
        "configure_hook": change("PATCH", HOOK, Document(), requests.Config),
        "rotate_hook": post(HOOK + "/rotate", Single(RotatedHook), requests.RotateHook),
        "drop_hook": change("DELETE", HOOK, Field("HookDropped", "dropped", bool), query=requests.DropHook),
        "hooks": get("/v1/hooks", Listing("hooks", HookInfo)),
        "hook_info": get(HOOK, Single(HookInfo)),
        "hook_calls": get(HOOK + "/calls", Listing("calls", HookCall), requests.HookCalls),
        # Services
        "put_service": change(
            "POST", "/v1/services", Field("ServiceStored", "id", UUID), requests.PutService
        ),
        "services": get("/v1/services", Listing("services", ServiceInfo)),
        "drop_service": change(
            "DELETE",
            "/v1/services/{name}",
            Field("ServiceDropped", "dropped", bool),
            query=requests.DropService,
        ),
        "create_service_queue": post(
            ELSEWHERE, Single(ServiceQueue), requests.CreateServiceQueue, status=201
        ),
        "service_queues": get(ELSEWHERE, Listing("queues", ServiceQueue), requests.ServiceQueues),
        "delete_service_queue": Route(
            method="DELETE",
            path=ELSEWHERE + "/{name}",
            answer=Single(ServiceQueue),
            status=202,
            repeatable=True,
        ),
        "retry_service_queue": post(ELSEWHERE + "/{name}/retry", Single(ServiceQueue), status=202),
        # Webhooks
        "create_endpoint": change(
            "PUT", ENDPOINT, Field("EndpointCreated", "created", bool), requests.CreateEndpoint
        ),
        "configure_endpoint": change("PATCH", ENDPOINT, Document(), requests.Config),
        "drop_endpoint": change(
            "DELETE", ENDPOINT, Field("EndpointDropped", "dropped", bool), query=requests.DropEndpoint
        ),
        "rotate_secret": post(ENDPOINT + "/rotate-secret", Single(RotatedSecret), requests.RotateSecret),
        "enable_endpoint": change("POST", ENDPOINT + "/enable", CHANGED),
        "disable_endpoint": change("POST", ENDPOINT + "/disable", CHANGED, requests.DisableEndpoint),
        "reset_breaker": change("POST", ENDPOINT + "/reset-breaker", CHANGED),
        "endpoints": get("/v1/endpoints", Listing("endpoints", EndpointInfo)),
        "endpoint_info": get(ENDPOINT, Single(EndpointInfo)),
        "endpoint_health": get("/v1/endpoint-health", Listing("endpoints", EndpointHealth), requests.Health),
        "endpoint_events": get(ENDPOINT + "/events", Listing("events", EndpointEvent), requests.Limit),
        "endpoint_attempts": get(ENDPOINT + "/attempts", ATTEMPTS, requests.EndpointAttempts),
        "attempts": get(MESSAGES + "/{id}/attempts", ATTEMPTS, requests.Limit),
        "create_event_type": change(
            "PUT", EVENT_TYPE, Field("EventTypeCreated", "created", bool), requests.CreateEventType
        ),
        "drop_event_type": change("DELETE", EVENT_TYPE, Field("EventTypeDropped", "dropped", bool)),
        "event_types": get("/v1/event-types", Listing("event_types", EventType)),
        "subscribe": post(SUBSCRIPTIONS, Field("Subscribed", "id", Id), requests.Subscribe, repeatable=True),
        "unsubscribe": change("DELETE", SUBSCRIPTIONS + "/{id}", Field("Unsubscribed", "ended", bool)),
        "subscriptions": get(SUBSCRIPTIONS, Listing("subscriptions", Subscription), requests.Subscriptions),
        "publish": post("/v1/publish", PUBLISHED, requests.NewEvent, status=201),
        "publish_batch": post("/v1/publish/batch", PUBLISHED, requests.PublishBatch, status=201),
        # Operations
        "now": get("/v1/now", Field("Now", "now", datetime)),
        "sweep": post(QUEUE + "/sweep", Field("Swept", "freed", int)),
        "maintain": post("/v1/maintain", Document(), requests.Maintain),
        "repair": post("/v1/repair", Field("Repaired", "lanes", int), requests.Repair),
        "take_rate": post("/v1/rates/take", Single(Allowance), requests.TakeRate),
    }
)
