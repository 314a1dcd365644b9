"""The parameters of the pipeline stream: what contradicts is refused, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.spark.pipelines._needs import Fills, Reads, Sends
from holdfast.spark.pipelines._pipeline import PipelineError
from holdfast.spark.pipelines.stream import WAITING, Stream
from tests.engine.engine import Engine

ROOT = Path(__file__).parents[2]


def a_stream(**parameters: Any) -> Stream:
    return Stream(**{"source": "q", "checkpoint": "/data/c", "to": "out", **parameters})


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({"to": None}, "got no target; expected one of --to, --to-table"),
        ({"to_table": "t"}, "got --to and --to-table; expected one of --to, --to-table"),
        ({"sql": "select 1", "function": "a:b"}, "got --sql and --function; expected one of them, or none"),
        ({"once": True, "trigger": 1.0}, "got --once and --trigger; expected one of them"),
        ({"output_mode": "all"}, "--output-mode: got all; expected append, update, complete"),
        ({"key": ["a"]}, "--key: got it without --to-table; expected a table"),
        ({"options": {"Queue": "p"}}, "--option: got queue, which has an option of its own, or none"),
        ({"options": {"waite": "1"}}, "option waite: got an unknown option; .* did you mean wait?"),
        ({"mode": "peek"}, "option mode: got 'peek'; expected one of consume, tail"),
        ({"mode": "tail", "lease": 60.0}, "option lease: got '60.0 s'; expected it with the mode consume"),
        ({"function": "json:nothing"}, "json:nothing: there is no nothing in json"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        a_stream(**parameters).check()


def test_parameters_become_options_of_the_stream() -> None:
    stream = a_stream(max_messages=10, lease=90.0, payload_schema="a INT", options={"wait": "2 s"})
    stream.check()

    assert stream.read_options() == {
        "mode": "consume",
        "wait": "2 s",
        "max_messages": "10",
        "lease": "90.0 s",
        "payload_schema": "a INT",
    }


def test_two_runs_with_one_checkpoint_exclude_each_other() -> None:
    assert a_stream().exclusive == a_stream(to="elsewhere", checkpoint="/data/./c").exclusive
    assert a_stream().exclusive != a_stream(checkpoint="/b").exclusive
    assert a_stream(checkpoint="s3a://b/c").exclusive == "stream s3a://b/c"


def test_it_needs_the_queues_that_it_reads_and_sends_to() -> None:
    archive = a_stream(mode="tail", options={"state": "archive"}, to="/data/lake")

    assert a_stream().needs == [Reads("q", "ready"), Sends("out")]
    assert a_stream(mode="tail", to=None, to_table="t").needs == [Reads("q", "log"), Fills("t")]
    assert archive.needs == [Reads("q", "archive")]


def test_messages_that_wait_in_their_line_are_still_to_come(engine: Engine) -> None:
    engine.create("q", ordering="key")
    engine.send_numbers(5, ordering_key="a")
    assert len(engine.claim(5)) == 1

    assert engine.stats()["ready"] == 0
    assert engine.look(WAITING, "q") == 4


def test_the_page_shows_the_example_that_is_tested() -> None:
    example = (ROOT / "examples" / "streams" / "spending.py").read_text()
    shown = example[example.index("from collections.abc") :]

    assert f"```python\n{shown}```" in (ROOT / "docs" / "pipeline-stream.md").read_text()
