"""The exceptions of Holdfast: one class for each error code that the SQL functions raise.

    HoldfastError                       code, message, detail, hint, name, http_status, index
    ├── QueueError
    │   ├── QueueNotFoundError          QH101  404
    │   ├── QueueExistsError            QH102  409
    │   ├── InvalidQueueNameError       QH103  422
    │   ├── InvalidConfigError          QH104  422
    │   ├── InvalidDeadLetterError      QH105  422
    │   ├── InvalidSchemaError          QH106  422
    │   ├── SchemaChangedError          QH107  409
    │   ├── IncompatibleSchemaError     QH108  409
    │   ├── QueueNotEmptyError          QH109  409
    │   └── InvalidSealKeyError         QH110  422
    ├── MessageError
    │   ├── PayloadTooLargeError        QH201  413
    │   ├── HeadersTooLargeError        QH202  413
    │   ├── InvalidMessageError         QH203  422
    │   ├── InvalidPriorityError        QH204  422
    │   ├── InvalidScheduleError        QH205  422
    │   ├── InvalidTtlError             QH206  422
    │   ├── TextTooLongError            QH207  422
    │   ├── BatchTooLargeError          QH208  413
    │   ├── QueueFullError              QH209  429
    │   ├── InvalidMaxDeliveriesError   QH210  422
    │   ├── InvalidKeyError             QH220  422
    │   ├── OrderingMismatchError       QH221  422
    │   ├── IdempotencyConflictError    QH222  409
    │   ├── InvalidWriteError           QH230  422
    │   ├── StagedRowsMissingError      QH231  409
    │   ├── InvalidRepairError          QH232  422
    │   ├── PayloadMismatchError        QH240  422
    │   ├── UnsealedMessageError        QH241  422
    │   ├── CannotOpenError             QH242  422
    │   └── PrivateKeyMissingError      QH243  422
    ├── ClaimError
    │   ├── InvalidMaxError             QH301  422
    │   ├── InvalidLeaseError           QH302  422
    │   ├── WrongIsolationError         QH303  409
    │   ├── LeaseLostError              QH304  409
    │   ├── InvalidDelayError           QH305  422
    │   ├── OrderingChangeError         QH310  409
    │   ├── InvalidUnblockError         QH311  422
    │   └── KeyNotBlockedError          QH312  409
    ├── QueryError
    │   ├── InvalidStateError           QH401  422
    │   ├── InvalidLimitError           QH402  422
    │   ├── InvalidFilterError          QH403  422
    │   ├── InvalidPurgeError           QH410  422
    │   ├── InvalidReplayError          QH411  422
    │   ├── InvalidPeriodError          QH421  422
    │   └── InvalidBudgetError          QH422  422
    ├── SchemaError
    │   ├── SchemaTooNewError           QH501  503
    │   ├── SchemaMissingError          QH502  503
    │   └── MigrationError              QH503  503
    ├── EmbeddedError                   QH504  503
    ├── LogError
    │   ├── KindFixedError              QH601  409
    │   ├── NotAQueueError              QH602  409
    │   ├── NotALogError                QH603  409
    │   ├── InvalidAppendError          QH604  422
    │   └── InvalidSequenceError        QH605  422
    ├── RateError
    │   ├── InvalidRateError            QH701  422
    │   ├── InvalidLimiterError         QH702  422
    │   └── TooManyLimitersError        QH703  503
    ├── RunError
    │   ├── RunInProgressError          QH801  409
    │   ├── InvalidRunError             QH802  422
    │   └── InvalidRollupError          QH803  422
    ├── LakeError
    │   ├── InvalidBatchError           QH810  422
    │   └── BatchConflictError          QH811  409
    ├── JobError
    │   ├── InvalidJobError             QH830  422
    │   └── InvalidCronError            QH831  422
    ├── SecretError
    │   ├── SecretKeyError              QH840  503
    │   └── SealedError                 QH841  503
    ├── WebhookError
    │   ├── EndpointNotFoundError       QH870  404
    │   ├── EndpointExistsError         QH871  409
    │   ├── InvalidEndpointError        QH872  422
    │   ├── ForbiddenAddressError       QH873  422
    │   ├── SecretNotSealedError        QH874  422
    │   ├── EndpointInUseError          QH875  409
    │   ├── EventTypeNotFoundError      QH876  404
    │   ├── EventTypeExistsError        QH877  409
    │   ├── InvalidEventTypeError       QH878  422
    │   ├── InvalidAttemptError         QH879  422
    │   ├── HookNotFoundError           QH880  404
    │   ├── HookExistsError             QH881  409
    │   ├── InvalidHookError            QH882  422
    │   ├── WrongSignatureError         QH883  403
    │   ├── HookPausedError             QH884  503
    │   └── HookInUseError              QH885  409
    ├── ServiceError
    │   ├── InvalidServiceError         QH850  422
    │   ├── ServiceNotFoundError        QH851  404
    │   ├── ServiceInUseError           QH852  409
    │   ├── ServiceUnreachableError     QH853  503
    │   ├── InvalidServiceQueueError    QH860  422
    │   ├── ServiceQueueNotFoundError   QH861  404
    │   ├── ServiceQueueExistsError     QH862  409
    │   ├── TooManyServiceQueuesError   QH863  409
    │   ├── ServiceQueueNotActiveError  QH864  409
    │   ├── ServiceQueueNotFailedError  QH865  409
    │   ├── InvalidServiceMessagesError QH866  422
    │   ├── TooManyTasksError           QH867  429
    │   └── TaskNotFoundError           QH868  404
    ├── ApiKeyError
    │   ├── InvalidApiKeyError          QH901  422
    │   └── ApiKeyNotFoundError         QH902  404
    └── RequestError
        ├── MalformedRequestError       QH910  400
        ├── InvalidRequestError         QH911  422
        ├── RequestTooLargeError        QH912  413
        ├── UnsupportedMediaError       QH913  415
        ├── NoSuchRouteError            QH914  404
        ├── MethodNotAllowedError       QH915  405
        ├── NotAcceptableError          QH916  406
        ├── RequestHeadTooLargeError    QH917  431
        ├── RequestTimeoutError         QH918  408
        ├── UnauthorizedError           QH920  401
        ├── ForbiddenError              QH921  403
        ├── TooManyRequestsError        QH922  429
        ├── PreconditionFailedError     QH923  412
        ├── MessageNotFoundError        QH924  404
        ├── NoSchemaError               QH925  404
        ├── UnavailableError            QH930  503
        │   └── OutcomeUnknownError     QH932  503
        ├── InternalError               QH931  500
        └── UnexpectedAnswerError       QH933  502

A code that this version does not know becomes a plain HoldfastError that carries it.
Every other error of the database passes through as psycopg's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import ClassVar

import psycopg

CODE_PREFIX = "QH"
INTERNAL_ERROR = "XX000"
# After a failover a register may have no page; or somebody has made it anew since this session looked it up.
BROKEN_REGISTER = "bad magic number in sequence"
REPLACED_REGISTER = "could not open relation with OID"
PLACE = re.compile(r"messages\[(\d+)\]: ")  # at the head of a detail


class HoldfastError(Exception):
    """An error that Holdfast itself raised, with its code, a message, and where known a detail and a hint."""

    name: ClassVar[str] = "holdfast_error"
    http_status: ClassVar[int] = 500

    def __init__(self, code: str, message: str, detail: str | None = None, hint: str | None = None) -> None:
        super().__init__(code, message, detail, hint)
        self.code = code
        self.message = message
        self.detail = detail
        self.hint = hint

    @property
    def index(self) -> int | None:
        """Which of several messages in one call was refused, counted from 0; None: the call as a whole."""
        place = PLACE.match(self.detail or "")
        return int(place[1]) if place else None

    def __str__(self) -> str:
        lines = [f"{self.message} [{self.code}]"]
        if self.detail:
            lines.append(f"Detail: {self.detail}")
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)


class QueueError(HoldfastError):
    """Something is wrong with a queue or its configuration."""


class QueueNotFoundError(QueueError):
    """There is no queue of this name."""

    name = "queue_not_found"
    http_status = 404


class QueueExistsError(QueueError):
    """The queue is there already, with another configuration."""

    name = "queue_exists"
    http_status = 409


class InvalidQueueNameError(QueueError):
    """A queue can't have this name."""

    name = "invalid_queue_name"
    http_status = 422


class InvalidConfigError(QueueError):
    """A field of the configuration is unknown, or its value is out of range."""

    name = "invalid_config"
    http_status = 422


class InvalidDeadLetterError(QueueError):
    """The queue has no dead letters to redrive, or the target is missing."""

    name = "invalid_dead_letter"
    http_status = 422


class InvalidSchemaError(QueueError):
    """A definition is no schema of its kind, or too large; or its kind or compatibility is unknown."""

    name = "invalid_schema"
    http_status = 422


class SchemaChangedError(QueueError):
    """The schema of a queue is not the one that the caller knows."""

    name = "schema_changed"
    http_status = 409


class IncompatibleSchemaError(QueueError):
    """A new version of a schema does not go with the one before."""

    name = "incompatible_schema"
    http_status = 409


class QueueNotEmptyError(QueueError):
    """A queue that was to be dropped only if it is empty has messages."""

    name = "queue_not_empty"
    http_status = 409


class InvalidSealKeyError(QueueError):
    """A key is none that messages can be sealed with, or opened."""

    name = "invalid_seal_key"
    http_status = 422


class MessageError(HoldfastError):
    """A message was refused."""


class PayloadTooLargeError(MessageError):
    """The payload or body is larger than the queue allows."""

    name = "payload_too_large"
    http_status = 413


class HeadersTooLargeError(MessageError):
    """The headers are larger than 64 KiB."""

    name = "headers_too_large"
    http_status = 413


class InvalidMessageError(MessageError):
    """The message has both a payload and a body, an unknown field, or the wrong shape."""

    name = "invalid_message"
    http_status = 422


class InvalidPriorityError(MessageError):
    """The priority is not one of 0 to 10."""

    name = "invalid_priority"
    http_status = 422


class InvalidScheduleError(MessageError):
    """The delay or the time of delivery is negative, too far away, or given twice."""

    name = "invalid_schedule"
    http_status = 422


class InvalidTtlError(MessageError):
    """The time to live or the time of expiry is out of range, or given twice."""

    name = "invalid_ttl"
    http_status = 422


class TextTooLongError(MessageError):
    """A tag, content type or consumer name is longer than 200 characters."""

    name = "text_too_long"
    http_status = 422


class BatchTooLargeError(MessageError):
    """One call sends more messages than the engine takes at once."""

    name = "batch_too_large"
    http_status = 413


class QueueFullError(MessageError):
    """The queue has reached its max_depth."""

    name = "queue_full"
    http_status = 429


class InvalidMaxDeliveriesError(MessageError):
    """max_deliveries is not one of 0 to 1,000."""

    name = "invalid_max_deliveries"
    http_status = 422


class InvalidKeyError(MessageError):
    """A key is empty, or key and idempotency_key were both given."""

    name = "invalid_key"
    http_status = 422


class OrderingMismatchError(MessageError):
    """An ordering key or a priority that the queue's ordering does not take."""

    name = "ordering_mismatch"
    http_status = 422


class IdempotencyConflictError(MessageError):
    """A live message has this idempotency key and another payload."""

    name = "idempotency_conflict"
    http_status = 409


class InvalidWriteError(MessageError):
    """A write, or a run of one, can't have this name."""

    name = "invalid_write"
    http_status = 422


class StagedRowsMissingError(MessageError):
    """Messages that were staged are gone, so none is sent."""

    name = "staged_rows_missing"
    http_status = 409


class InvalidRepairError(MessageError):
    """Dead letters cannot be repaired so: an unknown column, or two rows for one of them."""

    name = "invalid_repair"
    http_status = 422


class PayloadMismatchError(MessageError):
    """A message does not fit the schema of its queue."""

    name = "payload_mismatch"
    http_status = 422


class UnsealedMessageError(MessageError):
    """A message is not sealed with a key of its queue, which takes no other."""

    name = "unsealed_message"
    http_status = 422


class CannotOpenError(MessageError):
    """A message is not sealed, or what was sealed has been changed."""

    name = "cannot_open"
    http_status = 422


class PrivateKeyMissingError(MessageError):
    """None of the private keys opens this message."""

    name = "private_key_missing"
    http_status = 422


class ClaimError(HoldfastError):
    """A claim, or the settlement of one, was refused."""


class InvalidMaxError(ClaimError):
    """A claim takes 1 to 10,000 messages."""

    name = "invalid_max"
    http_status = 422


class InvalidLeaseError(ClaimError):
    """A lease lasts from 100 ms to 24 h."""

    name = "invalid_lease"
    http_status = 422


class WrongIsolationError(ClaimError):
    """Claims need READ COMMITTED."""

    name = "wrong_isolation"
    http_status = 409


class LeaseLostError(ClaimError):
    """A strict settlement named messages that the token no longer holds."""

    name = "lease_lost"
    http_status = 409


class InvalidDelayError(ClaimError):
    """The delay of a nack is negative or too long."""

    name = "invalid_delay"
    http_status = 422


class OrderingChangeError(ClaimError):
    """The ordering of a queue with messages can't be changed to or from strict."""

    name = "ordering_change"
    http_status = 409


class InvalidUnblockError(ClaimError):
    """A key is unblocked by retry or skip."""

    name = "invalid_unblock"
    http_status = 422


class KeyNotBlockedError(ClaimError):
    """No dead message blocks this key."""

    name = "key_not_blocked"
    http_status = 409


class QueryError(HoldfastError):
    """A question about a queue was put wrongly."""


class InvalidStateError(QueryError):
    """Messages are ready, scheduled, blocked, in_flight, dead, or in the archive."""

    name = "invalid_state"
    http_status = 422


class InvalidLimitError(QueryError):
    """The limit is not one of 1 to 10,000."""

    name = "invalid_limit"
    http_status = 422


class InvalidFilterError(QueryError):
    """The filter has an unknown field or a value of the wrong kind."""

    name = "invalid_filter"
    http_status = 422


class InvalidPurgeError(QueryError):
    """No state to purge was named, or an unknown one."""

    name = "invalid_purge"
    http_status = 422


class InvalidReplayError(QueryError):
    """The outcomes, the period or the target of a replay make no sense."""

    name = "invalid_replay"
    http_status = 422


class InvalidPeriodError(QueryError):
    """A period that ends before it begins."""

    name = "invalid_period"
    http_status = 422


class InvalidBudgetError(QueryError):
    """One call of maintain takes 1 ms to 10 s."""

    name = "invalid_budget"
    http_status = 422


class SchemaError(HoldfastError):
    """The database's schema does not fit this client."""


class SchemaTooNewError(SchemaError):
    """A newer, breaking migration has been applied to this database."""

    name = "schema_too_new"
    http_status = 503


class SchemaMissingError(SchemaError):
    """The database has no Holdfast schema."""

    name = "schema_missing"
    http_status = 503


class MigrationError(SchemaError):
    """The migrations at hand and those in the database don't fit together."""

    name = "migration_refused"
    http_status = 503


class EmbeddedError(HoldfastError):
    """The embedded PostgreSQL could not be set up, started, reached or stopped."""

    name = "embedded_unavailable"
    http_status = 503


class LogError(HoldfastError):
    """A log was used in a way that logs are not."""


class KindFixedError(LogError):
    """A queue stays a queue, and a log a log."""

    name = "kind_fixed"
    http_status = 409


class NotAQueueError(LogError):
    """A log is not claimed and settled."""

    name = "not_a_queue"
    http_status = 409


class NotALogError(LogError):
    """Only a log, or a queue with one lane, can be read by sequence."""

    name = "not_a_log"
    http_status = 409


class InvalidAppendError(LogError):
    """A record of a log has no priority, delay, time to live or deliveries."""

    name = "invalid_append"
    http_status = 422


class InvalidSequenceError(LogError):
    """A sequence number is out of range, or it is not clear which are meant."""

    name = "invalid_sequence"
    http_status = 422


class RateError(HoldfastError):
    """A rate limiter was asked wrongly."""


class InvalidRateError(RateError):
    """The rate, the burst or what is wanted is out of range."""

    name = "invalid_rate"
    http_status = 422


class InvalidLimiterError(RateError):
    """A limiter can't have this name."""

    name = "invalid_limiter"
    http_status = 422


class TooManyLimitersError(RateError):
    """There are 10,000 limiters already."""

    name = "too_many_limiters"
    http_status = 503


class RunError(HoldfastError):
    """A run of a pipeline was refused."""


class RunInProgressError(RunError):
    """Another run is at work on the same."""

    name = "run_in_progress"
    http_status = 409


class InvalidRunError(RunError):
    """A run can't have this name, these parameters or figures, or such an end."""

    name = "invalid_run"
    http_status = 422


class InvalidRollupError(RunError):
    """Buckets do not have this size, or a rollup is not in its place or can't be read."""

    name = "invalid_rollup"
    http_status = 422


class LakeError(HoldfastError):
    """Messages cannot go to a lake so."""


class InvalidBatchError(LakeError):
    """There is no such lake or batch here, or a batch cannot be closed so."""

    name = "invalid_batch"
    http_status = 422


class BatchConflictError(LakeError):
    """A file differs from the database, or the messages are on their way to another lake."""

    name = "batch_conflict"
    http_status = 409


class JobError(HoldfastError):
    """Something is wrong with a job of the server, or its schedule."""


class InvalidJobError(JobError):
    """A job can't have this name."""

    name = "invalid_job"
    http_status = 422


class InvalidCronError(JobError):
    """This is no schedule of a job, it never comes, or the time of its next tick is out of range."""

    name = "invalid_cron"
    http_status = 422


class SecretError(HoldfastError):
    """Something is wrong with a secret that is to be sealed or opened."""


class SecretKeyError(SecretError):
    """There is no key to seal or open secrets with, or it is malformed."""

    name = "no_secret_key"
    http_status = 503


class SealedError(SecretError):
    """What was sealed cannot be opened: another key, another purpose, or it was changed."""

    name = "cannot_unseal"
    http_status = 503


class WebhookError(HoldfastError):
    """Something is wrong with an endpoint, an event, an attempt to deliver, or a hook."""


class EndpointNotFoundError(WebhookError):
    """There is no endpoint of this name."""

    name = "endpoint_not_found"
    http_status = 404


class EndpointExistsError(WebhookError):
    """The endpoint exists with another configuration, or with a secret, which cannot be compared."""

    name = "endpoint_exists"
    http_status = 409


class InvalidEndpointError(WebhookError):
    """The name or a field of an endpoint is wrong; the message names it."""

    name = "invalid_endpoint"
    http_status = 422


class ForbiddenAddressError(WebhookError):
    """The URL of an endpoint names an address that is not everybody's."""

    name = "forbidden_address"
    http_status = 422


class SecretNotSealedError(WebhookError):
    """SQL got a secret in clear."""

    name = "secret_not_sealed"
    http_status = 422


class EndpointInUseError(WebhookError):
    """An endpoint consumes this queue."""

    name = "endpoint_in_use"
    http_status = 409


class EventTypeNotFoundError(WebhookError):
    """There is no event type of this name."""

    name = "event_type_not_found"
    http_status = 404


class EventTypeExistsError(WebhookError):
    """The event type exists with another description or schema."""

    name = "event_type_exists"
    http_status = 409


class InvalidEventTypeError(WebhookError):
    """The name or description of an event type is wrong, or the filter of a subscription."""

    name = "invalid_event_type"
    http_status = 422


class InvalidAttemptError(WebhookError):
    """This is no attempt to deliver a message."""

    name = "invalid_attempt"
    http_status = 422


class HookNotFoundError(WebhookError):
    """There is no hook of this name, or none that is called by this slug."""

    name = "hook_not_found"
    http_status = 404


class HookExistsError(WebhookError):
    """The hook exists, or its slug is in use."""

    name = "hook_exists"
    http_status = 409


class InvalidHookError(WebhookError):
    """The name, the slug or a field of a hook is wrong; the message names it."""

    name = "invalid_hook"
    http_status = 422


class WrongSignatureError(WebhookError):
    """A call of a hook is not signed with its secret, or not just now."""

    name = "wrong_signature"
    http_status = 403


class HookPausedError(WebhookError):
    """The hook takes nothing for now."""

    name = "hook_paused"
    http_status = 503
    retry_after: int | None = None


class HookInUseError(WebhookError):
    """A hook fills this queue."""

    name = "hook_in_use"
    http_status = 409


class ServiceError(HoldfastError):
    """A service, or a queue on one, was asked for wrongly, or is not there."""


class InvalidServiceError(ServiceError):
    """A service can't have this name or address, or its secret is not sealed."""

    name = "invalid_service"
    http_status = 422


class ServiceNotFoundError(ServiceError):
    """There is no service of this name or id."""

    name = "service_not_found"
    http_status = 404


class ServiceInUseError(ServiceError):
    """The service has queues."""

    name = "service_in_use"
    http_status = 409


class ServiceUnreachableError(ServiceError):
    """Nobody can connect to the service in this way."""

    name = "service_unreachable"
    http_status = 503


class InvalidServiceQueueError(ServiceError):
    """A queue on a service can't have this name, database or setting."""

    name = "invalid_service_queue"
    http_status = 422


class ServiceQueueNotFoundError(ServiceError):
    """The service has no queue of this name."""

    name = "service_queue_not_found"
    http_status = 404


class ServiceQueueExistsError(ServiceError):
    """The service has a queue of this name."""

    name = "service_queue_exists"
    http_status = 409


class TooManyServiceQueuesError(ServiceError):
    """A service has 50 queues at most."""

    name = "too_many_service_queues"
    http_status = 409


class ServiceQueueNotActiveError(ServiceError):
    """The queue on the service is not made yet, has failed, or is being removed."""

    name = "service_queue_not_active"
    http_status = 409


class ServiceQueueNotFailedError(ServiceError):
    """Only what has failed can be tried again."""

    name = "service_queue_not_failed"
    http_status = 409


class InvalidServiceMessagesError(ServiceError):
    """These messages can't be sent to a queue on a service."""

    name = "invalid_service_messages"
    http_status = 422


class TooManyTasksError(ServiceError):
    """The queue on the service has 1,000 tasks that are not done."""

    name = "too_many_tasks"
    http_status = 429


class TaskNotFoundError(ServiceError):
    """There is no such task of this queue, or it ended over a day ago."""

    name = "task_not_found"
    http_status = 404


class ApiKeyError(HoldfastError):
    """Something is wrong with a key to the HTTP server."""


class InvalidApiKeyError(ApiKeyError):
    """A key can't be made so: its name, scopes, queues, expiry or limits."""

    name = "invalid_api_key"
    http_status = 422


class ApiKeyNotFoundError(ApiKeyError):
    """There is no such key, or it is revoked."""

    name = "api_key_not_found"
    http_status = 404


class RequestError(HoldfastError):
    """The HTTP server refused a request, or could not answer it."""

    retry_after: int | None = None  # seconds, where the server says when to ask again


class MalformedRequestError(RequestError):
    """The body is not JSON, or not encoded as the headers say."""

    name = "malformed_request"
    http_status = 400


class InvalidRequestError(RequestError):
    """A field is missing, unknown, of the wrong type or out of range."""

    name = "invalid_request"
    http_status = 422


class RequestTooLargeError(RequestError):
    """The body is larger than the server takes."""

    name = "request_too_large"
    http_status = 413


class UnsupportedMediaError(RequestError):
    """The body is not application/json, or its encoding is not known."""

    name = "unsupported_media"
    http_status = 415


class NoSuchRouteError(RequestError):
    """Nothing is at this path."""

    name = "no_such_route"
    http_status = 404


class MethodNotAllowedError(RequestError):
    """The path is right, the method is not."""

    name = "method_not_allowed"
    http_status = 405


class NotAcceptableError(RequestError):
    """The client does not accept what this route answers with."""

    name = "not_acceptable"
    http_status = 406


class RequestHeadTooLargeError(RequestError):
    """Path, query and headers of the request are too large together."""

    name = "request_head_too_large"
    http_status = 431


class RequestTimeoutError(RequestError):
    """The request did not come in time."""

    name = "request_timeout"
    http_status = 408


class UnauthorizedError(RequestError):
    """There is no API key in the request, or it is not, or no longer, valid."""

    name = "unauthorized"
    http_status = 401


class ForbiddenError(RequestError):
    """The key may not do this, or the request came from another web page."""

    name = "forbidden"
    http_status = 403


class TooManyRequestsError(RequestError):
    """A rate limit is reached; Retry-After says when to ask again."""

    name = "too_many_requests"
    http_status = 429


class PreconditionFailedError(RequestError):
    """The configuration is not the one that If-Match names."""

    name = "precondition_failed"
    http_status = 412


class MessageNotFoundError(RequestError):
    """The message is not, or no longer, there."""

    name = "message_not_found"
    http_status = 404


class NoSchemaError(RequestError):
    """The queue has no schema."""

    name = "no_schema"
    http_status = 404


class UnavailableError(RequestError):
    """The server or its database cannot be reached, or is shutting down; nothing was done: ask again."""

    name = "unavailable"
    http_status = 503


class OutcomeUnknownError(UnavailableError):
    """The connection was lost while the request was under way: it took effect, or it did not."""

    name = "outcome_unknown"
    http_status = 503


class InternalError(RequestError):
    """Something went wrong that nobody foresaw; the server's log says what."""

    name = "internal"
    http_status = 500


class UnexpectedAnswerError(RequestError):
    """What came back is not an answer of Holdfast's: look at the address, and at proxies in between."""

    name = "unexpected_answer"
    http_status = 502


ERRORS: Mapping[str, type[HoldfastError]] = MappingProxyType(
    {
        "QH101": QueueNotFoundError,
        "QH102": QueueExistsError,
        "QH103": InvalidQueueNameError,
        "QH104": InvalidConfigError,
        "QH105": InvalidDeadLetterError,
        "QH106": InvalidSchemaError,
        "QH107": SchemaChangedError,
        "QH108": IncompatibleSchemaError,
        "QH109": QueueNotEmptyError,
        "QH110": InvalidSealKeyError,
        "QH201": PayloadTooLargeError,
        "QH202": HeadersTooLargeError,
        "QH203": InvalidMessageError,
        "QH204": InvalidPriorityError,
        "QH205": InvalidScheduleError,
        "QH206": InvalidTtlError,
        "QH207": TextTooLongError,
        "QH208": BatchTooLargeError,
        "QH209": QueueFullError,
        "QH210": InvalidMaxDeliveriesError,
        "QH220": InvalidKeyError,
        "QH221": OrderingMismatchError,
        "QH222": IdempotencyConflictError,
        "QH230": InvalidWriteError,
        "QH231": StagedRowsMissingError,
        "QH232": InvalidRepairError,
        "QH240": PayloadMismatchError,
        "QH241": UnsealedMessageError,
        "QH242": CannotOpenError,
        "QH243": PrivateKeyMissingError,
        "QH301": InvalidMaxError,
        "QH302": InvalidLeaseError,
        "QH303": WrongIsolationError,
        "QH304": LeaseLostError,
        "QH305": InvalidDelayError,
        "QH310": OrderingChangeError,
        "QH311": InvalidUnblockError,
        "QH312": KeyNotBlockedError,
        "QH401": InvalidStateError,
        "QH402": InvalidLimitError,
        "QH403": InvalidFilterError,
        "QH410": InvalidPurgeError,
        "QH411": InvalidReplayError,
        "QH421": InvalidPeriodError,
        "QH422": InvalidBudgetError,
        "QH501": SchemaTooNewError,
        "QH502": SchemaMissingError,
        "QH503": MigrationError,
        "QH504": EmbeddedError,
        "QH601": KindFixedError,
        "QH602": NotAQueueError,
        "QH603": NotALogError,
        "QH604": InvalidAppendError,
        "QH605": InvalidSequenceError,
        "QH701": InvalidRateError,
        "QH702": InvalidLimiterError,
        "QH703": TooManyLimitersError,
        "QH801": RunInProgressError,
        "QH802": InvalidRunError,
        "QH803": InvalidRollupError,
        "QH810": InvalidBatchError,
        "QH811": BatchConflictError,
        "QH830": InvalidJobError,
        "QH831": InvalidCronError,
        "QH840": SecretKeyError,
        "QH841": SealedError,
        "QH870": EndpointNotFoundError,
        "QH871": EndpointExistsError,
        "QH872": InvalidEndpointError,
        "QH873": ForbiddenAddressError,
        "QH874": SecretNotSealedError,
        "QH875": EndpointInUseError,
        "QH876": EventTypeNotFoundError,
        "QH877": EventTypeExistsError,
        "QH878": InvalidEventTypeError,
        "QH879": InvalidAttemptError,
        "QH880": HookNotFoundError,
        "QH881": HookExistsError,
        "QH882": InvalidHookError,
        "QH883": WrongSignatureError,
        "QH884": HookPausedError,
        "QH885": HookInUseError,
        "QH850": InvalidServiceError,
        "QH851": ServiceNotFoundError,
        "QH852": ServiceInUseError,
        "QH853": ServiceUnreachableError,
        "QH860": InvalidServiceQueueError,
        "QH861": ServiceQueueNotFoundError,
        "QH862": ServiceQueueExistsError,
        "QH863": TooManyServiceQueuesError,
        "QH864": ServiceQueueNotActiveError,
        "QH865": ServiceQueueNotFailedError,
        "QH866": InvalidServiceMessagesError,
        "QH867": TooManyTasksError,
        "QH868": TaskNotFoundError,
        "QH901": InvalidApiKeyError,
        "QH902": ApiKeyNotFoundError,
        "QH910": MalformedRequestError,
        "QH911": InvalidRequestError,
        "QH912": RequestTooLargeError,
        "QH913": UnsupportedMediaError,
        "QH914": NoSuchRouteError,
        "QH915": MethodNotAllowedError,
        "QH916": NotAcceptableError,
        "QH917": RequestHeadTooLargeError,
        "QH918": RequestTimeoutError,
        "QH920": UnauthorizedError,
        "QH921": ForbiddenError,
        "QH922": TooManyRequestsError,
        "QH923": PreconditionFailedError,
        "QH924": MessageNotFoundError,
        "QH925": NoSchemaError,
        "QH930": UnavailableError,
        "QH931": InternalError,
        "QH932": OutcomeUnknownError,
        "QH933": UnexpectedAnswerError,
    }
)


def make_error(code: str, message: str, detail: str | None = None, hint: str | None = None) -> HoldfastError:
    """The exception of the class that belongs to a code."""
    return ERRORS.get(code, HoldfastError)(code, message, detail, hint)


def from_database(error: psycopg.Error) -> HoldfastError | None:
    """What a database error means to Holdfast; None when it is not one of ours."""
    code = error.sqlstate
    if code is None or not code.startswith(CODE_PREFIX):
        return None
    diag = error.diag
    message = (diag.message_primary or str(error)).removesuffix(f" [{code}]")
    return make_error(code, message, diag.message_detail or None, diag.message_hint or None)


def is_broken_register(error: psycopg.Error) -> bool:
    """Whether a failover left a register unreadable, which holdfast.repair() mends."""
    return error.sqlstate == INTERNAL_ERROR and BROKEN_REGISTER in str(error)


def is_replaced_register(error: psycopg.Error) -> bool:
    """Whether a queue was dropped, or its registers made anew, while the call was on its way: ask again."""
    return error.sqlstate == INTERNAL_ERROR and REPLACED_REGISTER in str(error)


@contextmanager
def translated() -> Iterator[None]:
    """Raise Holdfast's errors as HoldfastError, and let every other error pass."""
    try:
        yield
    except psycopg.Error as error:
        ours = from_database(error)
        if ours is None:
            raise
        raise ours from error


# Traces name the class as callers know it.
for each in list(vars().values()):
    if isinstance(each, type) and issubclass(each, HoldfastError):
        each.__module__ = "holdfast"
