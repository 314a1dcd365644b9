"""The producers' rules: send, send_batch, send_many, and rows put into the inbox."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule
from psycopg.types.json import Jsonb

from tests.property.base import Ground, everyone
from tests.property.engine import Session
from tests.property.model import MAIN, Content, Hand, Message
from tests.property.observe import Licence
from tests.property.strategies import Options, content, expected, options, values

INBOX = """
insert into holdfast.inbox (queue, payload, body, content_type, headers, priority, deliver_at, expires_at,
                            correlation_id, tag, max_deliveries)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


class Producing(Ground):
    """Sends by any session, in autocommit or in whatever transaction it has open."""

    def content(self, value: Any, how: Options) -> Content:
        self.model.marks += 1
        return content(self.model.marks, value, how.extras)

    def payload(self, value: Any, how: Options) -> Content:
        what = self.content(None, how)
        return replace(what, payload={"n": what.mark, "v": value})

    def timing(self, how: Options) -> dict[str, Any]:
        """The options that every verb takes under the same names."""
        now = self.model.now
        return {
            "priority": how.priority,
            "delay": how.delay,
            "deliver_at": None if how.deliver_in is None else now + how.deliver_in,
            "ttl": how.ttl,
            "expires_at": None if how.expires_in is None else now + how.expires_in,
            "max_deliveries": how.max_deliveries,
        }

    def lanes_free(self, session: Session, hand: Hand, priorities: Iterable[int]) -> bool:
        """A lane that somebody is making makes a second first user wait until commit: not now, then."""
        there = self.engine.lanes()
        shard = session.parity % self.model.queues[MAIN].shards
        missing = {(MAIN, priority, shard) for priority in priorities} - there
        if any(missing & other.lanes for other in self.model.others(hand)):
            return False
        if hand.open:
            hand.lanes |= missing
        return True

    def stored(self, session: Session, ids: list[int], messages: list[Message]) -> None:
        """These ids are new, and they are the messages, in order."""
        hand = self.model.hands[session.name]
        assert len(ids) == len(messages)
        for message_id, message in zip(ids, messages, strict=True):
            assert message_id not in self.model.drawn, f"{message_id} was drawn before"
            self.model.drawn.add(message_id)
            self.model.put(hand, replace(message, id=message_id))
        self.look(session)

    @rule(who=everyone, value=values, how=options())
    def send(self, who: str, value: Any, how: Options) -> None:
        session, hand = self.pair(who)
        if not self.lanes_free(session, hand, [how.priority or 0]):
            return
        what = self.content(value, how)
        sent = session.value(
            "send", queue=MAIN, payload=what.payload, body=what.body, **self.timing(how), **how.extras
        )
        self.stored(session, [sent], [expected(self.model.queues[MAIN], what, how, self.model.now)])

    @rule(who=everyone, batch=st.lists(values, max_size=5), how=options())
    def send_batch(self, who: str, batch: list[Any], how: Options) -> None:
        session, hand = self.pair(who)
        if not self.lanes_free(session, hand, [how.priority or 0]):
            return
        whats = [self.payload(value, how) for value in batch]
        ids = session.value(
            "send_batch", queue=MAIN, payloads=[w.payload for w in whats], **self.timing(how), **how.extras
        )
        self.stored(session, ids, [expected(self.model.queues[MAIN], w, how, self.model.now) for w in whats])

    @rule(who=everyone, drafts=st.lists(st.tuples(values, options()), max_size=4))
    def send_many(self, who: str, drafts: list[tuple[Any, Options]]) -> None:
        session, hand = self.pair(who)
        if not self.lanes_free(session, hand, [how.priority or 0 for _, how in drafts]):
            return
        whats = [(self.content(value, how), how) for value, how in drafts]
        ids = session.value("send_many", queue=MAIN, messages=[self._draft(what, how) for what, how in whats])
        self.stored(
            session, ids, [expected(self.model.queues[MAIN], w, how, self.model.now) for w, how in whats]
        )

    def _draft(self, what: Content, how: Options) -> dict[str, Any]:
        """A message as send_many takes it: JSON only."""
        draft = self.timing(how) | how.extras | {"payload": what.payload}
        if what.body is not None:
            del draft["payload"]
            draft["body"] = base64.b64encode(what.body).decode()
        for name in ("deliver_at", "expires_at"):
            draft[name] = draft[name] and draft[name].isoformat()
        draft["delay"] = None if how.delay is None else how.delay.total_seconds()
        draft["ttl"] = how.ttl and f"{how.ttl.total_seconds()} seconds"
        if "correlation_id" in draft:
            draft["correlation_id"] = str(draft["correlation_id"])
        return draft

    @rule(who=everyone, drafts=st.lists(st.tuples(values, options(durations=False)), min_size=1, max_size=3))
    def put_into_inbox(self, who: str, drafts: list[tuple[Any, Options]]) -> None:
        session, hand = self.pair(who)
        if not self.lanes_free(session, hand, [how.priority or 0 for _, how in drafts]):
            return
        whats = [(self.content(value, how), how) for value, how in drafts]
        rows = [self._inbox_row(what, how) for what, how in whats]
        self.engine.trace.note(f"    {who}: insert into holdfast.inbox {rows}")
        several = INBOX.rstrip() + ", (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)" * (len(rows) - 1)
        session.run(several, tuple(column for row in rows for column in row))
        queue = self.model.queues[MAIN]
        self.look(session, Licence(born=[expected(queue, w, how, self.model.now) for w, how in whats]))

    def _inbox_row(self, what: Content, how: Options) -> tuple[Any, ...]:
        timing = self.timing(how)
        return (
            MAIN,
            None if what.payload is None else Jsonb(what.payload),
            what.body,
            what.content_type,
            None if what.headers is None else Jsonb(what.headers),
            how.priority,
            timing["deliver_at"],
            timing["expires_at"],
            what.correlation_id,
            what.tag,
            how.max_deliveries,
        )
