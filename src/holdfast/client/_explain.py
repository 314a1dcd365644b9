"""What PostgreSQL's own refusals mean for a verb: JSON that it does not take, and rights that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

import psycopg

from ._errors import HoldfastError, make_error

# What sql/functions/90_grants.sql gives each role; bulk_send is an insert into the inbox.
VERBS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "holdfast_producer": frozenset(
            {"send", "send_batch", "send_many", "send_once", "bulk_send", "fast_mode", "now"}
            | {"open_stage", "check_staged", "json_errors", "send_staged", "drop_staged", "writes"}
            | {"begin_run", "report_run", "end_run", "runs", "queue_schema", "schema_versions"}
            | {"publish", "publish_batch", "event_types"}
            | {"sealing", "seal_keys"}
        ),
        "holdfast_consumer": frozenset(
            {"claim", "claim_cohort", "next", "ack", "nack", "release", "extend", "held", "holders", "claims"}
            | {"listen", "read", "read_archive", "scan", "scan_bounds", "scan_source", "put_rollups"}
            | {"begin_run", "report_run", "end_run", "runs"}
            | {"log_stats", "browse", "message", "queue_stats", "blocked_keys", "fast_mode", "now"}
            | {"queue_schema", "schema_versions", "seal_keys", "extent", "base_id", "whereabouts"}
            | {"contents", "outcomes", "take", "hold", "bury_spent", "reject", "attempts"}
            | {"endpoint_attempts", "dispatch_endpoints", "admit", "yield_probe", "record_attempts"}
        ),
        "holdfast_monitor": frozenset(
            {"queue_stats", "queues", "queue_info", "leases", "log_stats", "blocked_keys", "samples"}
            | {"rollups", "archived", "why", "runs", "now", "queue_schema", "schema_versions"}
            | {"extent", "base_id", "outcomes", "endpoints", "endpoint_info", "endpoint_health"}
            | {"endpoint_events", "event_types", "subscriptions", "seal_keys"}
            | {"hooks", "hook_info", "hook_calls"}
        ),
    }
)
ADMIN = "holdfast_admin"

# invalid_text_representation, untranslatable_character: of JSON, since all else is checked before it is sent.
BAD_JSON = ("22P02", "22P05")
OVERFLOW = "22003"
CODES: Mapping[str, str] = MappingProxyType(
    {
        "create_queue": "QH104",
        "configure_queue": "QH104",
        "configure_defaults": "QH104",
        "set_schema": "QH106",
        "create_endpoint": "QH872",
        "configure_endpoint": "QH872",
        "create_event_type": "QH106",
        "subscribe": "QH878",
        "publish": "QH203",
        "publish_batch": "QH203",
        "redrive": "QH403",
        "send": "QH203",
        "send_batch": "QH203",
        "send_many": "QH203",
        "bulk_send": "QH203",
        "enqueue_task": "QH866",
    }
)


@contextmanager
def explained(verb: str) -> Iterator[None]:
    """Note which role is missing; make an error of Holdfast out of JSON that PostgreSQL does not take."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        error.add_note(f"Hint: {needed(verb)}")
        raise
    except psycopg.DataError as error:
        if not is_about_json(error) or verb not in CODES:
            raise
        raise bad_json(CODES[verb], told(error)) from error


@contextmanager
def admitted() -> Iterator[None]:
    """Say of a user who may not even look at the schema what that means."""
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        error.add_note("Hint: This user has none of Holdfast's roles.")
        raise


def is_about_json(error: psycopg.DataError) -> bool:
    """Whether JSON is not taken; the code of a number that is too large is that of integers, too."""
    is_number = error.sqlstate == OVERFLOW and error.diag.source_file == "numeric.c"
    return is_number or error.sqlstate in BAD_JSON


def needed(verb: str) -> str:
    """Which roles may use a verb."""
    roles = [*(role for role, verbs in VERBS.items() if verb in verbs), ADMIN]
    return f"{verb} needs a role that this user does not have: {' or '.join(roles)}."


def told(error: psycopg.Error) -> str:
    """What PostgreSQL says of an error."""
    said = (error.diag.message_primary, error.diag.message_detail)
    return ". ".join(part.rstrip(".") for part in said if part) + "."


def bad_json(code: str, detail: str) -> HoldfastError:
    """JSON with what PostgreSQL has no place for."""
    return make_error(
        code,
        "PostgreSQL does not take this JSON",
        detail,
        "JSON has no NaN and no Infinity, and PostgreSQL stores no \\u0000, no single surrogates and no "
        "number beyond 131,072 digits: leave them out, or send bytes as the body.",
    )
