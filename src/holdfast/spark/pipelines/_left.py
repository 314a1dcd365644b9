"""What a run has to leave as it is: told when it is seen and at the end, and in the way of nothing else."""

from __future__ import annotations

from ._pipeline import PipelineError, Run

MOST_TOLD = 3


class Left:
    """Queues of which something was left, and why."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._reasons: dict[str, list[str]] = {}

    def __contains__(self, queue: str) -> bool:
        return queue in self._reasons

    def add(self, queue: str, reason: str) -> None:
        """Leave something of a queue."""
        self._reasons.setdefault(queue, []).append(reason)
        self._run.note(reason)

    def refuse(self) -> None:
        """Let the run fail if something was left; all else is done."""
        reasons = [reason for each in self._reasons.values() for reason in each]
        if not reasons:
            return
        told = "; ".join(reasons[:MOST_TOLD])
        more = len(reasons) - MOST_TOLD
        raise PipelineError(f"not all could be archived: {told}{f'; and {more:,} more' if more > 0 else ''}")
