"""Uninstalling as docs/operations.md says: nothing of Holdfast is left, and everything else stays."""

from __future__ import annotations

import psycopg

from holdfast.embedded import temporary_postgres
from holdfast.migrate import migrate
from tests.docs.pages import BLOCK, sections, text_of
from tests.fix_folder import fast_folder

LEFT = """
select count(*) from pg_roles where rolname like 'holdfast\\_%'
union all select count(*) from pg_namespace where nspname = 'holdfast'
union all select count(*) from pg_proc where pronamespace not in (select oid from pg_namespace)
"""


def steps() -> list[str]:
    """The statements of the page, in order."""
    return [text for _, text in BLOCK.findall(sections(text_of("operations.md"), 2)["Uninstalling"])]


def test_what_the_page_says_leaves_nothing_behind_and_holdfast_can_come_back() -> None:
    with temporary_postgres(settings={"fsync": "off"}, inside=fast_folder()) as server:
        url = server.ensure_running()
        migrate(url)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("create role worker login")
            connection.execute("grant holdfast_consumer, holdfast_producer to worker")
            connection.execute("create table public.kept ()")
            connection.execute("select holdfast.create_queue('orders'), holdfast.send('orders', '1')")

            for step in steps():
                connection.execute(step.encode())

            assert connection.execute(LEFT).fetchall() == [(0,), (0,), (0,)]
            kept = connection.execute("select to_regrole('worker'), to_regclass('public.kept')").fetchall()
            assert kept == [("worker", "kept")]
        assert migrate(url).changed


def test_the_page_has_both_steps() -> None:
    assert [step.split()[1] for step in steps()] == ["schema", "role"]
