"""The heartbeat: a thread that extends the claims of the batch that is being worked on."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence

from ._claims import Claim, Claims

log = logging.getLogger("holdfast.spark")

BEATS_PER_LEASE = 3


class Heartbeat:
    """Extends claims until it is given others, is stopped, or its process has lost its parent.

    An orphan must not hold on to messages: whoever started the process is gone, and a new one may be at work.
    """

    def __init__(self, claims: Claims, lease: float) -> None:
        self._claims = claims
        self._pause = lease / BEATS_PER_LEASE
        self._watched: tuple[Claim, ...] = ()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._parent = os.getppid()
        self._thread: threading.Thread | None = None

    @property
    def watched(self) -> tuple[Claim, ...]:
        """What it extends."""
        return self._watched

    def watch(self, claims: Sequence[Claim]) -> None:
        """Extend these from now on, and no others."""
        with self._lock:
            self._watched = tuple(claims)
        if claims and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast heartbeat", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Extend nothing any more. What is held runs out by itself."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(timeout=self._pause)
        self._claims.close()

    def beat(self) -> None:
        """Extend what is watched, once; a claim that holds nothing any more is not watched further."""
        with self._lock:
            watched = self._watched
        for claim in watched:
            held = self._claims.extend(claim)
            if held < claim.messages:
                log.warning("a claim holds %s of its %s messages", held, claim.messages)
            if held == 0:
                self._forget(claim)

    def _forget(self, lost: Claim) -> None:
        with self._lock:
            self._watched = tuple(claim for claim in self._watched if claim is not lost)

    def _run(self) -> None:
        pause = self._pause
        while not self._stopped.wait(pause) and os.getppid() == self._parent:
            try:
                self.beat()
                pause = self._pause
            except Exception as error:
                # The claims may live on: so try again sooner, for as long as anybody wants them.
                log.warning("a heartbeat failed, trying again: %s", type(error).__name__)
                self._claims.close()
                pause = min(1.0, self._pause)
