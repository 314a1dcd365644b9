"""Rights: each role can do exactly its verbs. Tried for real, as a login user that has the role.

1. A producer sends, by function or inbox, and can do nothing else: no other function, no table.
2. A consumer claims and settles; a monitor looks; an admin calls every public function.
3. No role can call a private function, or reach a table, a sequence or a register.
4. A user without a role can do nothing at all.
5. The engine works for users who have a search_path of their own, with traps in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.engine.engine import T0, Engine
from tests.engine.test_catalog import SIGNATURES
from tests.fix_database import fresh_database
from tests.seals.plainly import pair

Conn = psycopg.Connection[Any]

VERBS: dict[str, set[str]] = {
    "holdfast_producer": {
        "send",
        "send_batch",
        "send_many",
        "send_once",
        "open_stage",
        "check_staged",
        "json_errors",
        "send_staged",
        "drop_staged",
        "writes",
        "begin_run",
        "report_run",
        "end_run",
        "runs",
        "fast_mode",
        "now",
        "queue_schema",
        "schema_versions",
        "publish",
        "publish_batch",
        "event_types",
        "seal_keys",
        "sealing",
    },
    "holdfast_consumer": {
        "claim",
        "claim_cohort",
        "claims",
        "next",
        "ack",
        "nack",
        "release",
        "extend",
        "held",
        "hold",
        "holders",
        "take",
        "bury_spent",
        "listen",
        "read",
        "read_archive",
        "base_id",
        "extent",
        "log_stats",
        "browse",
        "message",
        "whereabouts",
        "contents",
        "outcomes",
        "scan",
        "scan_bounds",
        "scan_source",
        "put_rollups",
        "queue_stats",
        "blocked_keys",
        "begin_run",
        "report_run",
        "end_run",
        "runs",
        "fast_mode",
        "now",
        "queue_schema",
        "schema_versions",
        "reject",
        "dispatch_endpoints",
        "admit",
        "yield_probe",
        "record_attempts",
        "attempts",
        "endpoint_attempts",
        "seal_keys",
    },
    "holdfast_monitor": {
        "queue_stats",
        "outcomes",
        "queue_info",
        "queues",
        "leases",
        "base_id",
        "extent",
        "log_stats",
        "blocked_keys",
        "samples",
        "rollups",
        "archived",
        "why",
        "runs",
        "now",
        "queue_schema",
        "schema_versions",
        "endpoints",
        "endpoint_info",
        "endpoint_health",
        "endpoint_events",
        "hooks",
        "hook_info",
        "hook_calls",
        "event_types",
        "subscriptions",
        "seal_keys",
    },
    "holdfast_admin": set(SIGNATURES),
    "nobody": set(),
}
ROLES = list(VERBS)

LAKE = "01234567-89ab-cdef-0123-456789abcdef"
TASK = "00000000-0000-0000-0000-00000000000a"
# Arguments with which each public function does something, or refuses with an error of ours.
CALLS: dict[str, str] = {
    "ack": "'q', 1",
    "archive_days": "",
    "archived": "",
    "base_id": "'q'",
    "begin_login": "sha256('key'), sha256('token')",
    "begin_run": "'load'",
    "blocked_keys": "'q'",
    "browse": "'q'",
    "bury_spent": "",
    "check_redrive": "'q', 1, '{}'",
    "check_staged": "'q', 1",
    "close_batch": "1, '{}', '{}'",
    "claim": "'q'",
    "claim_cohort": "'q', '{1, 1}'",
    "claims": "'q', 'c'",
    "configure_defaults": "'{}'",
    "configure_queue": "'q', '{}'",
    "contents": "'q'",
    "create_key": "'shop', 'hf_', sha256('another key'), '{send}'",
    "create_queue": "'q'",
    "discard": "'q', '{}'",
    "discard_key": "'q', 'k'",
    "drop_queue": "'none'",
    "drop_schedule": "'jobs.none'",
    "drop_schema": "'q'",
    "drop_seal_key": "'q', 'none'",
    "drop_staged": "'a'",
    "end_run": "1, 'done'",
    "expire": "'q'",
    "extend": "'q', 1",
    "find_key": "sha256('key')",
    "forget": "'q'",
    "gather_staged": "'{1}', 0",
    "has_keys": "",
    "held": "'q', 1",
    "extent": "'q'",
    "find_tagged": "'q'",
    "hold": "1, null",
    "holders": "'q', '{}'",
    "json_errors": "'{1}'",
    "keys": "",
    "leases": "'q'",
    "listen": "'q'",
    "log_delete": "'log', '{}'",
    "log_stats": "'log'",
    "fast_mode": "",
    "maintain": "",
    "maintain_in_turn": "",
    "message": "'q', 1",
    "nack": "'q', 1",
    "next": "'q', 1",
    "now": "",
    "open_batch": f"'{LAKE}', 'q'",
    "open_batches": f"'{LAKE}'",
    "open_stage": "'q', 'w', 'a', 0",
    "outcomes": "'q'",
    "pause_queue": "'paused'",
    "purge": "'q', '{ready}'",
    "put_rollups": "'q', '1 h', '2030-01-01Z', '2030-01-02Z', '[]'",
    "queue_schema": "'q'",
    "queue_stats": "'q'",
    "queue_info": "'q'",
    "queues": "",
    "read": "'q'",
    "read_archive": "'q'",
    "read_batch": "1",
    "redrive": "'q'",
    "redrive_staged": "'q', holdfast.open_stage('q', 'r', 'a', 0)",
    "register_lake": "'y'",
    "release": "'q', 1",
    "repair": "'q'",
    "replay": "'q'",
    "replay_staged": "'q', 'w', '{}', 0",
    "report_run": "1",
    "resume_queue": "'paused'",
    "revoke_key": "1",
    "rollups": "'q'",
    "rotate_key": "1, 'hf_', sha256('another key')",
    "runs": "",
    "samples": "'q'",
    "scan": "'q', 'ready', 1, 2",
    "scan_bounds": "'q', 'ready'",
    "scan_source": "'q', 'ready', 1, 2",
    "send": "'q'",
    "send_batch": "'q', '{}'",
    "send_many": "'q', '[]'",
    "send_once": "'q', '[]', 'k'",
    "send_staged": "'q', 'w', '{}', 0",
    "schedules": "",
    "schema_versions": "'q'",
    "seal_keys": "'q'",
    "sealing": "'q'",
    "set_clock": "'2030-01-01Z'",
    "set_schedule": "'jobs.tidy', '* * * * *', '2030-01-01Z'",
    "set_schema": "'q', '{}'",
    "set_seal_key": f"'q', '{pair().public}'",
    "sweep": "'q'",
    "take": "'rows', '{}'",
    "take_rate": "'a', 1",
    "take_tick": "'jobs.none', '* * * * *', '2030-01-01Z', '2030-01-02Z'",
    "touch_keys": "'{1}'",
    "unblock": "'blocked'",
    "whereabouts": "'{1}'",
    "why": "'q'",
    "writes": "'q', 'w'",
    "admit": "'shop'",
    "attempts": "'q', 1",
    "configure_endpoint": "'shop', '{}'",
    "create_endpoint": '\'hook\', \'{"url": "https://example.com"}\'',
    "create_event_type": "'made'",
    "disable_endpoint": "'shop'",
    "dispatch_endpoints": "",
    "drop_endpoint": "'none'",
    "drop_event_type": "'none'",
    "enable_endpoint": "'shop'",
    "endpoint_attempts": "'shop'",
    "endpoint_events": "'shop'",
    "endpoint_health": "",
    "endpoint_info": "'shop'",
    "configure_hook": "'shop', '{}'",
    "create_hook": "'hook', 'another', sha256('another')",
    "drop_hook": "'none'",
    "find_hooks": "'{}'",
    "hook_calls": "'shop'",
    "hook_info": "'shop'",
    "hooks": "",
    "record_hook_calls": "'[]'",
    "rotate_hook": "'shop', 'new', sha256('new')",
    "endpoints": "",
    "event_types": "",
    "publish": "'paid', '1'",
    "publish_batch": "'[]'",
    "record_attempts": "'shop', '[]'",
    "reject": "'q', 1",
    "reset_breaker": "'shop'",
    "rotate_secret": "'shop', 'hfs1.0123abcd.c2VhbGVk'",
    "subscribe": "'paid', 'shop'",
    "subscriptions": "",
    "unsubscribe": "1",
    "yield_probe": "'shop', 1",
    "begin_task": "'00000000-0000-0000-0000-000000000000', 1",
    "create_service_queue": "'local', 'new'",
    "delete_service_queue": "'local', 'there'",
    "drop_service": "'none'",
    "end_task": "'00000000-0000-0000-0000-000000000000', 1",
    "enqueue_task": "'local', 'there', '[{\"payload\": 1}]'",
    "hold_tasks": "'{}', '{}'",
    "put_off_task": "'00000000-0000-0000-0000-000000000000', 1, 'e', '1 s'",
    "put_service": "'shop', 'here', 'hfs1.01234567.AAAA'",
    "retry_service_queue": "'local', 'failed'",
    "service_queues": "'local'",
    "services": "",
    "stats_task": "'local', 'there'",
    "take_tasks": "'a'",
    "service_task": f"'local', 'there', '{TASK}'",
}


@pytest.fixture(scope="module")
def admin(server_url: str, template_database: str) -> Iterator[Conn]:
    """A superuser's session in a database with some queues, and one login user for each role."""
    with (
        fresh_database(server_url, template_database) as url,
        psycopg.connect(url, autocommit=True) as connection,
    ):
        engine = Engine(connection)
        engine.at(T0)
        engine.create("q")
        engine.create("paused")
        engine.create("rows", by_row=True)
        engine.create("log", kind="log")
        engine.create("blocked", ordering="strict", on_dead="block", max_deliveries=1)
        engine.send(1, queue="blocked")
        engine.settle("nack", engine.claim_one(queue="blocked")["token"], queue="blocked")
        engine.create("kept", keep=["done"])
        engine.send(1, queue="kept")
        engine.settle("ack", engine.claim_one(queue="kept")["token"], queue="kept")
        connection.execute("insert into holdfast.lake (id, place, made_at) values (%s, 'x', %s)", [LAKE, T0])
        engine.rows("open_batch", lake=LAKE, queue="kept")
        connection.execute("select holdfast.create_key('shop', 'hf_', sha256('key'), '{send}')")
        engine.value("create_hook", hook="shop", prefix="slug", hash=b"s" * 32, queue="q")
        engine.value("create_endpoint", endpoint="shop", config={"url": "https://example.com"})
        engine.value("create_event_type", name="paid")
        for name, status in (("there", "Active"), ("failed", "Failed")):
            connection.execute("select holdfast.create_service_queue('local', %s)", [name])
            connection.execute(
                "update holdfast.service_queue set status = %s where name = %s", [status, name]
            )
        connection.execute("update holdfast.service_task set id = %s where n = 1", [TASK])
        for role in ROLES:
            user = sql.Identifier(f"try_{role}")
            connection.execute(sql.SQL("create role {} login").format(user))
            if role != "nobody":
                connection.execute(sql.SQL("grant {} to {}").format(sql.Identifier(role), user))
        yield connection
        for role in ROLES:
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(f"try_{role}")))


def attempted(admin: Conn, role: str, statement: sql.SQL | sql.Composed) -> str:
    """What comes of a statement as that role's user; whatever it did is undone."""
    try:
        with admin.transaction(force_rollback=True):
            admin.execute(sql.SQL("set local session authorization {}").format(sql.Identifier(f"try_{role}")))
            admin.execute(statement)
    except psycopg.errors.InsufficientPrivilege:
        return "refused"
    except psycopg.Error as error:
        return f"{error.sqlstate}: {error}"
    return "done"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_can_call_exactly_its_verbs(admin: Conn, role: str) -> None:
    outcome = {
        name: attempted(
            admin,
            role,
            sql.SQL("select * from holdfast.{}({})").format(sql.Identifier(name), sql.SQL(arguments)),
        )
        for name, arguments in CALLS.items()
    }

    assert outcome == {name: "done" if name in VERBS[role] else "refused" for name in SIGNATURES}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_execute_no_private_function(admin: Conn, role: str) -> None:
    allowed = admin.execute(
        "select proname from pg_proc where pronamespace = 'holdfast'::regnamespace and proname like '\\_%%'"
        " and has_function_privilege(%s, oid, 'execute')",
        [f"try_{role}"],
    ).fetchall()
    tried = attempted(admin, role, sql.SQL("select holdfast._lane_lock()"))

    assert allowed == []
    assert tried == "refused"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_can_touch_no_table(admin: Conn, role: str) -> None:
    tables = [
        row[0]
        for row in admin.execute(
            "select relname from pg_class where relnamespace = 'holdfast'::regnamespace"
            " and relkind = 'r' and relname <> 'migration'"
        )
    ]

    outcome = {
        (table, verb): attempted(admin, role, sql.SQL(statement).format(sql.Identifier("holdfast", table)))
        for table in tables
        for verb, statement in (
            ("select", "select * from {}"),
            ("count", "select count(*) from {}"),
            ("delete", "delete from {}"),
            ("truncate", "truncate {}"),
            ("lock", "lock table {} in access exclusive mode"),
            ("insert", "insert into {} default values"),
        )
    }

    assert len(tables) >= 8
    # These are there to be inserted into; by whom, another test looks at.
    outcome.pop(("inbox", "insert"))
    outcome.pop(("staged", "insert"))
    assert {how: result for how, result in outcome.items() if result != "refused"} == {}


@pytest.mark.parametrize("role", ROLES)
def test_a_view_can_be_read_by_those_who_may_scan_and_written_by_nobody(admin: Conn, role: str) -> None:
    found = admin.execute(
        "select c.relname, p.name"
        " from pg_class c, unnest(array['select', 'insert', 'update', 'delete']) p(name)"
        " where c.relnamespace = 'holdfast'::regnamespace and c.relkind = 'v'"
        " and has_table_privilege(%s, c.oid, p.name)",
        [f"try_{role}"],
    ).fetchall()
    tried = attempted(admin, role, sql.SQL("select * from holdfast.scan_message"))

    views = {"scan_message", "scan_archive", "scan_lease", "row_message", "row_queue"}
    views = views if "scan" in VERBS[role] else set()
    assert set(found) == {(view, "select") for view in views}
    assert tried == ("done" if views else "refused")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_can_touch_no_register(admin: Conn, role: str) -> None:
    names = [
        row[0]
        for row in admin.execute(
            "select relname from pg_class where relnamespace = 'holdfast'::regnamespace and relkind = 'S'"
        )
    ]

    outcome = {
        (name, verb): attempted(admin, role, sql.SQL(statement).format(sql.Literal(f"holdfast.{name}")))
        for name in names
        for verb, statement in (("set", "select setval({}, 1)"), ("read", "select currval({})"))
    }

    assert len(names) > 10
    # Who fills the inbox numbers its rows by this one, and can't set it.
    expected = {("inbox_n", "read")} if role in ("holdfast_producer", "holdfast_admin") else set()
    assert {how for how, result in outcome.items() if result != "refused"} == expected


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "statement",
    [
        "insert into holdfast.inbox (queue, payload) values ('q', '1')",
        "insert into holdfast.staged (stage, n, payload) values (1, 1, '1')",
    ],
    ids=["inbox", "staged"],
)
def test_only_producers_and_admins_may_fill_a_table(admin: Conn, role: str, statement: LiteralString) -> None:
    result = attempted(admin, role, sql.SQL(statement))

    assert result == ("done" if role in ("holdfast_producer", "holdfast_admin") else "refused")


@pytest.mark.parametrize("role", ["holdfast_producer", "holdfast_admin"])
def test_a_row_in_the_inbox_cannot_be_numbered_by_its_sender(admin: Conn, role: str) -> None:
    statement = sql.SQL("insert into holdfast.inbox (n, queue) values (1, 'q')")

    assert attempted(admin, role, statement) == "refused"


def test_a_producer_copies_into_the_inbox(admin: Conn) -> None:
    with admin.transaction(force_rollback=True):
        admin.execute("set local session authorization try_holdfast_producer")
        with admin.cursor() as cursor, cursor.copy("copy holdfast.inbox (queue, payload) from stdin") as copy:
            copy.write_row(("q", Jsonb(1)))
        admin.execute("reset session authorization")
        assert admin.execute("select ready from holdfast.queue_stats('q')").fetchone() == (1,)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_can_change_the_schema(admin: Conn, role: str) -> None:
    tried = [
        "create table holdfast.mine ()",
        "create function holdfast.mine() returns int language sql return 1",
        "drop function holdfast.now()",
        "alter function holdfast.send_many(text, jsonb, boolean) reset all",
        "drop table holdfast.message",
        "create trigger mine before insert on holdfast.message"
        " execute function suppress_redundant_updates_trigger()",
    ]

    assert [attempted(admin, role, sql.SQL(t)) for t in tried] == ["refused"] * len(tried)


@pytest.mark.parametrize(
    "role", ["holdfast_producer", "holdfast_consumer", "holdfast_monitor", "holdfast_admin"]
)
def test_every_role_sees_the_virtual_clock(admin: Conn, role: str) -> None:
    with admin.transaction(force_rollback=True):
        admin.execute(sql.SQL("set local session authorization {}").format(sql.Identifier(f"try_{role}")))
        shown = admin.execute("select holdfast.now()").fetchone()

    assert shown == (T0,)


def test_a_callers_search_path_and_temporary_objects_do_not_matter(admin: Conn) -> None:
    with admin.transaction(force_rollback=True):
        admin.execute("grant create on schema public to try_holdfast_admin")
        admin.execute(f"grant temporary on database {admin.info.dbname} to public".encode())
        admin.execute("set local session authorization try_holdfast_admin")
        admin.execute(
            "create function public.now() returns timestamptz language sql return '1999-01-01'::timestamptz;"
            "create function public.nextval(regclass) returns bigint language sql return 1;"
            "create temp table queue (id int); create temp table message (id int);"
            "create temp table lease (id int);"
            "set local search_path = pg_temp, public, pg_catalog"
        )
        engine = Engine(admin)
        sent = engine.send(1)
        row = engine.claim_one()
        settled = engine.settle("ack", row["token"])

    assert (row["id"], row["enqueued_at"]) == (sent, T0)
    assert settled == ([sent], [])


def test_a_producer_and_a_consumer_work_together(admin: Conn) -> None:
    engine = Engine(admin)

    admin.execute("set session authorization try_holdfast_producer")
    sent = engine.send({"from": "producer"}, priority=3)
    admin.execute("set session authorization try_holdfast_consumer")
    row = engine.claim_one()
    settled = engine.settle("ack", row["token"])
    admin.execute("reset session authorization")

    assert row["payload"] == {"from": "producer"}
    assert settled == ([sent], [])
