"""The catalog: what every function, table, type and sequence of the schema must have.

1. Everything in the schema has a comment.
2. Functions have the volatility they are meant to have: verbs are volatile, reports stable.
3. Public functions run as their owner with a fixed search_path; so do trigger functions.
4. Public functions that reach engine tables plan generically, without sequential scans and JIT; private
   functions set none of that: they run under the public one's settings.
5. Nothing can be executed, read or written by PUBLIC, except for the migrator's record.
6. Arguments have the names and order of the contract.
7. No exception block in the hot verbs: it would cost a subtransaction.
8. Every use of advisory locks has a class of its own, and no function makes one up.
9. A function calls no function that is not there: PL/pgSQL finds out only when it comes to the call.
10. No view passes a write on to the table below it: not even that of the owner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from tests.fix_database import fresh_database

Conn = psycopg.Connection[Any]

# A question mark stands for "default null".
SIGNATURES = {
    "ack": "queue text, token bigint, ids bigint[]?, strict boolean = false",
    "archive_days": "queues text[]?, until timestamptz?",
    "archived": "queues text[]?, since timestamptz?, until timestamptz?",
    "base_id": "queue text",
    "begin_run": "pipeline text, parameters jsonb = '{}'::jsonb, exclusive text?",
    "begin_login": "hash bytea, token bytea, lasts interval = '00:15:00'::interval",
    "blocked_keys": 'queue text, "limit" integer = 100',
    "bury_spent": "queue text?",
    "browse": "queue text, state text = 'ready'::text, \"limit\" integer = 100, after bigint?",
    "check_redrive": "queue text, stage bigint, columns text[], target text?, after bigint = 0",
    "check_staged": "queue text, stage bigint, after bigint = 0",
    "claim": "queue text, max integer = 1, lease interval?, consumer text?, alone boolean = false",
    "claim_cohort": "queue text, maxes integer[], leases interval[]?, consumers text[]?,"
    " alone boolean = false",
    "claims": "queue text, consumer text",
    "close_batch": "batch bigint, ids bigint[], checksums bigint[], keep boolean = false",
    "configure_defaults": "config jsonb",
    "configure_queue": "queue text, config jsonb",
    "contents": 'queue text, states text[]?, "limit" integer = 100, "offset" integer = 0',
    "create_key": "name text, prefix text, hash bytea, scopes text[], queues text[] = '{*}'::text[],"
    " expires_in interval?, rate double precision?, burst integer?",
    "create_queue": "queue text, config jsonb = '{}'::jsonb",
    "discard": "queue text, ids bigint[]",
    "discard_key": "queue text, key text",
    "drop_queue": "queue text, if_empty boolean = false",
    "drop_schedule": "name text",
    "drop_schema": "queue text",
    "drop_seal_key": "queue text, key_id text",
    "drop_staged": "run text",
    "end_run": "run_id bigint, state text, figures jsonb?, error text?",
    "expire": 'queue text, "limit" integer = 10000',
    "extend": "queue text, token bigint, lease interval?, ids bigint[]?, strict boolean = false",
    "extent": "queue text, after bigint?",
    "find_key": "hash bytea",
    "find_tagged": 'queue text, tag text?, prefix text?, before bigint?, "limit" integer = 10000',
    "forget": 'queue text, outcomes text[]?, before timestamptz?, "limit" integer = 10000',
    "gather_staged": "stages bigint[], messages bigint",
    "has_keys": "",
    "held": "queue text, token bigint",
    "hold": "id bigint, due_at timestamptz",
    "holders": "queue text, ids bigint[]",
    "json_errors": "texts text[]",
    "keys": "",
    "leases": 'queue text, "limit" integer = 100',
    "listen": "queue text, patience interval = '00:00:30'::interval",
    "fast_mode": "",
    "log_delete": 'queue text, seqs bigint[]?, tag text?, before bigint?, "limit" integer = 10000',
    "log_stats": "queue text",
    "maintain": "budget interval = '00:00:00.1'::interval",
    "maintain_in_turn": "every interval = '00:00:10'::interval, budget interval = '00:00:00.1'::interval",
    "message": "queue text, id bigint",
    "nack": "queue text, token bigint, ids bigint[]?, delay interval?, error text?, strict boolean = false",
    "next": "queue text, token bigint, max integer = 1, lease interval?, consumer text?,"
    " alone boolean = false, strict boolean = false",
    "now": "",
    "open_batch": 'lake uuid, queue text, until timestamptz?, "limit" integer = 100000, after timestamptz?,'
    " after_id bigint?, keep boolean = false",
    "open_batches": "lake uuid",
    "open_stage": "queue text, write_id text, run text, part integer",
    "outcomes": "queue text",
    "pause_queue": "queue text",
    "put_rollups": "queue text, bucket interval, since timestamptz, until timestamptz, rollups jsonb",
    "purge": 'queue text, states text[], "limit" integer = 10000',
    "queue_info": "queue text",
    "queue_schema": "queue text",
    "queue_stats": "queue text",
    "queues": "",
    "read": 'queue text, after bigint = 0, "limit" integer = 100',
    "read_archive": 'queue text, "from" timestamptz?, "to" timestamptz?, "limit" integer = 100,'
    " after bigint?",
    "read_batch": 'batch bigint, "limit" integer = 10000, after timestamptz?, after_id bigint?',
    "redrive": 'queue text, ids bigint[]?, filter jsonb?, "limit" integer = 1000, target text?',
    "redrive_staged": "queue text, stage bigint, columns text[] = '{}'::text[], target text?,"
    ' after bigint = 0, "limit" integer = 1000',
    "register_lake": "place text",
    "release": "queue text, token bigint, ids bigint[]?, strict boolean = false",
    "repair": "queue text?, unreadable_only boolean = false",
    "replay": 'queue text, "from" timestamptz?, "to" timestamptz?, outcomes text[]?, "limit" integer = 1000,'
    " target text?, after bigint?",
    "replay_staged": "queue text, write_id text, stages bigint[], messages bigint",
    "report_run": "run_id bigint, step text?, done bigint?, total bigint?",
    "resume_queue": "queue text",
    "revoke_key": "id bigint",
    "rotate_key": "id bigint, prefix text, hash bytea, grace interval = '00:00:00'::interval",
    "rollups": "queue text, since timestamptz?, until timestamptz?, bucket interval = '01:00:00'::interval,"
    ' "limit" integer = 1000',
    "runs": 'pipeline text?, "limit" integer = 100',
    "schedules": "",
    "schema_versions": "queue text",
    "seal_keys": "queue text",
    "sealing": "queue text",
    "send": "queue text, payload jsonb?, body bytea?, content_type text?, headers jsonb?, priority integer?,"
    " delay interval?, deliver_at timestamptz?, ttl interval?, expires_at timestamptz?, correlation_id uuid?,"
    " tag text?, max_deliveries integer?, ordering_key text?, key text?, idempotency_key text?,"
    " alone boolean = false",
    "samples": "queue text, since timestamptz?, until timestamptz?",
    "scan": "queue text, state text, lo bigint, hi bigint, since timestamptz?, until timestamptz?",
    "scan_source": "queue text, state text, lo bigint, hi bigint, since timestamptz?, until timestamptz?,"
    " columns text[]?",
    "scan_bounds": "queue text, state text, since timestamptz?, until timestamptz?, first bigint = 0",
    "send_batch": "queue text, payloads jsonb[], content_type text?, headers jsonb?, priority integer?,"
    " delay interval?, deliver_at timestamptz?, ttl interval?, expires_at timestamptz?, correlation_id uuid?,"
    " tag text?, max_deliveries integer?, ordering_key text?, key text?, idempotency_key text?,"
    " alone boolean = false",
    "send_many": "queue text, messages jsonb, alone boolean = false",
    "send_once": "queue text, messages jsonb, idempotency_key text,"
    " \"window\" interval = '00:02:00'::interval, alone boolean = false, ignoring text[] = '{}'::text[]",
    "send_staged": "queue text, write_id text, stages bigint[], messages bigint",
    "set_clock": "at timestamptz",
    "set_schedule": "name text, cron text, next_at timestamptz",
    "set_seal_key": "queue text, public_key text",
    "set_schema": "queue text, definition jsonb, kind text = 'json'::text, compatibility text?,"
    " expected_version integer?",
    "sweep": "queue text",
    "take": "queue text, ids bigint[], lease interval?, consumer text?, patient boolean = true",
    "take_tick": "name text, cron text, at timestamptz, next_at timestamptz",
    "take_rate": "limiter text, rate double precision, burst integer?, want integer = 1,"
    " partial boolean = false",
    "touch_keys": "ids bigint[]",
    "unblock": "queue text, key text?, how text = 'retry'::text",
    "whereabouts": "ids bigint[]",
    "why": "queue text",
    "writes": "queue text, prefix text, \"limit\" integer = 1000, after text = ''::text",
    "admit": "endpoint text, want integer = 1",
    "attempts": 'queue text, id bigint, "limit" integer = 100',
    "configure_endpoint": "endpoint text, config jsonb",
    "create_endpoint": "endpoint text, config jsonb, queue text?",
    "create_event_type": "name text, description text?, schema jsonb?",
    "disable_endpoint": "endpoint text, reason text?",
    "dispatch_endpoints": "endpoints text[]?",
    "drop_endpoint": "endpoint text, with_queue boolean = false",
    "drop_event_type": "name text",
    "enable_endpoint": "endpoint text",
    "endpoint_attempts": 'endpoint text, outcomes text[]?, "limit" integer = 100, until timestamptz?',
    "endpoint_events": 'endpoint text, "limit" integer = 100',
    "endpoint_health": "endpoint text?, \"window\" interval = '00:15:00'::interval",
    "endpoint_info": "endpoint text",
    "configure_hook": "hook text, config jsonb",
    "create_hook": "hook text, prefix text, hash bytea, config jsonb = '{}'::jsonb, queue text?",
    "drop_hook": "hook text, with_queue boolean = false",
    "find_hooks": "hashes bytea[]",
    "hook_calls": 'hook text, "limit" integer = 100, before bigint?',
    "hook_info": "hook text",
    "hooks": "",
    "record_hook_calls": "calls jsonb",
    "rotate_hook": "hook text, prefix text?, hash bytea?, sealed text?,"
    " overlap interval = '24:00:00'::interval",
    "endpoints": "",
    "event_types": "",
    "publish": "event_type text, payload jsonb, headers jsonb?, priority integer?, delay interval?,"
    " deliver_at timestamptz?, ttl interval?, expires_at timestamptz?, correlation_id uuid?,"
    " tag text?, max_deliveries integer?, ordering_key text?, key text?, idempotency_key text?",
    "publish_batch": "events jsonb",
    "record_attempts": "endpoint text, attempts jsonb",
    "reject": "queue text, token bigint, ids bigint[]?, error text?, strict boolean = false",
    "reset_breaker": "endpoint text",
    "rotate_secret": "endpoint text, sealed text, overlap interval = '24:00:00'::interval",
    "subscribe": "event_type text, endpoint text, filter jsonb?",
    "subscriptions": "event_type text?, endpoint text?",
    "unsubscribe": "id bigint",
    "yield_probe": "endpoint text, probe bigint",
    "begin_task": "id uuid, attempt integer",
    "create_service_queue": "service text, name text, database_name text?,"
    " visibility_timeout_seconds integer = 30, max_attempts integer = 5, dlq_enabled boolean = true",
    "delete_service_queue": "service text, name text",
    "drop_service": "name text, forget boolean = false",
    "end_task": "id uuid, attempt integer, result jsonb?, error text?",
    "enqueue_task": "service text, name text, messages jsonb",
    "hold_tasks": "ids uuid[], attempts integer[], lease interval = '00:00:30'::interval",
    "put_off_task": "id uuid, attempt integer, error text, delay interval",
    "put_service": "name text, address text, sealed text",
    "retry_service_queue": "service text, name text",
    "service_queues": "service text, name text?",
    "service_task": "service text, name text, task uuid",
    "services": "",
    "stats_task": "service text, name text",
    "take_tasks": "agent text, \"limit\" integer = 10, lease interval = '00:00:30'::interval,"
    " per_service integer = 4",
}

RESULTS = {
    "ack": "holdfast.settlement",
    "archive_days": "TABLE(queue text, day date, messages bigint)",
    "archived": "TABLE(queue text, lake uuid, place text, messages bigint, first_at timestamptz,"
    " last_at timestamptz)",
    "begin_login": "timestamptz",
    "base_id": "bigint",
    "begin_run": "bigint",
    "blocked_keys": "TABLE(key text, head bigint, since timestamptz, waiting bigint, reason text)",
    "bury_spent": "integer",
    "browse": "SETOF holdfast.entry",
    "check_redrive": "TABLE(n bigint, code text, message text)",
    "check_staged": "TABLE(n bigint, code text, message text)",
    "claim": "SETOF holdfast.delivery",
    "claim_cohort": "SETOF holdfast.cohort_delivery",
    "claims": "TABLE(token bigint, messages integer, first_id bigint, last_id bigint, deadline timestamptz)",
    "close_batch": "bigint",
    "configure_defaults": "jsonb",
    "configure_queue": "jsonb",
    "contents": "SETOF holdfast.content",
    "create_key": "bigint",
    "create_queue": "boolean",
    "discard": "bigint[]",
    "discard_key": "bigint[]",
    "drop_queue": "boolean",
    "drop_schedule": "boolean",
    "drop_schema": "boolean",
    "drop_seal_key": "boolean",
    "drop_staged": "bigint",
    "end_run": "boolean",
    "expire": "TABLE(expired integer, more boolean)",
    "extend": "holdfast.settlement",
    "extent": "TABLE(kind text, base bigint, first_seq bigint, last_seq bigint, place bigint)",
    "find_key": "SETOF holdfast.api_key_info",
    "find_tagged": "bigint[]",
    "forget": "TABLE(forgotten integer, more boolean)",
    "gather_staged": "bigint",
    "has_keys": "boolean",
    "held": "SETOF holdfast.delivery",
    "hold": "holdfast.hold",
    "holders": "TABLE(id bigint, token bigint, consumer text, deadline timestamptz)",
    "json_errors": "TABLE(n bigint, message text)",
    "keys": "SETOF holdfast.api_key_info",
    "leases": "TABLE(consumer text, priority integer, messages integer, deadline timestamptz)",
    "listen": "text",
    "log_delete": "bigint",
    "log_stats": "TABLE(first_seq bigint, last_seq bigint, records bigint, trimmed bigint,"
    " oldest_age interval, exact boolean)",
    "fast_mode": "void",
    "maintain": "jsonb",
    "maintain_in_turn": "jsonb",
    "message": "SETOF holdfast.entry",
    "nack": "holdfast.settlement",
    "next": "SETOF holdfast.delivery",
    "now": "timestamptz",
    "open_batch": "SETOF holdfast.batch",
    "open_batches": "SETOF holdfast.batch",
    "open_stage": "bigint",
    "outcomes": "TABLE(outcome text, messages bigint, exact boolean)",
    "pause_queue": "boolean",
    "put_rollups": "integer",
    "purge": "TABLE(purged integer, more boolean)",
    "queue_schema": "SETOF holdfast.schema_info",
    "queue_stats": "SETOF holdfast.stats",
    "queue_info": "TABLE(paused boolean, created_at timestamptz, config jsonb, effective jsonb)",
    "queues": "TABLE(queue text, paused boolean, created_at timestamptz, config jsonb, effective jsonb)",
    "read": "SETOF holdfast.record",
    "read_archive": "SETOF holdfast.entry",
    "read_batch": "SETOF holdfast.ended",
    "redrive": "TABLE(id bigint, new_id bigint)",
    "redrive_staged": "TABLE(id bigint, new_id bigint, stays text)",
    "register_lake": "uuid",
    "release": "holdfast.settlement",
    "repair": "integer",
    "replay": "TABLE(id bigint, new_id bigint, ended_at timestamptz)",
    "replay_staged": "TABLE(sent bigint, repeated boolean)",
    "report_run": "boolean",
    "resume_queue": "boolean",
    "revoke_key": "boolean",
    "rotate_key": "boolean",
    "rollups": "TABLE(start timestamptz, sent bigint, done bigint, failed bigint, dead bigint,"
    " expired bigint, discarded bigint, retries bigint, waiting_count bigint,"
    " waiting_p50 double precision, waiting_p95 double precision, waiting_p99 double precision,"
    " processing_count bigint, processing_p50 double precision, processing_p95 double precision,"
    " processing_p99 double precision, estimated text[], details jsonb, made_at timestamptz)",
    "runs": "SETOF holdfast.run",
    "samples": "TABLE(began timestamptz, ended timestamptz, sent bigint, done bigint, failed bigint,"
    " dead bigint, expired bigint, discarded bigint, nacked bigint, lapsed bigint, moved bigint,"
    " depth bigint, ready bigint, scheduled bigint, blocked bigint, in_flight bigint,"
    " oldest_age interval, exact boolean, waiting jsonb, processing jsonb)",
    "schedules": "TABLE(name text, cron text, next_at timestamptz, last_at timestamptz)",
    "schema_versions": "SETOF holdfast.schema_info",
    "seal_keys": "SETOF holdfast.seal_key_info",
    "sealing": "TABLE(key_id text, public_key text, digest_key bytea)",
    "send": "bigint",
    "scan": "SETOF holdfast.entry",
    "scan_bounds": "TABLE(lo bigint, hi bigint)",
    "scan_source": "TABLE(source text, fixed jsonb)",
    "send_batch": "bigint[]",
    "send_many": "bigint[]",
    "send_once": "TABLE(ids bigint[], deduped boolean)",
    "send_staged": "TABLE(sent bigint, repeated boolean)",
    "set_clock": "void",
    "set_schedule": "boolean",
    "set_schema": "integer",
    "set_seal_key": "text",
    "sweep": "integer",
    "take": "SETOF holdfast.delivery",
    "take_rate": "holdfast.allowance",
    "take_tick": "boolean",
    "touch_keys": "void",
    "unblock": "bigint",
    "whereabouts": "TABLE(root_id bigint, queue text, id bigint, state text)",
    "why": "SETOF holdfast.finding",
    "writes": "TABLE(write_id text, messages bigint, sent_at timestamptz)",
    "admit": "TABLE(granted integer, state text, retry_in interval, probe bigint)",
    "attempts": "SETOF holdfast.attempt_info",
    "configure_endpoint": "jsonb",
    "create_endpoint": "boolean",
    "create_event_type": "boolean",
    "disable_endpoint": "boolean",
    "dispatch_endpoints": "SETOF holdfast.endpoint_target",
    "drop_endpoint": "boolean",
    "drop_event_type": "boolean",
    "enable_endpoint": "boolean",
    "endpoint_attempts": "SETOF holdfast.attempt_info",
    "endpoint_events": "TABLE(at timestamptz, event text, reason text)",
    "endpoint_health": "SETOF holdfast.endpoint_health",
    "endpoint_info": "SETOF holdfast.endpoint_info",
    "configure_hook": "jsonb",
    "create_hook": "text",
    "drop_hook": "boolean",
    "find_hooks": "SETOF holdfast.hook_target",
    "hook_calls": "TABLE(id bigint, at timestamptz, outcome text, status integer, size bigint, code text,"
    " message_id bigint)",
    "hook_info": "SETOF holdfast.hook_info",
    "hooks": "SETOF holdfast.hook_info",
    "record_hook_calls": "integer",
    "rotate_hook": "timestamptz",
    "endpoints": "SETOF holdfast.endpoint_info",
    "event_types": "TABLE(name text, description text, schema jsonb, subscriptions bigint,"
    " created_at timestamptz)",
    "publish": "SETOF holdfast.published",
    "publish_batch": "SETOF holdfast.published",
    "record_attempts": "holdfast.endpoint_state",
    "reject": "holdfast.settlement",
    "reset_breaker": "boolean",
    "rotate_secret": "timestamptz",
    "subscribe": "bigint",
    "subscriptions": "SETOF holdfast.subscription_info",
    "unsubscribe": "boolean",
    "yield_probe": "boolean",
    "begin_task": "boolean",
    "create_service_queue": "holdfast.service_queue_info",
    "delete_service_queue": "holdfast.service_queue_info",
    "drop_service": "boolean",
    "end_task": "boolean",
    "enqueue_task": "uuid",
    "hold_tasks": "uuid[]",
    "put_off_task": "boolean",
    "put_service": "uuid",
    "retry_service_queue": "holdfast.service_queue_info",
    "service_queues": "SETOF holdfast.service_queue_info",
    "service_task": "holdfast.service_task_info",
    "services": "SETOF holdfast.service_info",
    "stats_task": "uuid",
    "take_tasks": "SETOF holdfast.service_grant",
}

STABLE = {
    "archive_days",
    "archived",
    "base_id",
    "blocked_keys",
    "browse",
    "claims",
    "contents",
    "find_key",
    "find_tagged",
    "has_keys",
    "held",
    "hold",
    "holders",
    "json_errors",
    "keys",
    "leases",
    "message",
    "open_batches",
    "outcomes",
    "queue_info",
    "queue_schema",
    "queue_stats",
    "queues",
    "read_batch",
    "rollups",
    "runs",
    "samples",
    "scan",
    "scan_bounds",
    "scan_source",
    "schedules",
    "schema_versions",
    "seal_keys",
    "sealing",
    "whereabouts",
    "why",
    "writes",
    "attempts",
    "dispatch_endpoints",
    "endpoint_attempts",
    "endpoint_events",
    "endpoint_health",
    "endpoint_info",
    "endpoints",
    "event_types",
    "subscriptions",
    "find_hooks",
    "hook_calls",
    "hook_info",
    "hooks",
    "service_queues",
    "service_task",
    "services",
}
# now() is inlined into every statement that uses it: a security definer would be called.
INLINED = {"now"}
# They read rows of queues, schemas, lanes, jobs, services and API keys at most, no table that grows with the
# messages.
CONFIGURING = {
    "configure_defaults",
    "configure_queue",
    "create_key",
    "create_queue",
    "drop_schedule",
    "drop_schema",
    "drop_seal_key",
    "fast_mode",
    "has_keys",
    "json_errors",
    "keys",
    "listen",
    "pause_queue",
    "queue_info",
    "queues",
    "resume_queue",
    "revoke_key",
    "rotate_key",
    "schedules",
    "set_clock",
    "set_schedule",
    "set_schema",
    "set_seal_key",
    "take_tick",
    "touch_keys",
    "create_service_queue",
    "delete_service_queue",
    "drop_service",
    "put_service",
    "retry_service_queue",
    "service_queues",
    "services",
}
PLANNING = ["enable_seqscan=off", "jit=off", "plan_cache_mode=force_generic_plan"]
SEARCH_PATH = "search_path=pg_catalog, pg_temp"

FUNCTIONS: LiteralString = """
select p.proname::text as name, p.provolatile::text as volatility, p.prosecdef as definer,
       coalesce(p.proconfig, '{}') as settings, obj_description(p.oid, 'pg_proc') as comment,
       p.prosrc as body,
       pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result,
       p.prorettype = 'trigger'::regtype as trigger
from pg_proc p where p.pronamespace = 'holdfast'::regnamespace order by p.proname
"""


@pytest.fixture(scope="module")
def conn(server_url: str, template_database: str) -> Iterator[Conn]:
    """One database for the whole module: nothing here changes it."""
    with (
        fresh_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        connection.execute("set search_path = pg_catalog")
        yield connection


@pytest.fixture(scope="module")
def functions(conn: Conn) -> list[dict[str, Any]]:
    """All functions of the schema."""
    return conn.cursor(row_factory=psycopg.rows.dict_row).execute(FUNCTIONS).fetchall()


@pytest.fixture(scope="module")
def public(functions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that a client may call."""
    return [function for function in functions if not function["name"].startswith("_")]


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def short(signature: str) -> str:
    brief = signature.replace("timestamp with time zone", "timestamptz")
    return re.sub(r" DEFAULT NULL::[a-z ]+(\[\])?", "?", brief).replace(" DEFAULT ", " = ")


def test_the_public_functions_are_those_of_the_contract(public: list[dict[str, Any]]) -> None:
    assert {row["name"]: short(row["arguments"]) for row in public} == SIGNATURES
    assert {row["name"]: short(row["result"]) for row in public} == RESULTS
    assert len(public) == len(SIGNATURES)


def test_every_function_has_a_comment(functions: list[dict[str, Any]]) -> None:
    assert names([row for row in functions if not row["comment"]]) == []


def test_verbs_are_volatile_and_reports_are_stable(public: list[dict[str, Any]]) -> None:
    assert {row["name"] for row in public if row["volatility"] == "s"} == STABLE
    assert {row["name"] for row in public if row["volatility"] == "i"} == set()


def test_a_private_function_that_writes_is_volatile(functions: list[dict[str, Any]]) -> None:
    writing = (
        "insert into holdfast.",
        "update holdfast.",
        "delete from holdfast.",
        "setval(",
        "pg_advisory",
        "for update",
    )
    writers = [row for row in functions if any(word in (row["body"] or "") for word in writing)]

    assert names([row for row in writers if row["volatility"] != "v"]) == []


def test_public_functions_run_as_their_owner_with_a_fixed_search_path(public: list[dict[str, Any]]) -> None:
    outside = [row for row in public if row["name"] not in INLINED]

    assert names([row for row in outside if not row["definer"]]) == []
    assert names([row for row in outside if SEARCH_PATH not in row["settings"]]) == []


def test_trigger_functions_run_as_their_owner_with_a_fixed_search_path(
    functions: list[dict[str, Any]],
) -> None:
    triggers = [row for row in functions if row["trigger"]]

    assert names(triggers) == ["_receive", "_refuse_write"]
    assert all(row["definer"] and SEARCH_PATH in row["settings"] for row in triggers)


def test_other_private_functions_run_as_their_caller(functions: list[dict[str, Any]]) -> None:
    private = [row for row in functions if row["name"].startswith("_") and not row["trigger"]]

    assert names([row for row in private if row["definer"]]) == []


def test_public_functions_on_engine_tables_plan_generically_by_index_without_jit(
    public: list[dict[str, Any]],
) -> None:
    reaching = [row for row in public if row["name"] not in CONFIGURING | INLINED]

    assert {row["name"]: sorted(s for s in row["settings"] if s in PLANNING) for row in reaching} == {
        row["name"]: PLANNING for row in reaching
    }
    assert len(reaching) >= 20


def test_the_inbox_trigger_plans_generically_by_index_without_jit(functions: list[dict[str, Any]]) -> None:
    (receive,) = [row for row in functions if row["name"] == "_receive"]

    assert set(PLANNING) <= set(receive["settings"])


def test_hot_verbs_have_no_exception_block(functions: list[dict[str, Any]]) -> None:
    hot = {"send", "send_batch", "claim", "next", "ack", "nack", "release", "extend"}
    hot |= {
        "_unlease",
        "_unlease_some",
        "_settlement",
        "_return",
        "_ids",
        "_wake",
        "_advance",
        "_take_due",
        "_scan",
    }

    caught = [row for row in functions if row["name"] in hot and "exception\n" in (row["body"] or "").lower()]

    assert names(caught) == []


def test_every_table_and_view_has_a_comment(conn: Conn) -> None:
    bare = conn.execute(
        "select relname from pg_class"
        " where relnamespace = 'holdfast'::regnamespace and relkind in ('r', 'v', 'p', 'm')"
        " and obj_description(oid, 'pg_class') is null"
    ).fetchall()

    assert bare == []


def test_no_view_passes_a_write_on_to_its_table(conn: Conn) -> None:
    # What a view passes on is a matter of its query. Of triggers 64 is instead, and 28 are all writes.
    through = conn.execute(
        "select c.relname from pg_class c where c.relnamespace = 'holdfast'::regnamespace"
        " and c.relkind = 'v' and pg_relation_is_updatable(c.oid, false) <> 0"
        " and (select bit_or(t.tgtype::int) & 28 from pg_trigger t"
        "      where t.tgrelid = c.oid and t.tgtype & 64 <> 0) is distinct from 28"
    ).fetchall()

    assert through == []


@pytest.mark.parametrize("statement", ["delete from {}", "update {} set queue = queue"])
@pytest.mark.parametrize("view", ["row_message", "row_queue"])
def test_the_owner_is_refused_to_write_through_a_view(
    database_url: str, view: str, statement: LiteralString
) -> None:
    with psycopg.connect(database_url, autocommit=True) as conn:
        conn.execute("select holdfast.create_queue('rows', '{\"by_row\": true}'), holdfast.send('rows', '1')")

        with pytest.raises(psycopg.errors.FeatureNotSupported, match=f"holdfast.{view} is there to be read"):
            conn.execute(psycopg.sql.SQL(statement).format(psycopg.sql.Identifier("holdfast", view)))

        assert conn.execute("select count(*) from holdfast.row_message").fetchone() == (1,)


def test_every_type_has_a_comment(conn: Conn) -> None:
    bare = conn.execute(
        "select t.typname from pg_type t left join pg_class c on c.oid = t.typrelid"
        " where t.typnamespace = 'holdfast'::regnamespace and t.typtype in ('c', 'd', 'e')"
        " and coalesce(c.relkind = 'c', true) and obj_description(t.oid, 'pg_type') is null"
    ).fetchall()

    assert bare == []


def test_every_sequence_that_is_not_a_columns_own_has_a_comment(conn: Conn) -> None:
    bare = conn.execute(
        "select c.relname from pg_class c where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'S'"
        " and obj_description(c.oid, 'pg_class') is null"
        " and not exists (select from pg_depend d where d.objid = c.oid and d.deptype = 'i')"
    ).fetchall()

    assert bare == []


def test_the_schema_has_a_comment(conn: Conn) -> None:
    assert conn.execute("select obj_description('holdfast'::regnamespace, 'pg_namespace')").fetchone() != (
        None,
    )


def test_nothing_can_be_executed_by_public(conn: Conn) -> None:
    open_to_all = conn.execute(
        "select p.proname from pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a"
        " where p.pronamespace = 'holdfast'::regnamespace and a.grantee = 0"
    ).fetchall()

    assert open_to_all == []


def test_nothing_but_the_migrators_record_can_be_read_or_written_by_public(conn: Conn) -> None:
    open_to_all = conn.execute(
        "select c.relname, a.privilege_type from pg_class c, aclexplode(c.relacl) a"
        " where c.relnamespace = 'holdfast'::regnamespace and a.grantee = 0"
        " union all select 'schema', a.privilege_type from pg_namespace n, aclexplode(n.nspacl) a"
        " where n.nspname = 'holdfast' and a.grantee = 0"
    ).fetchall()

    assert open_to_all == [("migration", "SELECT")]


def test_functions_do_not_read_the_clock_but_through_now(functions: list[dict[str, Any]]) -> None:
    # Measuring how long something took, and pacing by it, is real time by nature.
    measuring = {
        "_first_due",
        "_first_overdue",
        "_sweep_lane",
        "_open_gaps",
        "_look_at_gaps",
        "_pace_gaps",
        "_take_exceptions",
        "_set_care",
        "maintain",
    }
    measuring |= {"_end_overdue_holders", "set_clock", "claim"}
    measuring |= {"_expire", "_expire_chunk", "_forget_old"}
    measuring |= {"_end_overdue_holders", "set_clock", "claim", "_take_due_in_order", "_take_fresh_in_order"}
    # What PostgreSQL says of sessions and transactions is in real time too.
    measuring |= {"_maintain_lanes", "_maintain_queues", "_tally", "_why_lanes", "_why_senders"}
    measuring |= {"_old_snapshots", "_archive_settled"}
    readers = {
        row["name"]
        for row in functions
        if any(
            word in (row["body"] or "") for word in ("clock_timestamp", "current_timestamp", "pg_catalog.now")
        )
    }

    assert readers <= measuring


@pytest.mark.parametrize("table", ["lease", "gap", "boot", "tally", "probe", "inbox", "stage", "staged"])
def test_volatile_tables_are_unlogged(conn: Conn, table: str) -> None:
    kind = conn.execute(
        "select relpersistence::text from pg_class where oid = %s::regclass", [f"holdfast.{table}"]
    )

    assert kind.fetchone() == ("u",)


@pytest.mark.parametrize(
    "table",
    [
        "api_key",
        "api_login",
        "attempt",
        "endpoint",
        "endpoint_breaker",
        "endpoint_event",
        "endpoint_secret",
        "hook",
        "hook_call",
        "hook_secret",
        "hook_slug",
        "event_type",
        "subscription",
        "queue",
        "lane",
        "message",
        "defaults",
        "limiter",
        "log",
        "tombstone",
        "archive_default",
        "pipeline_run",
        "receipt",
        "rollup",
        "sample",
        "schedule",
        "schema_version",
        "seal_key",
        "seal_secret",
        "write",
    ],
)
def test_durable_tables_are_logged(conn: Conn, table: str) -> None:
    kind = conn.execute(
        "select relpersistence::text from pg_class where oid = %s::regclass", [f"holdfast.{table}"]
    )

    assert kind.fetchone() == ("p",)


def test_every_use_of_advisory_locks_has_a_class_of_its_own(
    conn: Conn, functions: list[dict[str, Any]]
) -> None:
    classes = {row["name"] for row in functions if re.fullmatch(r"_\w+_lock", row["name"])}
    numbers = [conn.execute(f"select holdfast.{name}()".encode()).fetchone() for name in sorted(classes)]
    takers = {
        row["name"]: set(re.findall(r"advisory_xact_lock\(([^,]+),", row["body"] or "")) for row in functions
    }
    made_up = {name: taken for name, taken in takers.items() if taken - {f"holdfast.{c}()" for c in classes}}

    assert len(set(numbers)) == len(classes) == 11
    assert made_up == {"_lock_keys": {"class"}}


def test_no_function_calls_one_that_is_not_there(conn: Conn) -> None:
    missing = conn.execute(
        """
        select p.proname, called.name
        from pg_proc p cross join lateral (
          select distinct (regexp_matches(p.prosrc, 'holdfast\\.(\\w+)\\(', 'g'))[1] as name) called
        where p.pronamespace = 'holdfast'::regnamespace
          and not exists (select from pg_proc f
                          where f.pronamespace = 'holdfast'::regnamespace and f.proname = called.name)
        """
    ).fetchall()

    assert missing == []
