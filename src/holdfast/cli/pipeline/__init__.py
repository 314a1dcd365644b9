"""holdfast pipeline: Spark jobs over queues.

A job has a module here with its options, which are plain typer, and a class in holdfast.spark.pipelines that
does the work. To add one: copy `function.py`, import the class in the command's function, never at the top
(the command line works without Spark), hand it to launch(), and name the module in JOBS.
"""

from __future__ import annotations

import typer

from . import _history, archive, function, insights, load, redrive, replay, stream
from ._jobs import Jobs

JOBS = (load, archive, insights, redrive, replay, stream, function)

app = typer.Typer(help="Spark jobs over queues.", no_args_is_help=True)
run = typer.Typer(cls=Jobs, help="Run a pipeline.", no_args_is_help=True)
app.add_typer(run, name="run")
_history.register(app, run)

for job in JOBS:
    job.register(run)
