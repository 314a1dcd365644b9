"""The ground of the state machine: sessions, transactions, the clock, and the look after every step."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.property.engine import CONSUMERS, EVERYTHING, NAMES, PRODUCERS, Engine, Session
from tests.property.model import GRAVE, MAIN, START, Hand, Model, Queue
from tests.property.observe import Licence, Observer
from tests.property.strategies import STEPS, configurations

DURATIONS = {
    "30 s": timedelta(seconds=30),
    "2 hours": timedelta(hours=2),
    "1 s": timedelta(seconds=1),
    "100 ms": timedelta(milliseconds=100),
}
everyone = st.sampled_from((*PRODUCERS, *CONSUMERS))
consumers = st.sampled_from(CONSUMERS)


def duration(value: Any) -> timedelta:
    return DURATIONS[value] if isinstance(value, str) else timedelta(seconds=value)


class Ground(RuleBasedStateMachine):
    """One queue, six sessions that may hold transactions open, and a model of it all."""

    engine: ClassVar[Engine]
    by_row: ClassVar[bool] = False  # whether the messages of the queue are rows too

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(list(NAMES))
        self.observer = Observer(self.model)
        self.engine.reset(START)
        self.endings = [True]

    @initialize(
        config=configurations, grave=st.booleans(), endings=st.lists(st.booleans(), min_size=1, max_size=4)
    )
    def create(self, config: dict[str, Any], grave: bool, endings: list[bool]) -> None:
        config = self.fitting(config)
        made = config | {"by_row": True} if self.by_row else config
        assert self.engine.admin.value("create_queue", queue=MAIN, config=made) is True
        self.apply(config)
        if grave:
            self.engine.admin.value(
                "create_queue", queue=GRAVE, config={"dead_letter": False, "max_deliveries": 0}
            )
            self.model.queues[GRAVE] = Queue(GRAVE, max_deliveries=0)
        self.endings = endings

    def fitting(self, config: dict[str, Any]) -> dict[str, Any]:
        """What of a configuration goes with the queue: one whose messages are rows has one lane."""
        lanes = {"shards", "priorities"} if self.by_row else set()
        return {name: value for name, value in config.items() if name not in lanes}

    def apply(self, config: dict[str, Any]) -> None:
        """The model's side of create_queue and configure_queue."""
        queue = self.model.queues[MAIN]
        queue.max_deliveries = config.get("max_deliveries", queue.max_deliveries)
        queue.shards = config.get("shards", queue.shards)
        queue.budget = config.get("budget", queue.budget)
        queue.lapse_is_failure = config.get("lapse_is_failure", queue.lapse_is_failure)
        if "lease" in config:
            queue.lease = duration(config["lease"])
        if "ttl" in config:
            queue.ttl = None if config["ttl"] is None else duration(config["ttl"])
        if "dead_letter" in config:
            queue.dead_letter = None if config["dead_letter"] is False else GRAVE
        backoff = config.get("backoff", {})
        queue.backoff_base = duration(backoff["base"]).total_seconds() if backoff else queue.backoff_base
        queue.backoff_factor = backoff.get("factor", queue.backoff_factor)
        queue.backoff_cap = backoff.get("cap", queue.backoff_cap)

    def pair(self, who: str) -> tuple[Session, Hand]:
        return self.engine.sessions[who], self.model.hands[who]

    def look(self, session: Session, licence: Licence | None = None) -> None:
        """All that this session can see must be what the model says."""
        self.observer.observe(session, session.run(EVERYTHING), licence or Licence())

    def advance(self, step: timedelta) -> None:
        self.model.now += step
        self.engine.trace.note(f"    the clock stands at {self.model.now - START}")
        self.engine.set_clock(self.model.now)

    def finish(self, who: str, commit: bool) -> None:
        session, hand = self.pair(who)
        session.say("commit" if commit else "rollback")
        self.model.finish(hand, commit)
        self.look(session)

    def may_make_grave(self, hand: Hand) -> bool:
        """In an open transaction the making of the dead-letter queue would make all others wait."""
        return hand.open and GRAVE not in self.model.queues

    @rule(step=st.sampled_from(STEPS))
    def pass_time(self, step: timedelta) -> None:
        self.advance(step)

    @rule(
        who=everyone, action=st.sampled_from(("savepoint", "back", "release", "commit", "commit", "rollback"))
    )
    def transact(self, who: str, action: str) -> None:
        """Open a transaction, or take it one step further."""
        session, hand = self.pair(who)
        if not hand.open:
            session.say("begin")
            self.model.begin(hand)
        elif action in ("commit", "rollback"):
            self.finish(who, action == "commit")
        elif action == "savepoint":
            session.say(f"savepoint s{len(hand.layers)}")
            self.model.begin(hand)
        elif len(hand.layers) > 1:
            self._back_or_release(session, hand, action)

    def _back_or_release(self, session: Session, hand: Hand, action: str) -> None:
        name = f"s{len(hand.layers) - 1}"
        if action == "back":
            session.say(f"rollback to savepoint {name}")
            self.model.undo_layer(hand)
        else:
            session.say(f"release savepoint {name}")
            self.model.merge_layer(hand)
        self.look(session)
