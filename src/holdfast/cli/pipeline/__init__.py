"""holdfast pipeline: Spark jobs over queues. A module for each job, with its options."""

from __future__ import annotations

import typer

app = typer.Typer(help="Spark jobs over queues.", no_args_is_help=True)
run = typer.Typer(help="Run a pipeline.", no_args_is_help=True)
app.add_typer(run, name="run")
