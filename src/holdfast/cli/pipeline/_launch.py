"""How every pipeline is started: the options they share, Spark, the bar, the history, and the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from holdfast.spark.pipelines._pipeline import Pipeline

from holdfast.cli._command import Invocation

DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]
Master: TypeAlias = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="The cluster; else this machine, local[*].")
]
Conf: TypeAlias = Annotated[
    list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
]


def launch(
    invocation: Invocation,
    pipeline: Pipeline,
    *,
    dry_run: bool,
    master: str | None,
    conf: list[str] | None,
) -> None:
    """Run a pipeline with Spark, and print its figures."""
    raise NotImplementedError
