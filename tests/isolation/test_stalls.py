"""Open transactions beside a lane: what they hold must not stop it.

1. A sweep that has to bury does not wait for whoever makes, or changes, the dead-letter queue: the others are
   handed out, the dead message stays leased until it can be buried.
2. A lane that starts over does not wait for who has locked one of its messages (a prepared transaction
   outlives a crash); the audit finds that message once the lock is gone.
3. A message that committed late and waits in a gap is not stranded: the audit leaves it alone.
4. repair() gives way to who settles and then sends: nobody is told of a deadlock.
5. maintain() does not end a session that is dropping a queue, however long that takes.
6. A run of a pipeline begins, whoever else has begun one and not committed: old runs that he removes are his.
"""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.isolation.scene import Scene

OPEN = {
    "a queue of that name is made": "select holdfast.create_queue('mortal.dlq')",
    "it is being configured": """select holdfast.configure_queue('mortal.dlq', '{"lease": "1 min"}')""",
    "it is being dropped": "select holdfast.drop_queue('mortal.dlq')",
}

# Who holds a lane, as it looks to maintain() when the transaction is an hour old.
AN_HOUR_AGO = """
create or replace function holdfast._lane_holders() returns table (
  queue text, priority int, pid int, "user" text, application text, client text, state text,
  since timestamptz, prepared text)
language sql stable as $$
  select 'q', 0, %s, null::text, null::text, null::text, null::text,
         clock_timestamp() - interval '1 hour', null::text
$$
"""


@pytest.mark.parametrize("how", OPEN)
def test_a_claim_that_buries_does_not_wait_for_who_has_the_dead_letter_queue(scene: Scene, how: str) -> None:
    scene.clock()
    worker, admin = scene.session("worker"), scene.session("admin")
    admin.execute("""select holdfast.create_queue('mortal', '{"max_deliveries": 1}')""")
    if not how.startswith("a queue"):
        admin.execute("select holdfast.create_queue('mortal.dlq')")
    sent = [worker.send("mortal") for _ in range(2)]
    worker.claim(1, "mortal")
    scene.journal.expired(sent[:1])
    scene.clock("1 h")
    admin.begin().execute(OPEN[how])

    taken = worker.take(5, "mortal")
    admin.rollback()
    scene.clock("2 h")
    worker.sweep("mortal")

    assert taken == sent[1:]
    dead = "select origin->>'id' from holdfast.browse('mortal', 'dead')"
    assert {int(id) for (id,) in worker.execute(dead)} == set(sent)
    scene.journal.live.clear()


@pytest.mark.parametrize("lapse_is_failure", [True, False])
def test_a_sweep_knows_by_the_budget_of_the_queue_whom_it_has_to_bury(
    scene: Scene, lapse_is_failure: bool
) -> None:
    scene.clock()
    worker, admin = scene.session("worker"), scene.session("admin")
    config = {"max_deliveries": 1, "budget": "failures", "lapse_is_failure": lapse_is_failure}
    admin.execute("select holdfast.create_queue('mortal', %s)", [Jsonb(config)])
    admin.execute("select holdfast.create_queue('mortal.dlq')")
    sent = worker.send("mortal")
    worker.claim(1, "mortal")
    scene.journal.expired([sent])
    scene.clock("1 h")
    admin.begin().execute(OPEN["it is being configured"])

    taken = worker.start(lambda: worker.take(5, "mortal")).result()
    admin.rollback()

    # Dead, it stays leased until it can be buried; alive, it does not wait for the dead-letter queue.
    assert taken == ([] if lapse_is_failure else [sent])
    held = worker.execute("select id from holdfast.holders('mortal', %s)", [[sent]])
    assert held == [(sent,)]
    scene.journal.live.clear()


def test_a_lane_that_starts_over_does_not_wait_for_who_has_locked_a_message(scene: Scene) -> None:
    worker, settler = scene.session("worker"), scene.session("settler")
    retried, other = worker.send(), worker.send()
    worker.nack(worker.claim(1)[0].token, delay="0 s")
    worker.claim(1)
    settler.begin().execute("select from holdfast.message where id = %s for update", [retried])
    scene.crash()

    taken = [id for _ in range(3) for id in worker.take()]
    settler.rollback()
    found = sum(worker.value("select (holdfast.maintain()->>'found')::int") for _ in range(3))

    assert taken == [other]
    assert found == 1
    assert worker.take() == [retried]


def test_the_audit_leaves_a_late_message_in_its_gap(scene: Scene) -> None:
    late, worker = scene.session("late"), scene.session("worker")
    first = late.begin().send()
    second = worker.send()
    taken = [id for _ in range(2) for id in worker.take()]
    late.commit()

    found = worker.value("select (holdfast.maintain()->>'found')::int")

    assert taken == [second]
    assert found == 0
    assert scene.gaps() == [(first, first)]


def test_repair_gives_way_to_who_settles_and_sends(scene: Scene) -> None:
    worker, admin = scene.session("worker"), scene.session("admin")
    worker.send()
    token = worker.claim()[0].token
    worker.begin().ack(token)
    repairing = admin.start(lambda: admin.value("select holdfast.repair('q')")).blocked_by(worker)

    sent = worker.send()
    worker.commit()

    assert repairing.result() == 1
    assert scene.drain() == [sent]


def test_repair_does_not_wait_for_who_only_sends(scene: Scene) -> None:
    sender, admin = scene.session("sender").begin(), scene.session("admin")
    sent = sender.send()
    admin.execute("set lock_timeout = '3s'")

    lanes = admin.value("select holdfast.repair('q')")
    sender.commit()

    assert lanes == 1
    assert scene.drain() == [sent]


def test_maintain_does_not_end_who_is_dropping_a_queue(scene: Scene) -> None:
    admin, keeper = scene.session("admin"), scene.session("keeper")
    admin.begin().execute("select holdfast.drop_queue('q')")
    keeper.execute(AN_HOUR_AGO % admin.connection.info.backend_pid)

    ended = keeper.value("select holdfast.maintain()->>'holders_ended'")
    admin.rollback()

    assert ended == "0"


def test_a_run_begins_beside_one_that_has_begun_and_is_open(scene: Scene) -> None:
    one, other = scene.sessions("pipeline", 2)
    scene.watcher.execute(
        """insert into holdfast.pipeline_run
             (pipeline, parameters, started_by, backend, started_at, seen_at, state, ended_at)
           select p, '{}', 'x', 1, now() - '100 days'::interval, now() - '100 days'::interval, 'done', now()
           from generate_series(1, 1100), unnest('{load,archive}'::text[]) p"""
    )
    one.begin().execute("select holdfast.begin_run('load')")

    began = other.start(lambda: other.value("select holdfast.begin_run('archive')")).result()
    one.commit()

    assert [run for (run,) in other.execute("select id from holdfast.runs('archive', 1)")] == [began]
    left = scene.watcher.value("select count(*) from holdfast.pipeline_run where state = 'done'")
    assert left < 2 * 1100
