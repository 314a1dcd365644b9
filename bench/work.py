"""The turns that clients take: each makes the step of one session."""

from __future__ import annotations

from collections.abc import Callable

from bench import payload
from bench.contenders.contender import QUEUE, Batch, Session
from bench.crew import Step, Work
from bench.link import column


def send(size: int, *, rollback_share: float = 0) -> Work:
    """A share of what is sent is rolled back, on top."""

    def work(session: Session) -> Step:
        single, many = payload.document(1), payload.documents(size)
        lost = payload.documents(max(1, round(size * rollback_share)))

        def step() -> int:
            if size == 1:
                session.send(single)
            else:
                session.send_batch(many)
            if rollback_share:
                _send_and_roll_back(session, lost)
            return size

        return step

    return work


def claim_ack(size: int) -> Work:
    def work(session: Session) -> Step:
        def step() -> int:
            batch = session.claim(size)
            return session.ack(batch) if batch.ids else 0

        return step

    return work


def claim_next(size: int) -> Work:
    """The first turn claims; every later one settles what the turn before got, and claims again."""

    def work(session: Session) -> Step:
        held = Batch([])

        def step() -> int:
            nonlocal held
            settled = len(held.ids)
            held = session.next(held, size) if held.ids else session.claim(size)
            return settled

        return step

    return work


def claim_nack(size: int, *, nack_share: float, delay_s: float) -> Work:
    def work(session: Session) -> Step:
        def step() -> int:
            batch = session.claim(size)
            nacked = round(len(batch.ids) * nack_share)
            return session.ack_and_nack(batch, nacked, delay_s) if batch.ids else 0

        return step

    return work


def read(size: int) -> Work:
    """Reads a log from its beginning to its end, over and over."""

    def work(session: Session) -> Step:
        place = b"0"

        def step() -> int:
            nonlocal place
            found = column(session.link.call("read", QUEUE.encode(), place, b"%d" % size), 0)
            place = found[-1] if found else b"0"
            return len(found)

        return step

    return work


def call(name: str) -> Work:
    """Calls one of the session's statements; each call counts as one."""

    def work(session: Session) -> Step:
        def step() -> int:
            session.link.call(name, QUEUE.encode())
            return 1

        return step

    return work


def stats(session: Session) -> Step:
    """Asks for the queue's figures; each answer counts as one."""

    def step() -> int:
        session.stats()
        return 1

    return step


def refilled(work: Work, producer: Callable[[], Session], *, batch: int, rollback_share: float = 0) -> Work:
    """`work`, with a producer on a connection of its own that sends as many as were finished.

    The backlog keeps its depth for as long as the run lasts.
    """

    def refilled_work(session: Session) -> Step:
        step, refill = work(session), send(batch, rollback_share=rollback_share)(producer())
        owed = 0

        def refilled_step() -> int:
            nonlocal owed
            finished = step()
            owed += finished
            while owed >= batch:
                owed -= refill()
            return finished

        return refilled_step

    return refilled_work


def _send_and_roll_back(sender: Session, payloads: bytes) -> None:
    sender.link.run("begin")
    sender.send_batch(payloads)
    sender.link.run("rollback")
