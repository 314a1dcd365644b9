"""Boot and repair: volatile state that is gone, or somebody else's.

1. Where a lane's boot row is missing, the first claim starts the lane over and hands out nothing; the next
   hands out everything, whatever was in flight.
2. A boot row of another database or of another lease table is as good as none; a restart alone is not.
3. Starting over forgets leases and gaps, so a token from before settles nothing.
4. Messages held by the due path become due; ids that the log has and the sequence lacks are passed over.
5. repair does the same on demand, for one queue or all, with registers made anew.
6. The mark that spares claims a look at the boot row is another one in every database, and after every start
   of the server.
"""

from __future__ import annotations

from datetime import timedelta
from typing import LiteralString

import psycopg
import pytest

from holdfast.embedded import temporary_postgres
from holdfast.migrate import migrate
from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine, ids, payloads
from tests.fix_database import fresh_database
from tests.fix_folder import fast_folder

SECOND = timedelta(seconds=1)

# What a crash does: unlogged tables are empty, registers start again.
CRASH: LiteralString = """
truncate holdfast.lease, holdfast.gap, holdfast.boot, holdfast.tally;
select setval(s.oid, 0, false) from pg_class s
where s.relkind = 'S' and s.relpersistence = 'u' and s.relnamespace = 'holdfast'::regnamespace
  and (select q.seqmin from pg_sequence q where q.seqrelid = s.oid) = 0 and s.relname <> 'clock';
"""


def crash(engine: Engine) -> None:
    engine.conn.execute(CRASH)


def test_after_a_crash_the_first_claim_boots_and_the_next_hands_out_everything(queue: Engine) -> None:
    sent = queue.send_numbers(5)
    queue.claim(3)
    crash(queue)

    first, second = queue.claim(10), queue.claim(10)

    assert first == []
    assert ids(second) == sent
    assert queue.claim(10) == []


def test_after_a_crash_a_token_from_before_settles_nothing(queue: Engine) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]
    crash(queue)
    queue.claim(1)
    queue.claim(1)

    assert queue.settle("ack", token, [sent]) == ([], [sent])
    assert queue.look("select count(*) from holdfast.message") == 1


def test_a_boot_that_rolls_back_did_not_happen(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    queue.claim(1)
    crash(queue)

    with queue.conn.transaction(force_rollback=True):
        queue.claim(1)

    assert queue.claim(10) == []
    assert ids(queue.claim(10)) == sent


def test_messages_held_by_the_due_path_become_due(queue: Engine) -> None:
    queue.send("due", delay="1 s")
    queue.at(T0 + SECOND)
    queue.claim_one()
    crash(queue)

    queue.claim(1)

    assert payloads(queue.claim(1)) == ["due"]


def forget_boot(queue: Engine) -> None:
    """The mark of any other database or start of the server: the register does not vouch for the boot row."""
    queue.conn.execute("select setval(booted, 1) from holdfast.lane")


@pytest.mark.parametrize("column", ["database_oid", "lease_oid"])
def test_a_boot_row_of_another_database_is_as_good_as_none(queue: Engine, column: str) -> None:
    sent = queue.send(1)
    token = queue.claim_one()["token"]
    statement = psycopg.sql.SQL("update holdfast.boot set {} = 1").format(psycopg.sql.Identifier(column))
    queue.conn.execute(statement)
    forget_boot(queue)

    assert queue.claim(1) == []
    assert ids(queue.claim(1)) == [sent]
    assert queue.settle("ack", token, [sent]) == ([], [sent])


def test_a_boot_row_of_another_server_is_as_good_as_none(queue: Engine) -> None:
    sent = queue.send(1)
    queue.claim_one()
    queue.conn.execute("update holdfast.boot set system_identifier = 1, started_at = '2020-01-01'")
    forget_boot(queue)

    assert queue.claim(1) == []
    assert ids(queue.claim(1)) == [sent]


def test_a_clean_restart_keeps_leases(queue: Engine) -> None:
    sent = queue.send_numbers(2)
    token = queue.claim_one()["token"]
    queue.conn.execute("update holdfast.boot set started_at = '2020-01-01'")
    forget_boot(queue)

    assert ids(queue.claim(10)) == sent[1:]
    assert queue.settle("ack", token) == (sent[:1], [])


def test_ids_that_the_log_has_and_the_sequence_lacks_are_not_drawn_again(queue: Engine) -> None:
    sent = queue.send_numbers(3)
    queue.conn.execute("select setval(ids, %s) from holdfast.lane", [sent[0]])
    crash(queue)

    queue.claim(1)

    assert queue.send("new") == sent[2] + 1
    assert len(queue.claim(10)) == 4


def test_only_lanes_that_need_it_start_over(queue: Engine) -> None:
    queue.create("other")
    queue.send(1)
    queue.send(2, queue="other")
    token = queue.claim_one(queue="other")["token"]
    queue.conn.execute(
        "delete from holdfast.boot where lane_id in (select l.id from holdfast.lane l"
        " join holdfast.queue q on q.id = l.queue_id where q.name = 'q')"
    )

    assert queue.claim(1) == []
    assert payloads(queue.claim(1)) == [1]
    assert len(queue.settle("ack", token, queue="other")[0]) == 1


@pytest.mark.parametrize("verb", ["sweep", "maintain"])
def test_upkeep_boots_too(queue: Engine, verb: str) -> None:
    sent = queue.send_numbers(2)
    queue.claim(1)
    crash(queue)

    queue.conn.execute("select holdfast.sweep('q')" if verb == "sweep" else "select holdfast.maintain()")

    assert ids(queue.claim(10)) == sent


def test_maintain_says_how_many_lanes_it_booted(queue: Engine) -> None:
    crash(queue)

    assert [queue.value("maintain")["booted"] for _ in range(2)] == [1, 0]


def test_repair_starts_all_lanes_over(queue: Engine) -> None:
    queue.create("other", priorities=[0, 5])
    sent = queue.send_numbers(2)
    token = queue.claim(2)[0]["token"]

    lanes = queue.value("repair")

    assert lanes == 3
    assert queue.settle("ack", token) == ([], [])
    assert ids(queue.claim(10)) == sent


def test_repair_of_one_queue_leaves_the_others(queue: Engine) -> None:
    queue.create("other")
    queue.send(1)
    queue.send(2, queue="other")
    mine, others = queue.claim_one(), queue.claim_one(queue="other")

    lanes = queue.value("repair", queue="q")

    assert lanes == 1
    assert queue.settle("ack", mine["token"], [mine["id"]]) == ([], [mine["id"]])
    assert queue.settle("ack", others["token"], queue="other") == ([others["id"]], [])


def test_repair_makes_the_registers_anew(queue: Engine) -> None:
    queue.send(1)
    before = queue.look("select cursor::oid from holdfast.lane")

    queue.value("repair")

    after = queue.look("select cursor::oid from holdfast.lane")
    assert before != after
    assert queue.look("select count(*) from pg_class where oid = %s", before) == 0
    assert payloads(queue.claim(1)) == [1]


def test_a_session_goes_on_after_a_repair_in_another(open_engine: Open, queue: Engine) -> None:
    other = open_engine()
    other.send(1)
    other.claim_one()

    queue.value("repair")
    other.send(2)

    assert payloads(other.claim(10)) == [1, 2]


def test_repair_of_a_queue_that_is_not_there_is_an_error(refusing: Engine) -> None:
    with pytest.raises(psycopg.Error) as caught:
        refusing.value("repair", queue="nowhere")

    assert caught.value.sqlstate == "QH101"


def mark(url: str) -> int:
    """The mark of a lane that was booted in this database, now."""
    with psycopg.connect(url) as connection:
        row = connection.execute("select holdfast._boot_mark()").fetchone()
    assert row is not None
    return int(row[0])


def test_the_mark_is_another_one_in_a_copy_of_the_database(
    server_url: str, template_database: str, database_url: str
) -> None:
    with fresh_database(server_url, template_database) as copy:
        assert mark(copy) != mark(database_url)
    assert mark(database_url) == mark(database_url)


def test_the_mark_is_another_one_after_a_restart() -> None:
    with temporary_postgres(settings={"fsync": "off"}, inside=fast_folder()) as server:
        url = server.ensure_running()
        migrate(url)
        before = mark(url)
        server.release()

        assert mark(server.ensure_running()) != before
