"""The configuration is three layers: built in, the global defaults, the queue's own. The model: a dictionary.

1. a field of the queue wins over one of the defaults, and that over the built-in one
2. null takes a field back to the layer below; backoff, rate_limits and annotations merge field by field
3. configure_queue, configure_defaults and queues() tell what holds, and the typed columns hold the same
4. create_queue again answers false with the same overrides or none, and QH102 with others
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tests.built_in import BUILT_IN
from tests.fix_database import Connect

Config = dict[str, Any]

PROFILE = settings(max_examples=30, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
QUEUES = ("one", "two")
SECONDS = {"0 s": 0, "30 s": 30, "2 hours": 7200, "300 s": 300, "1 min": 60}

durations = st.sampled_from((1, 0.5, "2 hours", "1 min"))
backoffs = st.fixed_dictionaries(
    {},
    optional={
        "base": durations,
        "cap": durations,
        "factor": st.sampled_from((1, 1.5, 10)),
        "jitter": st.sampled_from((0, 0.5)),
    },
)
fields: dict[str, st.SearchStrategy[Any]] = {
    "lease": durations,
    "max_deliveries": st.integers(0, 1000),
    "ttl": durations,
    "max_depth": st.integers(1, 10**9),
    "backoff": backoffs,
    "priority_default": st.sampled_from((0, 1)),
    "priorities": st.sampled_from(([0], [0, 1])),
    "shards": st.sampled_from((1, 2)),
    "notify": st.booleans(),
    "max_payload": st.integers(1, 67108864),
    "throughput_limit": st.sampled_from((0.5, 10, 1_000_000)),
    "budget": st.sampled_from(("deliveries", "failures")),
    "lapse_is_failure": st.booleans(),
    "replaces": st.sampled_from(("unclaimed", "waiting")),
    "durability": st.sampled_from(("durable", "fast")),
    "claim_window": st.sampled_from((0, 0.5, "2 s")),
    "rate_limits": st.dictionaries(
        st.sampled_from(("send", "claim", "settle")), st.sampled_from((None, 0.5, 100))
    ),
    "annotations": st.dictionaries(st.sampled_from(("shop", "till")), st.sampled_from((None, "Ada", 5))),
}
nullable = {name: st.one_of(st.none(), values) for name, values in fields.items()}
queue_changes = st.fixed_dictionaries(
    {}, optional=nullable | {"dead_letter": st.sampled_from((None, False, "morgue"))}
)
default_changes = st.fixed_dictionaries(
    {}, optional=nullable | {"dead_letter": st.sampled_from((None, False))}
)
changes = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(QUEUES), queue_changes),
        st.tuples(st.none(), default_changes),
    ),
    max_size=8,
)

TYPED = """
select extract(epoch from lease)::float8, max_deliveries, dead_letter, backoff_base, backoff_factor,
       backoff_cap, backoff_jitter, extract(epoch from ttl)::float8, max_depth, priority_default, priorities,
       shards, notify, max_payload, throughput_limit, budget, lapse_is_failure, replaces, fast
from holdfast.queue where name = %s
"""

LANES = """
select l.priority, l.shard from holdfast.lane l join holdfast.queue q on q.id = l.queue_id
where q.name = 'one'
"""


def merged(below: Config, change: Config) -> Config:
    """Overrides laid over others: null takes one away; those with fields of their own are merged by them."""
    result = dict(below)
    for name, value in change.items():
        if value is None:
            result.pop(name, None)
        elif name in ("backoff", "rate_limits", "annotations"):
            result[name] = below.get(name, {}) | value
        else:
            result[name] = value
    return result


def effective(defaults: Config, own: Config, name: str | None) -> Config:
    result = merged(merged(BUILT_IN, defaults), own)
    if name is not None and result["dead_letter"] is None:
        result["dead_letter"] = f"{name}.dlq"
    return result


def seconds(value: Any) -> float | None:
    return float(SECONDS[value]) if isinstance(value, str) else value if value is None else float(value)


def typed(config: Config) -> tuple[Any, ...]:
    """What the columns of holdfast.queue should hold for a configuration."""
    backoff = config["backoff"]
    return (
        seconds(config["lease"]),
        config["max_deliveries"],
        config["dead_letter"] or None,
        seconds(backoff["base"]),
        float(backoff["factor"]),
        seconds(backoff["cap"]),
        float(backoff["jitter"]),
        seconds(config["ttl"]),
        *(
            config[n]
            for n in ("max_depth", "priority_default", "priorities", "shards", "notify", "max_payload")
        ),
        config["throughput_limit"],
        config["budget"],
        config["lapse_is_failure"],
        config["replaces"],
        True if config["durability"] == "fast" else None,
    )


class Subject:
    """Two queues, freshly made with no configuration, and defaults that say nothing."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        for name in QUEUES:
            self.ask("select holdfast.drop_queue(%s)", name)
        self.configure(None, dict.fromkeys((*fields, "dead_letter")))
        for name in QUEUES:
            self.ask("select holdfast.create_queue(%s)", name)

    def ask(self, statement: str, *parameters: Any) -> Any:
        row = self.connection.execute(statement.encode(), parameters).fetchone()
        return row and row[0]

    def configure(self, name: str | None, change: Config) -> Config:
        if name is None:
            answer = self.ask("select holdfast.configure_defaults(%s)", Jsonb(change))
        else:
            answer = self.ask("select holdfast.configure_queue(%s, %s)", name, Jsonb(change))
        assert isinstance(answer, dict)
        return answer

    def reported(self) -> dict[str, tuple[Config, Config]]:
        rows = self.connection.execute("select queue, config, effective from holdfast.queues()").fetchall()
        return {queue: (config, holds) for queue, config, holds in rows}

    def columns(self, name: str) -> tuple[Any, ...]:
        row = self.connection.execute(TYPED.encode(), (name,)).fetchone()
        assert row is not None
        return tuple(row)


def test_any_sequence_of_changes_leaves_what_the_layers_say(connect: Connect) -> None:
    connection = connect()

    @PROFILE
    @given(changes)
    def change(steps: list[tuple[str | None, Config]]) -> None:
        subject = Subject(connection)
        defaults: Config = {}
        own: dict[str, Config] = {name: {} for name in QUEUES}

        for name, config in steps:
            answer = subject.configure(name, config)

            if name is None:
                defaults = merged(defaults, config)
                assert answer == effective(defaults, {}, None)
            else:
                own[name] = merged(own[name], config)
                assert answer == effective(defaults, own[name], name)
        holds = {name: effective(defaults, own[name], name) for name in QUEUES}
        assert subject.reported() == {name: (own[name], holds[name]) for name in QUEUES}
        assert [subject.columns(name) for name in QUEUES] == [typed(holds[name]) for name in QUEUES]

    change()


def test_the_lanes_that_a_configuration_names_are_made_and_none_is_lost(connect: Connect) -> None:
    connection = connect()

    @PROFILE
    @given(
        st.lists(
            st.tuples(st.sampled_from((1, 2, 3)), st.lists(st.integers(0, 2), min_size=1, max_size=2)),
            max_size=4,
        )
    )
    def change(steps: list[tuple[int, list[int]]]) -> None:
        subject = Subject(connection)
        expected = {(0, 0)}

        for shards, priorities in steps:
            subject.configure("one", {"shards": shards, "priorities": priorities})

            expected |= {(priority, shard) for priority in (*priorities, 0) for shard in range(shards)}
            lanes = connection.execute(LANES).fetchall()
            assert len(lanes) == len(expected)
            assert set(lanes) == expected

    change()


def test_a_queue_is_made_once_with_one_configuration(connect: Connect) -> None:
    connection = connect()

    @PROFILE
    @given(queue_changes, queue_changes)
    def create(first: Config, second: Config) -> None:
        subject = Subject(connection)
        subject.ask("select holdfast.drop_queue('one')")
        assert subject.ask("select holdfast.create_queue('one', %s)", Jsonb(first)) is True

        if merged({}, second) in ({}, merged({}, first)):
            assert subject.ask("select holdfast.create_queue('one', %s)", Jsonb(second)) is False
        else:
            with pytest.raises(psycopg.Error) as refused:
                subject.ask("select holdfast.create_queue('one', %s)", Jsonb(second))
            assert refused.value.sqlstate == "QH102"

        assert subject.reported()["one"][0] == merged({}, first)

    create()


def test_what_is_configured_is_what_a_claim_uses(connect: Connect) -> None:
    connection = connect()
    connection.execute("select holdfast.set_clock('2030-01-01 00:00Z')")

    @PROFILE
    @given(lease=durations, limit=st.integers(1, 1000))
    def claim(lease: Any, limit: int) -> None:
        subject = Subject(connection)
        subject.configure(None, {"lease": "2 hours", "max_deliveries": 7})
        subject.configure("one", {"lease": lease, "max_deliveries": limit})
        for name in QUEUES:
            subject.ask("select holdfast.send(%s, '1')", name)

        rows = [
            connection.execute(
                "select deadline - holdfast.now(), max_deliveries from holdfast.claim(%s)", (name,)
            ).fetchone()
            for name in QUEUES
        ]

        assert rows == [(timedelta(seconds=seconds(lease) or 0), limit), (timedelta(hours=2), 7)]

    claim()
