"""How every pipeline is started: the options they share, Spark, the bar, Ctrl-C, and the end."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from holdfast.cli._command import Invocation
from holdfast.cli._ending import ExitCode
from holdfast.cli._output import plain
from holdfast.database import database

from ._bar import Bar
from ._figures import tell

if TYPE_CHECKING:
    from holdfast.spark.pipelines._pipeline import Pipeline
    from holdfast.spark.pipelines._runner import Runner

POLL_SECONDS = 0.1
PATIENCE = 30.0  # seconds for a run that was told to end

DryRun: TypeAlias = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]
Master: TypeAlias = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="The cluster; else this machine, local[*].")
]
Conf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Rate: TypeAlias = Annotated[
    float | None, typer.Option("--rate", metavar="N", help="At most so many messages a second.")
]
Verbose: TypeAlias = Annotated[
    bool, typer.Option("--verbose", help="Show what Spark writes, and errors in full.")
]


def launch(
    invocation: Invocation,
    pipeline: Pipeline,
    *,
    dry_run: bool,
    master: str | None,
    conf: list[str] | None,
    verbose: bool = False,
) -> None:
    """Run a pipeline with Spark, and print its figures."""
    from holdfast.spark.options import Secret
    from holdfast.spark.pipelines._needs import has_local_files
    from holdfast.spark.pipelines._runner import Runner, own_session

    settings = spark_settings(conf or [], verbose=verbose)
    with database(invocation.database_url, create=False) as address, Bar(invocation.output) as bar:
        url = Secret(address)
        session = own_session(pipeline.name, url=url, master=master, settings=settings, quiet=not verbose)
        runner = Runner(
            pipeline,
            url=url,
            session=session,
            display=bar,
            dry_run=dry_run,
            local_files=has_local_files(settings),
        )
        with failures(invocation, url, verbose=verbose):
            attend(runner, bar)
            figures = runner.result()
    show(invocation, pipeline, runner, figures, dry_run=dry_run)


def attend(runner: Runner, bar: Bar) -> None:
    """Stay until a run has ended. Ctrl-C and SIGTERM tell it to; a second one insists, a third gives up."""
    with counted_signals() as signals:
        runner.start()
        waited, told = 0.0, 0
        while not runner.wait(POLL_SECONDS) and len(signals) < 3 and waited < PATIENCE:
            if len(signals) > told:
                bar.note("Ending. Once more breaks it off." if not told else "Breaking off.")
                told = len(signals)
            if told:
                runner.interrupt(now=told > 1)
                waited += POLL_SECONDS * (not runner.ends_by_itself)
        if not runner.wait(0):
            runner.abandon()


@contextmanager
def counted_signals() -> Iterator[list[int]]:
    """The signals that came, in place of an interruption at any point."""
    came: list[int] = []

    def count(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def failures(invocation: Invocation, url: Any, *, verbose: bool) -> Iterator[None]:
    """Turn whatever ended a run into one clear message, without secrets."""
    from holdfast.client import HoldfastError
    from holdfast.spark._database import LostConnectionError
    from holdfast.spark.pipelines._explain import explain

    try:
        yield
    except HoldfastError:
        raise
    except Exception as error:  # a pipeline may be anybody's code
        if verbose:
            invocation.output.note(url.redact("".join(traceback.format_exception(error))))
        problem = explain(error)
        invocation.output.error(
            url.redact(problem.message), code=problem.code, detail=problem.detail, hint=problem.hint
        )
        lost = isinstance(error, LostConnectionError)
        raise typer.Exit(ExitCode.NO_CONNECTION if lost else ExitCode.ERROR) from error


def spark_settings(conf: list[str], *, verbose: bool) -> dict[str, str]:
    """What --conf says."""
    found = {} if verbose else {"spark.log.level": "OFF"}
    for setting in conf:
        name, equals, value = setting.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"--conf {setting}: expected NAME=VALUE with a name of Spark's, spark.…")
        if name == "spark.holdfast.url":
            raise typer.BadParameter("--conf spark.holdfast.url: expected the database in --database-url")
        found[name] = value
    return found


def show(
    invocation: Invocation, pipeline: Pipeline, runner: Runner, figures: Mapping[str, Any], *, dry_run: bool
) -> None:
    """The figures of a run: a table, or one JSON document."""
    output = invocation.output
    if output.as_json:
        known = {"pipeline": pipeline.name, "run": None if dry_run else runner.id, "dry_run": dry_run}
        output.document({**known, "figures": plain(figures)})
    else:
        tell(output, figures)
