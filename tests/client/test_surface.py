"""The client and the SQL functions have the same surface: names, arguments, types, columns."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import psycopg
import pytest

from holdfast import (
    Allowance,
    ApiKey,
    AsyncHoldfast,
    Attempt,
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
    PipelineRun,
    Published,
    QueueInfo,
    QueueSchema,
    QueueStats,
    Record,
    Redriven,
    Rollup,
    Sample,
    SealKey,
    ServiceInfo,
    ServiceQueue,
    ServiceTask,
    Settlement,
    Subscription,
)
from holdfast.client._bulk import COLUMNS
from holdfast.client._calls import NEEDED, NEEDED_ANYWHERE, TYPES

FUNCTIONS = """
select p.proname, coalesce(p.proargnames[1:p.pronargs], '{}'),
       array(select format_type(t, null) from unnest(p.proargtypes) with ordinality a(t, n) order by n)
from pg_proc p
where p.pronamespace = 'holdfast'::regnamespace and p.proname not like '\\_%'
  and p.prorettype <> 'trigger'::regtype
"""
REQUIRED = """
select p.proname, coalesce(p.proargnames[1:p.pronargs - p.pronargdefaults], '{}') from pg_proc p
where p.pronamespace = 'holdfast'::regnamespace and p.proname not like '\\_%'
  and p.prorettype <> 'trigger'::regtype
"""
FOR_TESTS_ONLY = {"set_clock"}
# For those who read and write in bulk: holdfast.spark calls them itself.
FOR_BULK_ONLY = {"open_stage", "check_staged", "json_errors", "send_staged", "drop_staged"}
FOR_BULK_ONLY |= {"scan", "scan_bounds", "scan_source"}
FOR_BULK_ONLY |= {"check_redrive", "gather_staged", "redrive_staged", "replay_staged"}
FOR_BULK_ONLY |= {"begin_run", "report_run", "end_run", "writes", "put_rollups"}
FOR_BULK_ONLY |= {"archive_days", "register_lake", "open_batch", "open_batches", "read_batch", "close_batch"}
FOR_BULK_ONLY |= {"archived"}
# For servers, which let callers in and claim for many of them at once: holdfast.server calls them itself.
FOR_SERVERS_ONLY = {"find_key", "begin_login", "touch_keys", "has_keys", "claim_cohort", "maintain_in_turn"}
FOR_SERVERS_ONLY |= {"queue_info"}
# And number, find and send once for programs that know another API.
# Rows are for statements of SQL, and for those who offer them.
FOR_SERVERS_ONLY |= {"hold", "take", "bury_spent"}
# What a client asks before it sends.
FOR_SERVERS_ONLY |= {"sealing"}
FOR_SERVERS_ONLY |= {"base_id", "extent", "find_tagged", "send_once"}
# And look for messages by what those programs know of them, and tidy up as they do.
FOR_SERVERS_ONLY |= {"whereabouts", "contents", "outcomes", "forget", "expire"}
# And have jobs, which run once for all of them.
FOR_SERVERS_ONLY |= {"set_schedule", "schedules", "drop_schedule", "take_tick"}
# And agents, which do what there is to be done on services; and those who ask them on behalf of others.
FOR_SERVERS_ONLY |= {"take_tasks", "begin_task", "hold_tasks", "put_off_task", "end_task"}
FOR_SERVERS_ONLY |= {"enqueue_task", "stats_task", "service_task"}
# And take calls of hooks.
FOR_SERVERS_ONLY |= {"find_hooks", "record_hook_calls"}
# For dispatchers: holdfast.webhook calls them itself.
FOR_DISPATCHERS_ONLY = {"admit", "dispatch_endpoints", "record_attempts", "yield_probe"}
NO_VERBS = FOR_TESTS_ONLY | FOR_BULK_ONLY | FOR_SERVERS_ONLY | FOR_DISPATCHERS_ONLY
OF_THE_CLIENT_ONLY = {"bulk_send", "check_schema", "close", "transaction"}
FILLED_IN_BY_THE_CLIENT = {"alone", "prefix", "hash", "address", "sealed"}
BESIDE = {"self", "wait", "secret", "slug", "url"}


def functions(conn: psycopg.Connection[Any]) -> dict[str, dict[str, str]]:
    """The public SQL functions, each with its arguments and their types."""
    found = conn.execute(FUNCTIONS).fetchall()
    return {
        name: dict(zip(arguments, types, strict=True))
        for name, arguments, types in found
        if name not in NO_VERBS
    }


def methods() -> dict[str, set[str]]:
    """The public methods of the client, each with its parameters."""
    members = inspect.getmembers(AsyncHoldfast, inspect.isfunction)
    return {
        name: {word.rstrip("_") for word in inspect.signature(method).parameters} - BESIDE
        for name, method in members
        if not name.startswith("_") and name not in OF_THE_CLIENT_ONLY
    }


def test_every_function_has_a_method_and_every_method_a_function(conn: psycopg.Connection[Any]) -> None:
    assert set(methods()) == set(functions(conn))


def test_methods_take_the_arguments_of_their_functions(conn: psycopg.Connection[Any]) -> None:
    wanted = {name: set(arguments) - FILLED_IN_BY_THE_CLIENT for name, arguments in functions(conn).items()}

    assert methods() == wanted


def test_arguments_are_sent_with_the_types_of_the_functions(conn: psycopg.Connection[Any]) -> None:
    declared = {pair for arguments in functions(conn).values() for pair in arguments.items()}

    assert declared == set(TYPES.items())


def test_arguments_without_a_default_are_those_that_may_not_be_none(conn: psycopg.Connection[Any]) -> None:
    required = dict(conn.execute(REQUIRED).fetchall())

    assert {
        name: set(NEEDED.get(name, NEEDED_ANYWHERE)) & set(arguments)
        for name, arguments in functions(conn).items()
    } == {name: set(required[name]) for name in functions(conn)}


@pytest.mark.parametrize(
    ("kind", "query"),
    [
        (Delivery, "select * from holdfast.claim('q')"),
        (Settlement, "select * from holdfast.ack('q', 1)"),
        (Entry, "select * from holdfast.browse('q')"),
        (Claim, "select * from holdfast.claims('q', 'c')"),
        (Holder, "select * from holdfast.holders('q', '{}')"),
        (Lease, "select * from holdfast.leases('q')"),
        (QueueStats, "select * from holdfast.queue_stats('q')"),
        (QueueInfo, "select * from holdfast.queues()"),
        (Sample, "select * from holdfast.samples('q')"),
        (Rollup, "select * from holdfast.rollups('q')"),
        (PipelineRun, "select * from holdfast.runs()"),
        (Finding, "select * from holdfast.why('q')"),
        (Redriven, "select * from holdfast.redrive('q')"),
        (Record, "select * from holdfast.read('q')"),
        (LogStats, "select * from holdfast.log_stats('log')"),
        (Allowance, "select * from holdfast.take_rate('a', 1)"),
        (ApiKey, "select * from holdfast.keys()"),
        (QueueSchema, "select * from holdfast.queue_schema('q')"),
        (SealKey, "select * from holdfast.seal_keys('q')"),
        (EndpointInfo, "select * from holdfast.endpoints()"),
        (EndpointHealth, "select * from holdfast.endpoint_health()"),
        (EndpointEvent, "select * from holdfast.endpoint_events('e')"),
        (Attempt, "select * from holdfast.attempts('q', 1)"),
        (HookInfo, "select * from holdfast.hooks()"),
        (HookCall, "select * from holdfast.hook_calls('h')"),
        (EventType, "select * from holdfast.event_types()"),
        (Subscription, "select * from holdfast.subscriptions()"),
        (Published, "select * from holdfast.publish_batch('[]')"),
        (QueueSchema, "select * from holdfast.schema_versions('q')"),
        (ServiceInfo, "select * from holdfast.services()"),
        (ServiceQueue, "select * from holdfast.service_queues('local')"),
        (ServiceTask, "select t.* from holdfast.service_task s, holdfast.service_task('local', 'q', s.id) t"),
    ],
)
def test_values_have_the_columns_of_their_functions(
    conn: psycopg.Connection[Any], kind: Any, query: str
) -> None:
    conn.execute("select holdfast.create_queue('q'), holdfast.create_queue('log', '{\"kind\": \"log\"}')")
    conn.execute("select holdfast.create_service_queue('local', 'q')")
    conn.execute("update holdfast.service_queue set status = 'Active'")

    conn.execute("select holdfast.create_endpoint('e', jsonb_build_object('url', 'https://example.com'))")

    conn.execute("select holdfast.create_hook('h', 'slug', sha256('slug'))")

    columns = conn.execute(query.encode()).description

    assert [column.name for column in columns or ()] == [field.name for field in dataclasses.fields(kind)]


def test_the_inbox_has_the_columns_that_bulk_send_fills(conn: psycopg.Connection[Any]) -> None:
    columns = conn.execute("select * from holdfast.inbox").description

    assert {column.name for column in columns or ()} - {"n"} == set(COLUMNS)
