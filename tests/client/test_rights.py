"""Missing rights: PostgreSQL's own error, with a note that names the role."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import conninfo, sql

from holdfast import AsyncHoldfast
from holdfast.client._explain import ADMIN, VERBS
from holdfast.migrate import migrate
from tests.client.conftest import Open
from tests.fix_database import fresh_database

Scenario = Callable[[AsyncHoldfast], Awaitable[Any]]
USER = "test_rights"
OTHER = "test_rights_other"
ALLOWED = """
select distinct p.proname from pg_proc p
where p.pronamespace = 'holdfast'::regnamespace and has_function_privilege(%s, p.oid, 'execute')
  and p.proname not like '\\_%%'
"""


@pytest.fixture
def user_url(conn: psycopg.Connection[Any], database_url: str) -> Iterator[str]:
    """A user without any role."""
    user = sql.Identifier(USER)
    conn.execute("select holdfast.create_queue('q')")
    conn.execute(sql.SQL("create role {} login password 'secret'").format(user))
    try:
        yield conninfo.make_conninfo(database_url, user=USER, password="secret")
    finally:
        conn.execute(sql.SQL("drop role {}").format(user))


def test_an_owner_gives_roles_that_others_made_by_the_admin_option(
    conn: psycopg.Connection[Any], user_url: str, empty_database_url: str
) -> None:
    name = sql.Identifier(str(conninfo.conninfo_to_dict(empty_database_url)["dbname"]))
    conn.execute(sql.SQL("grant create on database {} to {}").format(name, sql.Identifier(USER)))
    url = conninfo.make_conninfo(empty_database_url, user=USER, password="secret")
    giving = f"grant holdfast_producer to {OTHER}"
    conn.execute(f"create role {OTHER}".encode())
    try:
        installed = migrate(url)
        with psycopg.connect(url, autocommit=True) as owner:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                owner.execute(giving.encode())
            conn.execute(f"grant holdfast_producer to {USER} with admin option".encode())
            owner.execute(giving.encode())
            owner.execute(f"revoke holdfast_producer from {OTHER}".encode())
            owner.execute("drop schema holdfast cascade")
    finally:
        conn.execute(f"drop role {OTHER}".encode())
        conn.execute(sql.SQL("revoke create on database {} from {}").format(name, sql.Identifier(USER)))

    assert (installed.changed, installed.warnings) == (True, ())


def test_a_role_counts_in_every_database_to_which_the_user_may_connect(
    conn: psycopg.Connection[Any], user_url: str, server_url: str, template_database: str
) -> None:
    conn.execute(f"grant holdfast_monitor to {USER}".encode())
    with fresh_database(server_url, template_database) as other:
        name = conninfo.conninfo_to_dict(other)["dbname"]
        elsewhere = conninfo.make_conninfo(user_url, dbname=name)
        with psycopg.connect(elsewhere) as connection:
            reached = connection.execute("select count(*) from holdfast.queues()").fetchone()
        conn.execute(sql.SQL("revoke connect on database {} from public").format(sql.Identifier(str(name))))

        with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
            psycopg.connect(elsewhere)

    assert reached == (0,)


@pytest.mark.parametrize(
    ("granted", "call", "note"),
    [
        ("consumer", lambda c: c.send("q", 1), "send needs a role that this user does not have: "
         "holdfast_producer or holdfast_admin."),
        ("consumer", lambda c: c.bulk_send("q", [1]), "bulk_send needs a role that this user does not have: "
         "holdfast_producer or holdfast_admin."),
        ("producer", lambda c: c.claim("q"), "claim needs a role that this user does not have: "
         "holdfast_consumer or holdfast_admin."),
        ("producer", lambda c: c.queue_stats("q"), "queue_stats needs a role that this user does not have: "
         "holdfast_consumer or holdfast_monitor or holdfast_admin."),
        ("monitor", lambda c: c.create_queue("r"), "create_queue needs a role that this user does not have: "
         "holdfast_admin."),
    ],
)  # fmt: skip
async def test_a_call_without_the_right_names_the_roles_that_have_it(
    open_client: Open,
    conn: psycopg.Connection[Any],
    user_url: str,
    granted: str,
    call: Scenario,
    note: str,
) -> None:
    conn.execute(f"grant holdfast_{granted} to {USER}".encode())

    with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
        await call(open_client(user_url))

    assert caught.value.__notes__ == [f"Hint: {note}"]


async def test_a_user_without_any_role_is_told_so(open_client: Open, user_url: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
        await open_client(user_url).now()

    assert caught.value.__notes__[0] == "Hint: This user has none of Holdfast's roles."


@pytest.mark.parametrize("role", [*VERBS, ADMIN])
def test_the_roles_that_are_named_are_those_that_have_the_right(
    conn: psycopg.Connection[Any], role: str
) -> None:
    allowed = {name for (name,) in conn.execute(ALLOWED, [role]).fetchall()}
    everything = {name for (name,) in conn.execute(ALLOWED, [ADMIN]).fetchall()}

    assert allowed == (everything if role == ADMIN else VERBS[role] - {"bulk_send"})
