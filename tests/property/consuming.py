"""The consumers' rules: claim, next, and the verbs that settle."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.property.base import Ground, consumers
from tests.property.engine import Row, Session
from tests.property.model import GRAVE, MAIN, Hand, Message
from tests.property.observe import Licence
from tests.property.strategies import leases, maximums, waits
from tests.waiting import eventually

LEASE_LOST = "QH304"
LOOK_AGAIN = 3.0  # seconds: an index walk may skip what committed late for twenty times its own duration


class Consuming(Ground):
    """Claims and settlements by three consumers, alone or inside whatever transaction they have open."""

    @rule(who=consumers, most=maximums, lease=leases, alone=st.booleans(), dead=st.integers(0, 5))
    def claim(self, who: str, most: int, lease: timedelta | None, alone: bool, dead: int) -> None:
        session, hand = self.pair(who)
        graves = any(m.queue == GRAVE for m in self.model.view(hand).values())
        queue = GRAVE if dead < 2 and graves else MAIN
        if not self._can_claim(hand):
            return
        if self.claim_once(session, queue, most, lease, alone and not hand.open):
            return
        self.insist(session, queue)

    def _can_claim(self, hand: Hand) -> bool:
        overdue = any(m.overdue(self.model.now) for m in self.model.view(hand).values())
        return not (overdue and self.may_make_grave(hand))

    def claim_once(
        self, session: Session, queue: str, most: int, lease: timedelta | None, alone: bool
    ) -> list[Row]:
        rows = session.call("claim", queue=queue, max=most, lease=lease, consumer=session.name, alone=alone)
        self.claimed(session, queue, rows, most, lease)
        return rows

    def claimed(
        self, session: Session, queue: str, rows: list[Row], most: int, lease: timedelta | None
    ) -> None:
        """An answer of claim or next: every message in it was there to be taken."""
        self.share(queue, rows, most, lease)
        self.taken(session, queue, rows)

    def share(self, queue: str, rows: list[Row], most: int, lease: timedelta | None) -> None:
        """What one claimer got: no more than it wanted, under a token and until a deadline of its own."""
        model = self.model
        deadline = model.now + (lease or model.queues[queue].lease)
        assert len(rows) <= most, "more than were asked for"
        assert all(row["queue"] == queue and row["deadline"] == deadline for row in rows)
        if rows:
            (token,) = {row["token"] for row in rows}
            assert (queue, token) not in model.tokens, "every claim has a token of its own"
            model.tokens.append((queue, token))

    def taken(self, session: Session, queue: str, rows: list[Row]) -> None:
        """All that one call handed out."""
        model, hand = self.model, self.model.hands[session.name]
        taken = {row["id"]: row for row in rows}
        assert len(taken) == len(rows), "a message twice"
        assert [row["priority"] for row in rows] == sorted((row["priority"] for row in rows), reverse=True)
        assert not rows or not model.queues[queue].paused, "a paused queue hands out nothing"
        if hand.open:
            hand.claimed_from.add(queue)
        moving = not model.queues[queue].paused
        self.look(session, Licence(sweep=moving, expire=moving, taken=taken))

    @rule(
        who=consumers,
        asked=st.lists(st.tuples(maximums, leases), min_size=1, max_size=4),
        alone=st.booleans(),
        dead=st.integers(0, 5),
    )
    def claim_cohort(
        self, who: str, asked: list[tuple[int, timedelta | None]], alone: bool, dead: int
    ) -> None:
        session, hand = self.pair(who)
        queue = GRAVE if dead == 0 and GRAVE in self.model.queues else MAIN
        if not self._can_claim(hand):
            return
        rows = session.call(
            "claim_cohort",
            queue=queue,
            maxes=[most for most, _ in asked],
            leases=[lease for _, lease in asked],
            consumers=[who] * len(asked),
            alone=alone and not hand.open,
        )
        assert [row["claimer"] for row in rows] == sorted(row["claimer"] for row in rows)
        shares = [[row for row in rows if row["claimer"] == nth] for nth in range(1, len(asked) + 1)]
        for share, (most, lease) in zip(shares, asked, strict=True):
            self.share(queue, share, most, lease)
        assert all(shares[: len(rows)]), "somebody went without, beside others with several"
        self.taken(session, queue, rows)

    def insist(self, session: Session, queue: str) -> None:
        """An empty answer means that there is nothing: no claimable message may stay away for long."""
        hand = self.model.hands[session.name]

        def free() -> list[Message]:
            return [
                m for m in self.model.view(hand).values() if m.queue == queue and m.claimable(self.model.now)
            ]

        blocked = any(queue in other.claimed_from for other in self.model.others(hand))
        if free() and not blocked and not self.model.queues[queue].paused:
            what = f"G9: claimable, but not handed out: {free()}"
            eventually(lambda: self.claim_once(session, queue, 1, None, False), what=what, timeout=LOOK_AGAIN)

    def usable_tokens(self, hand: Hand) -> list[tuple[str, int]]:
        """Tokens seen so far, stale ones too, but for those that would have to wait for somebody's commit."""
        locked = self.model.locked_tokens(hand)
        return [pair for pair in self.model.tokens if pair[1] not in locked]

    def draw_token(self, data: st.DataObject, hand: Hand) -> tuple[str, int]:
        """Mostly a token with something under it, at times a stale or an unknown one, or another's queue.

        What is drawn does not depend on the state: in a replay, real time may make another one.
        """
        known = self.usable_tokens(hand)
        live = [pair for pair in known if self.model.holding(hand, *pair)]
        kind, nth = data.draw(st.integers(0, 9)), data.draw(st.integers(0, 2**63 - 1))
        if not known or kind == 0:
            return MAIN, nth
        chosen = live if live and kind < 8 else known
        queue, token = chosen[nth % len(chosen)]
        return (GRAVE if kind == 9 and GRAVE in self.model.queues else queue), token

    def draw_ids(self, data: st.DataObject, hand: Hand, owned: list[int]) -> list[int] | None:
        """All, some, others' or unheard-of ids, also twice."""
        kind = data.draw(st.sampled_from(("all", "all", "some", "mixed")))
        nths = data.draw(st.lists(st.integers(0, 999), max_size=4))
        if kind == "all":
            return None
        pool = sorted(owned) if kind == "some" else sorted({*self.model.view(hand), 7, 2**40 + 99999})
        return [pool[nth % len(pool)] for nth in nths] if pool else []

    @rule(
        data=st.data(),
        who=consumers,
        verb=st.sampled_from(("ack", "ack", "nack", "nack", "release", "extend")),
        strict=st.booleans(),
    )
    def settle(self, data: st.DataObject, who: str, verb: str, strict: bool) -> None:
        session, hand = self.pair(who)
        queue, token = self.draw_token(data, hand)
        owned = self.model.holding(hand, queue, token)
        ids = self.draw_ids(data, hand, list(owned))
        mine = {i: m for i, m in owned.items() if ids is None or i in ids}
        arguments = self._arguments(data, verb)
        if verb == "nack" and self.may_make_grave(hand):
            return
        if hand.open:
            hand.tokens.add(token)
        try:
            (row,) = session.call(verb, queue=queue, token=token, ids=ids, strict=strict, **arguments)
        except psycopg.Error as error:
            self._lost(session, error, strict=strict, ids=ids, mine=mine)
            return
        self._answered(row, strict=strict, ids=ids, mine=mine)
        self._settled(session, verb, list(mine.values()), arguments)

    def _arguments(self, data: st.DataObject, verb: str) -> dict[str, Any]:
        if verb == "nack":
            delay = data.draw(st.one_of(st.none(), waits))
            return {"delay": delay, "error": data.draw(st.sampled_from((None, "boom", "late")))}
        return {"lease": data.draw(leases)} if verb == "extend" else {}

    def _lost(
        self,
        session: Session,
        error: psycopg.Error,
        *,
        strict: bool,
        ids: list[int] | None,
        mine: dict[int, Message],
    ) -> None:
        """Strict, and not all of it was held: an error, and nothing has happened."""
        assert error.sqlstate == LEASE_LOST, f"{error.sqlstate}: {error}"
        assert strict
        whole = self.model.whole(mine) if ids is None else set(ids) == set(mine)
        assert not mine or not whole, "all of it was held"
        if self.model.hands[session.name].open:
            self.finish(session.name, commit=False)
        else:
            self.look(session)

    def _answered(self, row: Row, *, strict: bool, ids: list[int] | None, mine: dict[int, Message]) -> None:
        """Settled is what was held, skipped is the rest."""
        assert len(row["settled"]) == len(set(row["settled"]))
        assert set(row["settled"]) == set(mine), f"G4: settled {row['settled']}, but held were {sorted(mine)}"
        rest = set(ids or []) - set(mine)
        assert set(row["skipped"]) == rest, f"skipped {row['skipped']}, expected {sorted(rest)}"
        whole = ids is not None or self.model.whole(mine)
        assert not strict or (mine and not rest and whole), "strict, and it did not raise"

    def _settled(self, session: Session, verb: str, mine: list[Message], arguments: dict[str, Any]) -> None:
        """The model's side of a settlement; then look."""
        model, hand, licence = self.model, self.model.hands[session.name], Licence()
        tokens = {(message.queue, message.held.token) for message in mine if message.held}
        for message in mine:
            if verb == "ack":
                model.end(hand, message.id)
            elif verb == "release":
                model.put(hand, replace(message, held=None, due_at=model.now))
            elif verb == "extend":
                self._extended(hand, message, arguments["lease"])
            else:
                back = model.returned(message, failed=True, **arguments)
                model.put(hand, back)
                if model.queues[message.queue].spent(back):
                    self.observer.bury(hand, back, licence)
        for queue, token in tokens if verb != "extend" else ():
            model.settle(hand, queue, token, len(mine))
        self.look(session, licence)

    def _extended(self, hand: Hand, message: Message, lease: timedelta | None) -> None:
        assert message.held is not None
        deadline = self.model.now + (lease or self.model.queues[message.queue].lease)
        self.model.put(hand, replace(message, held=replace(message.held, deadline=deadline)))

    @rule(data=st.data(), who=consumers, most=maximums, lease=leases, strict=st.booleans())
    def next(self, data: st.DataObject, who: str, most: int, lease: timedelta | None, strict: bool) -> None:
        session, hand = self.pair(who)
        queue, token = self.draw_token(data, hand)
        mine = self.model.holding(hand, queue, token)
        if not self._can_claim(hand):
            return
        if hand.open:
            hand.tokens.add(token)
        try:
            rows = session.call(
                "next", queue=queue, token=token, max=most, lease=lease, consumer=who, strict=strict
            )
        except psycopg.Error as error:
            self._lost(session, error, strict=strict, ids=None, mine=mine)
            return
        assert not strict or self.model.whole(mine), "strict, and it did not raise"
        for message_id in mine:
            self.model.end(hand, message_id)
        self.claimed(session, queue, rows, most, lease)
