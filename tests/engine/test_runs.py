"""Runs of pipelines: the history, and who may run beside whom.

1. A run is running until it ends, as done, failed or interrupted; an end is final.
2. A run that does not report is lost after a minute; after ten seconds, if its connection is closed.
3. Of runs with one exclusive key, one runs at a time; a lost one gives way, and learns of it.
4. Nobody reports or ends the run of another user.
5. The history stays short, and a run that is under way stays in it.
6. Writes are found by how their names begin.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.engine.conftest import Open
from tests.engine.engine import T0, Engine
from tests.waiting import eventually


def begin(engine: Engine, pipeline: str = "load", **options: Any) -> int:
    return int(engine.value("begin_run", pipeline=pipeline, **options))


def states(engine: Engine, pipeline: str | None = None) -> list[str]:
    return [row["state"] for row in engine.rows("runs", pipeline=pipeline)]


def later(engine: Engine, **span: float) -> None:
    engine.conn.execute("select holdfast.set_clock(%s)", [T0 + timedelta(**span)])


def test_a_run_shows_what_it_was_told_how_far_it_is_and_how_it_ended(engine: Engine) -> None:
    run = begin(engine, parameters={"to": "orders"})
    reported = engine.value("report_run", run_id=run, step="sending", done=4, total=10)
    (under_way,) = engine.rows("runs")
    later(engine, seconds=5)
    ended = engine.value("end_run", run_id=run, state="done", figures={"sent": 10})
    (over,) = engine.rows("runs", pipeline="load")

    assert (reported, ended) == (True, True)
    assert (under_way["state"], under_way["ended_at"]) == ("running", None)
    assert (under_way["step"], under_way["done"], under_way["total"]) == ("sending", 4, 10)
    assert (over["id"], over["state"], over["parameters"], over["figures"]) == (
        run,
        "done",
        {"to": "orders"},
        {"sent": 10},
    )
    assert (over["started_at"], over["ended_at"]) == (T0, T0 + timedelta(seconds=5))


def test_an_end_is_final(engine: Engine) -> None:
    run = begin(engine)
    engine.value("end_run", run_id=run, state="failed", error="no file")

    again = engine.value("end_run", run_id=run, state="done")
    reported = engine.value("report_run", run_id=run)
    (row,) = engine.rows("runs")

    assert (again, reported, row["state"], row["error"]) == (False, False, "failed", "no file")


def test_runs_are_listed_newest_first_and_by_pipeline(engine: Engine) -> None:
    first, other, last = begin(engine), begin(engine, "replay"), begin(engine)

    assert [row["id"] for row in engine.rows("runs")] == [last, other, first]
    assert [row["id"] for row in engine.rows("runs", pipeline="load", limit=1)] == [last]


def test_a_run_that_does_not_report_for_a_minute_is_lost_until_it_reports(engine: Engine) -> None:
    run = begin(engine)
    later(engine, seconds=60)
    patient = states(engine)
    later(engine, seconds=61)
    lost = states(engine)
    reported = engine.value("report_run", run_id=run)

    assert (patient, lost, reported, states(engine)) == (["running"], ["lost"], True, ["running"])


def test_a_run_whose_connection_is_closed_is_lost_after_ten_seconds(
    engine: Engine, open_engine: Open
) -> None:
    theirs = open_engine()
    begin(theirs)
    theirs.conn.close()
    at_once = states(engine)
    later(engine, seconds=11)

    assert at_once == ["running"]
    eventually(lambda: states(engine) == ["lost"], what="lost")


def test_a_second_run_with_the_same_exclusive_key_is_refused(engine: Engine) -> None:
    first = begin(engine, exclusive="orders")

    with pytest.raises(psycopg.Error) as refused:
        begin(engine, "archive", exclusive="orders")
    begin(engine, exclusive="invoices")
    engine.value("end_run", run_id=first, state="interrupted")
    begin(engine, exclusive="orders")

    assert refused.value.sqlstate == "QH801"
    assert f"Run {first} of load" in (refused.value.diag.message_detail or "")


def test_a_lost_run_gives_way_and_learns_of_it(engine: Engine) -> None:
    first = begin(engine, exclusive="orders")
    later(engine, minutes=2)

    second = begin(engine, exclusive="orders")
    reported = engine.value("report_run", run_id=first)
    ended = engine.value("end_run", run_id=first, state="done")

    assert second != first
    assert (reported, ended) == (False, False)
    assert states(engine) == ["running", "lost"]


def test_nobody_ends_or_reports_the_run_of_another_user(engine: Engine) -> None:
    run = begin(engine)
    with engine.conn.transaction(force_rollback=True):
        engine.conn.execute("create role stranger login in role holdfast_producer")
        engine.conn.execute("set local session authorization stranger")
        reported = engine.value("report_run", run_id=run)
        ended = engine.value("end_run", run_id=run, state="done")

    assert (reported, ended, states(engine)) == (False, False, ["running"])


def test_the_last_thousand_runs_of_a_pipeline_are_kept_and_those_under_way(engine: Engine) -> None:
    oldest = begin(engine)
    for _ in range(3):
        engine.value("end_run", run_id=begin(engine), state="done")
    elsewhere = begin(engine, "replay")
    engine.conn.execute(
        "insert into holdfast.pipeline_run (pipeline, parameters, state, started_by, backend, started_at,"
        " seen_at)"
        " select 'load', '{}', 'done', 'me', 0, %s, %s from generate_series(1, 1000)",
        [T0, T0],
    )

    newest = begin(engine)
    kept = [row["id"] for row in engine.rows("runs", pipeline="load", limit=10_000)]

    assert (len(kept), kept[0], kept[-1]) == (1002, newest, oldest)
    assert [row["id"] for row in engine.rows("runs", pipeline="replay")] == [elsewhere]


def test_runs_that_nobody_heard_of_for_ninety_days_go(engine: Engine) -> None:
    old = begin(engine)
    engine.value("end_run", run_id=begin(engine, "replay"), state="done")
    long_running = begin(engine)
    later(engine, days=80)
    engine.value("report_run", run_id=long_running)
    later(engine, days=91)

    new = begin(engine)

    assert [row["id"] for row in engine.rows("runs")] == [new, long_running]
    assert old not in {new, long_running}


def test_texts_that_are_too_long_are_cut_off(engine: Engine) -> None:
    run = begin(engine)
    engine.value("report_run", run_id=run, step="s" * 2000)
    engine.value("end_run", run_id=run, state="failed", error="e" * 20_000)
    (row,) = engine.rows("runs")

    assert (len(row["step"]), len(row["error"])) == (1000, 10_000)


def test_parameters_and_figures_have_a_limit(engine: Engine) -> None:
    with pytest.raises(psycopg.Error) as refused:
        begin(engine, parameters=Jsonb({"text": "x" * 1_048_577}))

    assert refused.value.sqlstate == "QH802"


def test_writes_are_found_by_how_their_names_begin(queue: Engine) -> None:
    for name in ("load-1/000000", "load-1/000001", "load-2/000000", "load_1/0"):
        queue.row("send_staged", queue="q", write_id=name, stages=[], messages=0)

    found = [row["write_id"] for row in queue.rows("writes", queue="q", prefix="load-1/")]
    page = queue.rows("writes", queue="q", prefix="load-1/", limit=1, after="load-1/000000")

    assert found == ["load-1/000000", "load-1/000001"]
    assert [(row["write_id"], row["messages"], row["sent_at"]) for row in page] == [("load-1/000001", 0, T0)]
