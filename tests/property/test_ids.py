"""An id carries its lane, and a lane is a dense, ordered stream of ids.

1. id >> 40 is the lane of the queue, the priority and the session's shard; the ids of a lane are 1, 2, 3, …
2. a single consumer gets plain messages by priority, then shard, then id, whatever the size of its claims
3. browse shows the same order, whatever the size of its pages
4. counters.sent counts the ids drawn, those of rolled-back sends included
"""

from __future__ import annotations

from typing import Any

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from tests.fix_database import Connect

PROFILE = settings(max_examples=30, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
WITHIN = 2**40

LANES = """
select l.id, l.priority::int, l.shard::int from holdfast.lane l join holdfast.queue q on q.id = l.queue_id
where q.name = 'lanes'
"""

batches = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10), st.integers(1, 4)), max_size=10)

Lane = tuple[int, int]


class Subject:
    """A queue with some shards, three senders, and what they have sent by lane (priority, shard)."""

    def __init__(self, connections: list[psycopg.Connection[Any]], shards: int) -> None:
        self.connections = connections
        self.shards = shards
        self.sent: dict[Lane, list[int]] = {}
        connections[0].execute("select holdfast.drop_queue('lanes')")
        connections[0].execute("select holdfast.create_queue('lanes', %s)", (Jsonb({"shards": shards}),))

    def send(self, who: int, priority: int, count: int) -> None:
        connection = self.connections[who]
        statement = (
            "select holdfast.send_batch('lanes', array_fill('1'::jsonb, array[%s::int]), priority => %s)"
        )
        (ids,) = connection.execute(statement, (count, priority)).fetchone() or ([],)
        self.sent.setdefault((priority, connection.info.backend_pid % self.shards), []).extend(ids)

    def lanes(self) -> dict[int, Lane]:
        return {
            lane: (priority, shard) for lane, priority, shard in self.connections[0].execute(LANES).fetchall()
        }

    def in_order(self, first_shard: int) -> list[int]:
        """By priority, the highest first; within it from some shard on; within that by id."""
        lanes = sorted(self.sent, key=lambda lane: (-lane[0], (lane[1] - first_shard) % self.shards))
        return [message for lane in lanes for message in self.sent[lane]]


def test_an_id_names_its_lane_and_ids_are_dense_within_it(connect: Connect) -> None:
    connections = [connect() for _ in range(3)]

    @PROFILE
    @given(st.integers(1, 3), batches)
    def check(shards: int, sends: list[tuple[int, int, int]]) -> None:
        subject = Subject(connections, shards)
        for send in sends:
            subject.send(*send)

        lanes = subject.lanes()

        for lane, ids in subject.sent.items():
            assert {lanes[i // WITHIN] for i in ids} == {lane}
            assert [i % WITHIN for i in ids] == list(range(1, len(ids) + 1))

    check()


def test_claims_of_any_size_keep_the_order_of_priority_shard_and_id(connect: Connect) -> None:
    connections = [connect() for _ in range(3)]

    @PROFILE
    @given(st.integers(1, 3), batches, st.integers(1, 7))
    def check(shards: int, sends: list[tuple[int, int, int]], most: int) -> None:
        subject = Subject(connections, shards)
        for send in sends:
            subject.send(*send)

        claimed: list[int] = []
        while (
            rows := connections[1].execute("select id from holdfast.claim('lanes', %s)", (most,)).fetchall()
        ):
            # A claim starts with whatever shard it likes.
            left = [[i for i in subject.in_order(first) if i not in claimed] for first in range(shards)]
            assert [row[0] for row in rows] in [ids[:most] for ids in left]
            claimed += [row[0] for row in rows]

        assert sorted(claimed) == sorted(subject.in_order(0))

    check()


def test_pages_of_any_size_show_everything_once_in_order(connect: Connect) -> None:
    connections = [connect() for _ in range(3)]

    @PROFILE
    @given(st.integers(1, 3), batches, st.integers(1, 7))
    def check(shards: int, sends: list[tuple[int, int, int]], page: int) -> None:
        subject = Subject(connections, shards)
        for send in sends:
            subject.send(*send)

        seen: list[int] = []
        while True:
            after = seen[-1] if seen else None
            statement = "select id from holdfast.browse('lanes', \"limit\" => %s, after => %s)"
            rows = connections[0].execute(statement, (page, after)).fetchall()
            seen += [row[0] for row in rows]
            if not rows:
                break

        by_lane = {lane: number for number, lane in subject.lanes().items()}
        order = sorted(subject.sent, key=lambda lane: (-lane[0], by_lane[lane]))
        assert seen == [message for lane in order for message in subject.sent[lane]]

    check()


def test_the_counter_of_sends_counts_the_ids_that_were_drawn(connect: Connect) -> None:
    connections = [connect() for _ in range(3)]

    @PROFILE
    @given(batches, st.lists(st.booleans(), min_size=1, max_size=3))
    def check(sends: list[tuple[int, int, int]], commits: list[bool]) -> None:
        subject = Subject(connections, 1)
        kept = 0
        for number, (who, priority, count) in enumerate(sends):
            commit = commits[number % len(commits)]
            connections[who].execute("begin")
            subject.send(who, priority % 2, count)
            connections[who].execute("commit" if commit else "rollback")
            kept += count if commit else 0

        statement = (
            "select ready, depth, exact, (counters ->> 'sent')::int from holdfast.queue_stats('lanes')"
        )
        figures = connections[0].execute(statement).fetchone()

        # A lane whose making was rolled back has drawn nothing that anybody could count.
        drawn = sum(len(ids) for lane, ids in subject.sent.items() if lane in subject.lanes().values())
        assert figures is not None
        assert figures[:3] == (kept, kept, True)
        assert figures[3] <= drawn
        assert figures[3] >= kept

    check()
