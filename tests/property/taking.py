"""The rules of those who take messages by their ids, from a queue whose messages are rows."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import rule

from tests.property.base import consumers
from tests.property.consuming import Consuming
from tests.property.engine import Row, Session
from tests.property.model import MAIN, Hand, Message
from tests.property.observe import Licence
from tests.property.strategies import leases, picked

MOST = 10_000


class Taking(Consuming):
    """take and bury_spent, alone or inside whatever transaction their session has open."""

    @rule(who=consumers, lease=leases, places=st.lists(st.integers(0, 999), min_size=1, max_size=6))
    def take(self, who: str, lease: timedelta | None, places: list[int]) -> None:
        session, hand = self.pair(who)
        if not self._can_claim(hand):
            return
        wanted = picked(sorted({*self.model.view(hand), 7, 2**40 + 99999}), places)
        self._take(session, wanted, lease)
        blocked = any(MAIN in other.claimed_from for other in self.model.others(hand))
        if blocked or hand.open or self.model.queues[MAIN].paused:
            return
        if self._left(hand, wanted):  # the first one after a crash starts the lane over, and takes nothing
            self._take(session, wanted, lease)
        assert not self._left(hand, wanted), "claimable, and not taken"

    def _left(self, hand: Hand, wanted: list[int]) -> list[Message]:
        """What of these could have been had."""
        touched = self.model.touched_by_others(hand)
        return [
            message
            for message in self.model.view(hand).values()
            if message.id in wanted
            and message.id not in touched
            and message.queue == MAIN
            and message.claimable(self.model.now)
        ]

    def _take(self, session: Session, wanted: list[int], lease: timedelta | None) -> list[Row]:
        rows = session.call("take", queue=MAIN, ids=wanted, lease=lease, consumer=session.name)
        assert {row["id"] for row in rows} <= set(wanted), "more than were asked for"
        self.share(MAIN, rows, MOST, lease)
        self.taken(session, MAIN, rows)
        return rows

    @rule(who=consumers)
    def bury_spent(self, who: str) -> None:
        session, hand = self.pair(who)
        if not self._can_claim(hand):
            return
        session.call("bury_spent", queue=MAIN)
        if hand.open:
            hand.claimed_from.add(MAIN)
        self.look(session, Licence(sweep=True))
