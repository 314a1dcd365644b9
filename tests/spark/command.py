"""The command line with a small Spark, a process to be killed. Arguments: those of `pipeline run`."""

from __future__ import annotations

import sys

from holdfast.cli import app
from tests.spark.conftest import SMALL


def main(*words: str) -> None:
    """Run a pipeline."""
    settings = [word for name, value in SMALL.items() for word in ("--conf", f"{name}={value}")]
    app(["pipeline", "run", *words, "--json", "--master", "local[2]", *settings])


if __name__ == "__main__":
    main(*sys.argv[1:])
