"""The Python processes that Spark keeps for its tasks."""

from __future__ import annotations

import gc
import sys

DAEMON = "pyspark.daemon"  # the module that such a process runs

_settled = False


def settle() -> None:
    """Take what is loaded out of the reach of the garbage collector, once in a process of Spark's.

    Such a process collects garbage after each task, and meanwhile the next one waits: 45 ms of CPU, for the
    modules that it has loaded and keeps anyway.
    """
    global _settled
    if not _settled and runs_in_spark():
        gc.freeze()
        _settled = True


def runs_in_spark() -> bool:
    """Whether Spark has started this process."""
    spec = sys.modules["__main__"].__spec__
    return spec is not None and spec.name == DAEMON
