"""holdfast pipeline list, show, history: which pipelines there are, and what they have done."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

import typer
import typer.main

from holdfast.cli._command import Invocation, command
from holdfast.cli._options import Limit
from holdfast.cli._output import cell, named
from holdfast.client import PipelineRun

from ._bar import counting

SHOWN = 5  # runs of a pipeline that `show` lists
COLUMNS = ("id", "pipeline", "state", "step", "progress", "started_at", "took", "started_by", "outcome")


def register(app: typer.Typer, run: typer.Typer) -> None:
    """Add these commands; what can be run is told by the other group."""

    def jobs() -> dict[str, Any]:
        group: Any = typer.main.get_group(run)
        return dict(group.commands)

    @command(app, "list")
    def list_pipelines(invocation: Invocation) -> None:
        """List the pipelines."""
        found = [{"pipeline": name, "summary": summary(job)} for name, job in jobs().items()]
        invocation.output.records(found, ("pipeline", "summary"), "There are no pipelines.")

    @command(app)
    def show(
        invocation: Invocation,
        name: Annotated[str, typer.Argument(metavar="NAME", help="Which pipeline.")],
    ) -> None:
        """Show a pipeline: what it does, its options, and its last runs."""
        known = jobs()
        if name not in known:
            raise typer.BadParameter(f"there is no pipeline {name}; there are {', '.join(known)}")
        describe(invocation, name, known[name])

    @command(app)
    def history(
        invocation: Invocation,
        pipeline: Annotated[
            str | None, typer.Option("--pipeline", metavar="NAME", help="Only runs of this one.")
        ] = None,
        limit: Limit = 20,
    ) -> None:
        """List runs, the newest first."""
        with invocation.client() as client:
            found = client.runs(pipeline, limit)
        tell(invocation, found)


def describe(invocation: Invocation, name: str, job: Any) -> None:
    """What a pipeline is, from its command; then what it did, from the database."""
    output = invocation.output
    options = [option(parameter) for parameter in job.params if getattr(parameter, "help", None)]
    if not output.as_json:
        output.say(f"{name}: {job.help}\n")
        output.records(options, ("option", "takes", "help"), "")
        output.say("")
    with invocation.client() as client:
        found = client.runs(name, SHOWN)
    if output.as_json:
        description = {"pipeline": name, "summary": summary(job), "help": job.help, "options": options}
        output.document({**description, "last_runs": [str(run.id) for run in found]})
        return
    tell(invocation, found)


def tell(invocation: Invocation, runs: list[PipelineRun]) -> None:
    """Runs: all that is known of them for machines, what fits a line for people."""
    if invocation.output.as_json:
        invocation.output.records(runs, (), "")
        return
    invocation.output.records([line(run) for run in runs], COLUMNS, "There were no runs.")


def line(run: PipelineRun) -> dict[str, Any]:
    """A run as a line of a table."""
    took: timedelta = (run.ended_at or run.seen_at) - run.started_at
    progress = None if run.done is None else counting(run.done, run.total)
    figures = ", ".join(f"{name} {cell(figure)}" for name, figure in (run.figures or {}).items())
    return {**named(run), "progress": progress, "took": took, "outcome": run.error or figures or None}


def summary(job: Any) -> str:
    """The first line of what a command says of itself."""
    return str(job.help).partition("\n")[0]


def option(parameter: Any) -> dict[str, Any]:
    """An option or an argument, as its own help describes it."""
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    is_option = names.startswith("-")
    return {
        "option": names if is_option else parameter.metavar,
        "takes": parameter.metavar if is_option else None,
        "help": parameter.help,
    }
