"""A register that a failover left unreadable: the client has it mended once, and tries again."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from holdfast import AsyncHoldfast
from tests.client.conftest import Bind

# What PostgreSQL says of an unlogged sequence that was created after a standby's last restartpoint.
BROKEN = """
create or replace function holdfast.sweep(queue text) returns int language plpgsql as $$
begin
  perform nextval('tries');
  if (select last_value from mended) = 1 then
    raise exception using errcode = 'XX000',
      message = 'bad magic number in sequence "cursor_1": 00000000';
  end if;
  return 42;
end $$
"""
REPAIR = """
create or replace function holdfast.repair(queue text default null, unreadable_only boolean default false)
returns int language plpgsql as $$
begin
  perform nextval('mended') where unreadable_only;
  return 1;
end $$
"""
USELESS_REPAIR = REPAIR.replace("nextval('mended')", "nextval('useless')")


@pytest.fixture
def broken(conn: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    """A database in which sweep fails until repair was called."""
    for name in ("tries", "mended", "useless"):
        conn.execute(f"create sequence {name}".encode())
    conn.execute("select setval('mended', 1), setval('tries', 1, false)")
    conn.execute(BROKEN.encode())
    conn.execute(REPAIR.encode())
    return conn


async def test_a_broken_register_is_mended_and_the_call_repeated(
    client: AsyncHoldfast, broken: psycopg.Connection[Any]
) -> None:
    assert await client.sweep("orders") == 42

    assert broken.execute("select last_value from tries").fetchone() == (2,)


async def test_it_is_tried_only_once(client: AsyncHoldfast, broken: psycopg.Connection[Any]) -> None:
    broken.execute(USELESS_REPAIR.encode())

    with pytest.raises(psycopg.errors.InternalError_, match="bad magic number"):
        await client.sweep("orders")

    assert broken.execute("select last_value from tries").fetchone() == (2,)


async def test_a_register_that_was_replaced_meanwhile_is_read_anew_without_repair(
    client: AsyncHoldfast, broken: psycopg.Connection[Any]
) -> None:
    said = 'bad magic number in sequence "cursor_1": 00000000'
    replaced = BROKEN.replace(said, "could not open relation with OID 7").replace("from mended", "from tries")
    broken.execute(replaced.encode())

    assert await client.sweep("orders") == 42

    assert broken.execute("select last_value from mended").fetchone() == (1,)


async def test_a_register_that_another_replaces_after_the_repair_is_read_anew_too(
    client: AsyncHoldfast, broken: psycopg.Connection[Any]
) -> None:
    said = "'bad magic number in sequence \"cursor_1\": 00000000'"
    replaced = "'could not open relation with OID 7'"
    both = f"case (select last_value from tries) when 1 then {said} else {replaced} end"
    broken.execute(BROKEN.replace(said, both).replace("from mended) = 1", "from tries) < 3").encode())

    assert await client.sweep("orders") == 42

    assert broken.execute("select last_value from tries").fetchone() == (3,)


async def test_who_may_not_repair_sees_the_first_error(
    client: AsyncHoldfast, broken: psycopg.Connection[Any]
) -> None:
    broken.execute(REPAIR.replace("return 1;", "raise insufficient_privilege; return 1;").encode())

    with pytest.raises(psycopg.errors.InternalError_, match="bad magic number"):
        await client.sweep("orders")


async def test_nothing_is_repeated_on_a_connection_of_the_callers(
    bind: Bind, broken: psycopg.Connection[Any]
) -> None:
    client, _ = await bind()

    with pytest.raises(psycopg.errors.InternalError_, match="bad magic number"):
        await client.sweep("orders")

    assert broken.execute("select last_value from tries").fetchone() == (1,)
