"""The administrator's rules: configuration, dead letters, sweeping, maintenance, crashes; and the reports."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.property.base import Ground, consumers
from tests.property.engine import Row
from tests.property.model import GRAVE, MAIN, Message
from tests.property.observe import Licence, same_content, same_origin
from tests.property.strategies import configurations, nth, nths, picked
from tests.waiting import eventually

NO_GRAVE = "QH105"
STATES = ("ready", "scheduled", "in_flight")
SHOWN = ("priority", "enqueued_at", "expires_at", "deliveries", "failures", "last_error")


class Administering(Ground):
    """What an operator does, always in autocommit, whoever else has a transaction open."""

    @rule(config=configurations)
    def configure(self, config: dict[str, Any]) -> None:
        if any(hand.lanes for hand in self.model.hands.values()):
            return
        config = self.fitting(config)
        self.engine.admin.value("configure_queue", queue=MAIN, config=config)
        self.apply(config)
        self.look(self.engine.admin)

    @rule(pause=st.booleans())
    def pause_or_resume(self, pause: bool) -> None:
        if any(hand.lanes for hand in self.model.hands.values()):
            return  # whether it waits for them is another test's
        queue = self.model.queues[MAIN]
        changed = self.engine.admin.value("pause_queue" if pause else "resume_queue", queue=MAIN)
        assert changed is (queue.paused != pause)
        queue.paused = pause

    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        """Messages in any state, dead letters and unknown ids; not what an open transaction has touched."""
        admin, hand = self.pair("A")
        locked = self.model.locked_tokens(hand)
        held = {i for i, m in self.model.committed.items() if m.held and m.held.token in locked}
        untouched = sorted({*self.model.committed} - held - self.model.touched_by_others(hand))
        ids = picked([*untouched, 7], data.draw(nths))
        gone = {i for i in ids if i in self.model.committed and self._answers_for(self.model.committed[i])}
        assert admin.value("discard", queue=MAIN, ids=ids) == sorted(gone)
        for message_id in gone:
            self.model.end(hand, message_id)
        self.look(admin)

    def _answers_for(self, message: Message) -> bool:
        """Is this a message of the queue, or one of its dead letters?"""
        return message.queue == MAIN or self.model.queues[MAIN].dead_letter == message.queue

    @rule(data=st.data(), limit=st.sampled_from((1, 2, 1000)), tag=st.sampled_from((None, None, "red")))
    def redrive(self, data: st.DataObject, limit: int, tag: str | None) -> None:
        admin, hand = self.pair("A")
        dead = sorted((m for m in self.model.committed.values() if m.queue == GRAVE), key=lambda m: m.id)
        chosen = data.draw(st.one_of(st.none(), nths))
        ids = None if chosen is None else picked([*[m.id for m in dead], 7], chosen)
        meant = [m for m in dead if (ids is None or m.id in ids) and tag in (None, m.content.tag)][:limit]
        if not self._can_redrive():
            return
        arguments = {"queue": MAIN, "ids": ids, "filter": tag and {"tag": tag}, "limit": limit}
        if self.model.queues[MAIN].dead_letter is None:
            with pytest.raises(psycopg.Error) as refused:
                admin.call("redrive", **arguments)
            assert refused.value.sqlstate == NO_GRAVE
            return
        rows = admin.call("redrive", **arguments)
        moved = {row["id"]: row["new_id"] for row in rows}
        free = {m.id: m for m in meant if m.held is None and m.id not in self.model.touched_by_others(hand)}
        assert moved.keys() == free.keys(), f"moved {moved}, expected {free.keys()}"
        for old, new in moved.items():
            assert new not in self.model.drawn
            self.model.drawn.add(new)
            self.model.end(hand, old)
            self.model.put(hand, self.model.redriven(free[old], new))
        self.look(admin)

    def _can_redrive(self) -> bool:
        """It takes the lane locks of the dead letters, and may make lanes: not while others are at that."""
        return not any(GRAVE in hand.claimed_from or hand.lanes for hand in self.model.hands.values())

    @rule()
    def sweep(self) -> None:
        admin = self.engine.admin

        def swept() -> bool:
            admin.value("sweep", queue=MAIN)
            self.look(admin, Licence(sweep=True))
            return not any(
                m.overdue(self.model.now) and m.queue == MAIN for m in self.model.committed.values()
            )

        if not swept() and not self.model.busy():
            eventually(swept, what="G9: leases that ran out are still there after a sweep")

    @rule()
    def maintain(self) -> None:
        answer = self.engine.admin.value("maintain")
        assert answer["holders_ended"] == 0
        self.look(self.engine.admin, Licence(sweep=True, expire=True, audit=True))

    @rule(chance=st.integers(0, 2))
    def crash(self, chance: int) -> None:
        if chance == 0:
            self.engine.crash(self.model.now)
            self.model.crash()
            self.look(self.engine.admin)

    @precondition(lambda self: not self.model.busy())
    @rule(chance=st.integers(0, 2))
    def repair(self, chance: int) -> None:
        if chance == 0:
            assert self.engine.admin.value("repair") == len(self.engine.lanes())
            self.model.forget_leases()
            self.look(self.engine.admin)

    @rule()
    def stats(self) -> None:
        """The figures are exact, and they are the model's."""
        (row,) = self.engine.admin.call("queue_stats", queue=MAIN)
        now, live = self.model.now, [m for m in self.model.committed.values() if m.queue == MAIN]
        counted = {state: sum(m.state(now) == state for m in live) for state in STATES}
        ready = [now - m.enqueued_at for m in live if m.state(now) == "ready"]
        dead = sum(m.queue == self.model.queues[MAIN].dead_letter for m in self.model.committed.values())
        assert row["exact"] is True
        assert {state: row[state] for state in STATES} == counted
        assert (row["blocked"], row["depth"], row["dead"]) == (0, len(live), dead)
        assert row["oldest_age"] == (max(ready) if ready else None)
        assert row["paused"] is self.model.queues[MAIN].paused

    @rule(state=st.sampled_from((*STATES, "dead")), page=st.sampled_from((2, 100)))
    def browse(self, state: str, page: int) -> None:
        """Page by page, all messages of a state, and nothing else."""
        expected = {m.id for m in self.model.committed.values() if self._shown_as(m) == state}
        seen: list[int] = []
        while rows := self.engine.admin.call(
            "browse", queue=MAIN, state=state, limit=page, after=seen[-1] if seen else None
        ):
            seen += [row["id"] for row in rows]
            assert all(row["state"] == state for row in rows)
            assert len(seen) <= len(expected), f"browse shows {seen}, expected {sorted(expected)}"
        assert sorted(seen) == sorted(expected)

    def _shown_as(self, message: Message) -> str | None:
        if message.queue == MAIN:
            return message.state(self.model.now)
        return "dead" if self._answers_for(message) else None

    @rule(data=st.data())
    def message(self, data: st.DataObject) -> None:
        (message_id,) = picked([*sorted(self.model.committed), 7], [data.draw(nth)])
        rows = self.engine.admin.call("message", queue=MAIN, id=message_id)
        message = self.model.committed.get(message_id)
        state = message and self._shown_as(message)
        assert [row["state"] for row in rows] == ([state] if state else [])
        if message and rows:
            assert same_content(rows[0], message.content)
            assert same_origin(rows[0], message.origin)
            assert all(rows[0][name] == getattr(message, name) for name in SHOWN), (
                f"{rows[0]}, expected {message}"
            )

    @rule(who=consumers, data=st.data())
    def held_and_holders(self, who: str, data: st.DataObject) -> None:
        """What a session is told is held is what it sees held, by token and by id."""
        session, hand = self.pair(who)
        view = self.model.view(hand)
        main = {i: m for i, m in view.items() if m.queue == MAIN and m.held}
        rows: list[Row] = session.call("holders", queue=MAIN, ids=[*view, 7])
        assert {r["id"]: (r["token"], r["deadline"]) for r in rows} == {
            i: (m.held.token, m.held.deadline) for i, m in main.items() if m.held
        }
        chosen = data.draw(nth)
        if self.model.tokens:
            ((queue, token),) = picked(self.model.tokens, [chosen])
            held = session.call("held", queue=queue, token=token)
            assert {row["id"] for row in held} == set(self.model.holding(hand, queue, token))
