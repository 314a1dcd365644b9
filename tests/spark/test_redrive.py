"""Redrive: dead letters, filtered, repaired and sent back.

1. What is selected goes back with what the repair says, and keeps key, line, priority and all else.
2. Each goes once: run again, killed in the middle, or while somebody else takes dead letters away.
3. Those of one line go back in their order.
4. What cannot be sent back stays dead: it fails the run before anything is sent, or a quarantine lists it.
5. A dry run says what would change and what would be refused, and leaves nothing behind.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from pyspark.sql import SparkSession

from holdfast.client import InvalidDeadLetterError, NotAQueueError, QueueNotFoundError
from holdfast.spark.options import Secret
from holdfast.spark.pipelines import redrive as pipeline
from holdfast.spark.pipelines._needs import Ground, check_needs
from holdfast.spark.pipelines._pace import Pace
from holdfast.spark.pipelines._pipeline import PipelineError, Run
from holdfast.spark.pipelines._repairs import Sender
from holdfast.spark.pipelines.redrive import Redrive
from holdfast.spark.transforms.redrive import RepairError
from tests.engine.engine import Engine, payloads
from tests.spark.conftest import STARTING, Start
from tests.spark.letters import bury
from tests.spark.runs import Screen, a_run
from tests.waiting import eventually

pytestmark = pytest.mark.verify


@pytest.fixture
def run(spark: SparkSession, database_url: str) -> Run:
    return a_run(spark, database_url)


@pytest.fixture
def mortal(engine: Engine) -> Engine:
    """A queue `q` whose messages die at the first failure."""
    engine.create("q", max_deliveries=1)
    return engine


def redriven(run: Run, **parameters: Any) -> dict[str, Any]:
    pipeline = Redrive(**{"queue": "q", **parameters})
    pipeline.check()
    return dict(pipeline.run(run))


def dead(engine: Engine) -> int:
    return int(engine.look("select count(*) from holdfast.browse('q', 'dead', 10000)"))


def staged(engine: Engine) -> int:
    return int(engine.look("select count(*) from holdfast.staged"))


def test_the_selected_go_back_repaired_and_keep_all_else(mortal: Engine, run: Run) -> None:
    for n in range(6):
        who = {"country": "Germny" if n % 2 else "FR", "n": n}
        mortal.send(who, key=f"k{n}", tag="t", priority=n, headers={"h": n})
    bury(mortal, error="no such country")

    figures = redriven(
        run,
        where="last_error like '%country%' and payload ->> 'country' = 'Germny'",
        assignments=["payload.country = 'DE'", "headers.was = payload:country", "tag = 'mended'"],
    )

    rows = mortal.claim(10)
    assert (figures["found"], figures["sent"], figures["refused"], dead(mortal)) == (3, 3, 0, 3)
    assert sorted((row["payload"]["n"], row["priority"], row["key"]) for row in rows) == [
        (1, 1, "k1"),
        (3, 3, "k3"),
        (5, 5, "k5"),
    ]
    assert {row["payload"]["country"] for row in rows} == {"DE"}
    assert [row["headers"]["was"] for row in rows] == ["Germny"] * 3
    assert sorted(rows[0]["origin"]["repaired"]) == ["headers", "payload", "tag"]
    assert staged(mortal) == 0


def test_a_header_is_set_where_there_was_none_and_removed_where_nothing_is_lost(
    mortal: Engine, run: Run, tmp_path: Path
) -> None:
    many_digits = int("9" * 1001)
    mortal.send({"n": 1})
    mortal.send({"n": 2}, headers={"old": 1, "big": many_digits})
    bury(mortal)

    figures = redriven(
        run, assignments=["headers.x = 7"], removed=["headers.old"], quarantine=str(tmp_path / "aside")
    )

    assert (figures["sent"], figures["refused"], dead(mortal)) == (1, 1, 1)
    assert [row["headers"] for row in mortal.claim(10)] == [{"x": 7}]
    ((kept,),) = mortal.conn.execute("select headers::text from holdfast.browse('q', 'dead', 10)")
    assert str(many_digits) in kept
    (listed,) = run.spark.read.parquet(str(tmp_path / "aside")).collect()
    assert listed.reason.startswith("headers: Spark cannot read this JSON")


def test_without_a_repair_it_is_a_redrive_and_the_same_again_does_nothing(mortal: Engine, run: Run) -> None:
    mortal.create("other")
    mortal.send_numbers(2500)
    bury(mortal)

    first, again = redriven(run, target="other"), redriven(run, target="other")

    assert (first["found"], first["sent"], again["found"], again["sent"]) == (2500, 2500, 0, 0)
    assert payloads(mortal.claim(5000, queue="other")) == list(range(2500))


def test_what_dies_again_may_go_again(mortal: Engine, run: Run) -> None:
    mortal.send_numbers(3)
    bury(mortal)
    redriven(run)
    bury(mortal)
    mortal.send_numbers(1)
    bury(mortal)

    fresh = redriven(run, where="not origin ? 'redrives'")

    assert (fresh["sent"], dead(mortal)) == (1, 3)
    assert redriven(run)["sent"] == 3


def test_messages_of_a_line_go_back_in_their_order(engine: Engine, run: Run) -> None:
    engine.create("q", max_deliveries=1, ordering="key")
    for n in range(300):
        engine.send({"n": n}, ordering_key=f"line {n % 7}", priority=n % 3)
    bury(engine)

    figures = redriven(run, assignments=["payload.mended = true"], rate=1e9)

    assert figures["sent"] == 300
    lines: dict[str, list[int]] = {}
    while rows := engine.claim(100):
        for row in rows:
            lines.setdefault(row["ordering_key"], []).append(row["payload"]["n"])
        engine.settle("ack", rows[0]["token"])
    assert lines == {f"line {k}": list(range(k, 300, 7)) for k in range(7)}


def test_a_function_repairs_leaves_out_and_refuses(mortal: Engine, run: Run, tmp_path: Path) -> None:
    mortal.send_numbers(10, priority=7, key=None)
    bury(mortal)
    aside = tmp_path / "aside"

    figures = redriven(run, function="tests.spark.letters:tagged", quarantine=str(aside))
    (listed,) = run.spark.read.parquet(str(aside)).collect()

    rows = mortal.claim(10)
    assert (figures["found"], figures["sent"], figures["refused"]) == (5, 4, 1)
    assert (sorted(payloads(rows)), dead(mortal)) == ([0, 2, 6, 8], 6)
    assert {(row["tag"], row["priority"], row["key"]) for row in rows} == {("boom!", 7, None)}
    assert {tuple(row["origin"]["repaired"]) for row in rows} == {("tag",)}
    assert (listed.payload, listed.reason) == ("4", "beyond help")


def test_a_function_that_returns_no_dead_letters_is_refused(mortal: Engine, run: Run) -> None:
    mortal.send_numbers(3)
    bury(mortal)

    with pytest.raises(Exception, match="two rows have the same id"):
        redriven(run, function="tests.spark.letters:doubled")
    with pytest.raises(PipelineError, match=r"3 of 3 .*id: got nothing"):
        redriven(run, function="tests.spark.letters:nameless")

    assert (dead(mortal), staged(mortal)) == (3, 0)


def test_a_repair_that_the_queue_refuses_fails_before_anything_is_sent(
    mortal: Engine, run: Run, tmp_path: Path
) -> None:
    mortal.send_numbers(20)
    bury(mortal)
    repair = {"assignments": ["priority = cast(payload as int)"]}

    with pytest.raises(PipelineError) as failed:
        redriven(run, **repair)
    before = dead(mortal)
    figures = redriven(run, **repair, quarantine=str(tmp_path / "aside"))
    listed = run.spark.read.parquet(str(tmp_path / "aside")).orderBy("id").collect()

    assert str(failed.value).startswith("9 of 20 dead letters cannot be sent back, so none was: ")
    assert "priority is out of range: Got 11. [QH204]" in str(failed.value)
    assert (before, figures["sent"], figures["refused"], dead(mortal)) == (20, 11, 9, 9)
    assert [row.priority for row in listed] == list(range(11, 20))
    assert listed[0].reason == "priority is out of range: Got 11. [QH204]"
    assert staged(mortal) == 0


def test_a_dry_run_shows_what_would_change_and_what_be_refused(
    spark: SparkSession, database_url: str, mortal: Engine
) -> None:
    for n in range(20):
        mortal.send({"n": n}, tag="t")
    bury(mortal)
    run = a_run(spark, database_url, dry_run=True)

    figures = redriven(run, assignments=["priority = payload:n::int", "payload.n = 7", "tag = 't'"])

    assert (figures["found"], figures["would_be_sent"], figures["refused"]) == (20, 11, 9)
    assert figures["changed"] == {"payload": 19, "priority": 19}
    first = {name: figures["sample"][0][name] for name in ("column", "before", "after")}
    assert first == {"column": "payload", "before": '{"n":0}', "after": '{"n":7}'}
    assert "priority is out of range" in figures["reasons"][0]
    assert (dead(mortal), staged(mortal)) == (20, 0)


def test_dead_letters_that_others_take_meanwhile_are_left_to_them(
    mortal: Engine, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal.send_numbers(9)
    bury(mortal)
    mortal.send("new", key="k")
    real = Sender.send
    steps = iter(range(100))

    def beside(sender: Sender, *place: int) -> Any:
        if next(steps) == 1:
            acked = mortal.claim_one(queue="q.dlq")
            mortal.settle("ack", acked["token"], queue="q.dlq")
            held.append(mortal.claim_one(queue="q.dlq"))
        return real(sender, *place)

    held: list[Any] = []
    monkeypatch.setattr(Sender, "send", beside)
    monkeypatch.setattr(Pace, "size", lambda pace, largest: 3)
    where = ["key = if(payload::int = 8, 'k', null)"]
    figures = redriven(run, assignments=where)
    mortal.settle("release", held[0]["token"], queue="q.dlq")

    assert {name: figures[name] for name in ("found", "sent", "gone", "held", "key")} == {
        "found": 9,
        "sent": 6,
        "gone": 1,
        "held": 1,
        "key": 1,
    }
    assert payloads(mortal.claim(20)) == ["new", 0, 1, 2, 5, 6, 7]
    assert sorted(payloads(mortal.claim(20, queue="q.dlq"))) == [4, 8]


def test_killed_in_the_middle_and_run_again_nothing_is_lost_and_nothing_goes_twice(
    mortal: Engine, run: Run, start: Start
) -> None:
    count = 600
    messages = Jsonb([{"payload": {"n": n}, "priority": n % 2} for n in range(count)])
    mortal.value("send_many", queue="q", messages=messages)
    assert bury(mortal) == count
    repair = "payload.times = coalesce(payload:times::int, 0) + 1"

    killed = start("command", "redrive", "q", "--set", repair, "--rate", "60")
    eventually(lambda: mortal.stats()["depth"] > 0, what="some are back", timeout=STARTING)
    acked = mortal.claim(20, queue="q.dlq")
    mortal.settle("ack", acked[0]["token"], queue="q.dlq")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    before = mortal.stats()["depth"]
    figures = redriven(run, assignments=[repair])

    rows = mortal.claim(10_000)
    assert 0 < before < count - 20
    assert (figures["sent"], dead(mortal)) == (count - 20 - before, 0)
    assert Counter(row["payload"]["n"] for row in [*rows, *acked]) == Counter(range(count))
    assert {row["payload"]["times"] for row in rows} == {1}


def test_it_goes_no_faster_than_it_should_and_tells_how_far_it_is(
    spark: SparkSession, database_url: str, mortal: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    mortal.send_numbers(25)
    bury(mortal)
    screen = Screen()
    pauses: list[float] = []
    run = a_run(spark, database_url, screen=screen)
    monkeypatch.setattr(run, "pause", pauses.append)
    # A clock that stands still: the work itself takes no time, however busy the machine is.
    monkeypatch.setattr(pipeline, "Pace", lambda rate: Pace(rate, lambda: 100.0))

    redriven(run, rate=10)

    assert screen.steps == ["reading the dead letters of q", "staging and checking", "sending to q"]
    assert screen.advances == [(10, 25), (20, 25), (25, 25)]
    assert pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"function": "a:b", "assignments": ["tag = 1"]}, "got --function and --set or --unset"),
        ({"function": "nowhere:f"}, "there is no module nowhere"),
        ({"removed": ["payload"]}, "--unset: got payload; expected a field"),
        ({"removed": ["payload.a"], "assignments": ["payload.a = 1"]}, "expected each place once"),
        ({"assignments": ["colour = 1"]}, "--set: got colour"),
        ({"rate": 0.0}, "--rate: got 0"),
    ],
)
def test_parameters_that_make_no_sense_are_refused_without_spark(
    parameters: dict[str, Any], told: str
) -> None:
    with pytest.raises((PipelineError, RepairError)) as refused:
        Redrive(**{"queue": "q", **parameters}).check()

    assert told in str(refused.value)


def test_what_is_not_there_is_named(mortal: Engine, run: Run) -> None:
    mortal.create("off", dead_letter=False)
    mortal.send_numbers(1)
    bury(mortal)

    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        redriven(run, assignments=["tag = nothing"])
    with pytest.raises(Exception, match="column \"nothing\" does not exist"):
        redriven(run, where="nothing")
    with pytest.raises(Exception, match="nowhere"):
        redriven(run, queue="nowhere")
    assert redriven(run, queue="off")["found"] == 0
    with pytest.raises(Exception, match="target queue \"nowhere\" does not exist"):
        redriven(run, target="nowhere")


def test_what_it_needs_is_looked_for_before_spark_starts(mortal: Engine, database_url: str) -> None:
    mortal.create("off", dead_letter=False)
    mortal.create("log", kind="log")
    ground = Ground(Secret(database_url))

    check_needs(Redrive(queue="q").needs, ground)
    for redrive, refusal in (
        (Redrive(queue="nowhere"), QueueNotFoundError),
        (Redrive(queue="off"), InvalidDeadLetterError),
        (Redrive(queue="q", target="nowhere"), InvalidDeadLetterError),
        (Redrive(queue="q", target="log"), NotAQueueError),
    ):
        with pytest.raises(refusal):
            check_needs(redrive.needs, ground)
