"""How far a run is: a bar on stderr; where that is no terminal, a line for each block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Announce = Callable[[str], None]
"""Told what is about to be measured, once per block."""


@contextmanager
def shown_progress(blocks: int) -> Iterator[Announce]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("installing", total=blocks)
        begun = False

        def announce(text: str) -> None:
            nonlocal begun
            progress.update(task, advance=int(begun), description=text)
            if not console.is_terminal:
                console.print(text, highlight=False)
            begun = True

        yield announce
        progress.update(task, completed=blocks, description="done")
