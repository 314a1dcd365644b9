"""Pipelines from the command line, as far as they need no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.cli._output import Output
from holdfast.cli.pipeline import _bar
from holdfast.cli.pipeline._bar import Bar
from holdfast.cli.pipeline._figures import tell
from tests.cli.conftest import Run


def test_a_queue_that_is_not_there_is_told_at_once(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")

    answer = run("pipeline", "run", "load", str(tmp_path / "a.json"), "--to", "nowhere")

    assert (answer.code, answer.out) == (1, "")
    assert answer.err.splitlines()[0] == 'Error: queue "nowhere" does not exist [QH101]'
    assert "Hint: Create it with holdfast queue create, or check the spelling." in answer.err


def test_a_file_that_is_not_there_is_told_at_once(run: Run) -> None:
    run("queue", "create", "q")

    answer = run("pipeline", "run", "load", "none.json", "--to", "q")

    assert answer.code == 1
    assert answer.err.startswith("Error: none.json: there is no such file or folder, seen from /")


def test_without_a_terminal_each_step_is_a_line_and_a_long_one_some(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Bar(Output(as_json=False)) as bar:
        bar.step("starting Spark")
        bar.step("sending")
        bar.advance(1, 4)
        monkeypatch.setattr(_bar, "PAUSE", -1.0)
        bar.advance(2, 4)
        bar.step("sending")

    assert capsys.readouterr().err.splitlines() == ["starting Spark …", "sending …", "sending: 2 of 4"]


def test_machines_are_told_nothing_on_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar(Output(as_json=True)) as bar:
        bar.step("starting Spark")
        bar.note("a remark")

    assert capsys.readouterr() == ("", "")


def test_lists_among_the_figures_are_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    figures = {
        "found": 3,
        "refused": 0,
        "reasons": ["no price", "no [red]such[/] country"],
        "errors": [],
        "changed": {"payload": 2},
        "sample": [
            {"id": 11, "column": "payload", "before": '{"cents":"1"}', "after": '{"cents":1}', "x": None},
            {"id": 12, "column": "priority", "before": "1", "after": None},
        ],
        "days": {"orders": {"2030-01-30": 2, "2030-01-31": 1}, "returns": {"2030-01-31": 4}},
    }

    tell(Output(as_json=False), figures)

    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        "found 3",
        "refused 0",
        "errors -",
        'changed {"payload": 2}',
        "",
        "reasons:",
        "no price",
        "no [red]such[/] country",
        "",
        "sample:",
        "id column before after",
        '11 payload {"cents":"1"} {"cents":1}',
        "12 priority 1 -",
        "",
        "days:",
        "orders 2030-01-30 2",
        "orders 2030-01-31 1",
        "returns 2030-01-31 4",
    ]
