"""How far a pipeline is: a line for its step, and one for Spark's tasks, for a person at a terminal."""

from __future__ import annotations

import time
from types import TracebackType

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from holdfast.cli._output import Output

PAUSE = 10.0  # seconds between two lines of one step, where there is no bar
COUNT = TextColumn("{task.fields[count]}", justify="right")


class Bar:
    """Shows steps, what is done of them, and remarks: without a terminal as lines. Quiet for machines."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._progress = Progress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            COUNT,
            TimeElapsedColumn(),
            console=output.aside,
            transient=True,
            disable=output.as_json or not output.aside.is_terminal,
        )
        self._lines = Lines(output)
        self._step: TaskID | None = None
        self._spark: TaskID | None = None

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()

    def step(self, name: str) -> None:
        """A step begins."""
        self._lines.step(name)
        if self._step is not None:
            self._progress.remove_task(self._step)
        self._step = self._progress.add_task(name, total=None, count="")

    def advance(self, done: int, total: int | None) -> None:
        """So much of the step is done."""
        self._lines.advance(done, total)
        if self._step is not None:
            self._progress.update(self._step, completed=done, total=total, count=counting(done, total))

    def note(self, text: str) -> None:
        """A remark, above the lines."""
        if not self._output.as_json:
            self._progress.console.print(Text(text))

    def tasks(self, done: int, total: int) -> None:
        """Tasks of Spark that are done; the line is gone while there are none."""
        if self._spark is None:
            if not total:
                return
            self._spark = self._progress.add_task("Spark", total=total, count="")
        shown = counting(done, total) + " tasks"
        self._progress.update(self._spark, completed=done, total=total, count=shown, visible=total > 0)


class Lines:
    """Steps as lines, where no bar can be seen: in the log of a job, or in a file."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._quiet = output.as_json or output.aside.is_terminal
        self._step = ""
        self._said = 0.0

    def step(self, name: str) -> None:
        """A line for each step."""
        if name != self._step:
            self._step = name
            self._say(f"{name} …")

    def advance(self, done: int, total: int | None) -> None:
        """And one now and then while it lasts."""
        if time.monotonic() - self._said > PAUSE:
            self._say(f"{self._step}: {counting(done, total)}")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        if not self._quiet:
            self._output.note(text)


def counting(done: int, total: int | None) -> str:
    """1,200 of 5,000; or just how many, if nobody knows of how many."""
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
