"""Topics: claims that come together are divided. The numbers are those of test_topics.py."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.dialects.pins import pins
from tests.dialects.topics import Topics
from tests.fix_http import Serve
from tests.waiting import eventually

WINDOW_MS = 1500  # long enough for ten requests to come, on a machine that has other things to do


def claims(topics: Topics, name: str, maxes: list[int]) -> list[int]:
    """Claims that come together, each over a connection of its own; returns how many jobs each gets."""

    def claim(nth: int) -> int:
        with Topics(topics.address) as worker:
            return len(worker.claim(name, f"worker-{nth}", max=maxes[nth]))

    with ThreadPoolExecutor(len(maxes)) as pool:
        return list(pool.map(claim, range(len(maxes))))


@pins(60, 61)
def test_ten_claims_of_ten_on_fifty_jobs_get_five_each(topics: Topics, name: str) -> None:
    topics.queue(name, claim_jitter_ms=WINDOW_MS)
    topics.append(name, *range(50))

    assert claims(topics, name, [10] * 10) == [5] * 10


@pins(60)
def test_shares_are_in_proportion_to_what_was_asked_for(topics: Topics, name: str) -> None:
    topics.queue(name, claim_jitter_ms=WINDOW_MS)
    topics.append(name, *range(40))

    assert claims(topics, name, [10, 30, 40]) == [5, 15, 20]


@pins(59)
def test_without_a_window_the_first_to_come_takes_the_head(topics: Topics, name: str) -> None:
    topics.queue(name)
    topics.append(name, *range(15))

    shares = [len(topics.claim(name, f"worker-{n}", max=10)) for n in range(3)]

    assert shares == [10, 5, 0]


@pins(62)
def test_streams_and_claims_share_a_cohort(topics: Topics, name: str) -> None:
    topics.queue(name, claim_jitter_ms=WINDOW_MS)
    shares: list[int] = []
    with (
        topics.work(name, "node=pushed&max=10") as stream,
        Topics(topics.address) as worker,
        ThreadPoolExecutor(1) as pool,
    ):
        # A stream always waits: a window of it may end just between the claim and the jobs. Not five times.
        while 5 not in shares and len(shares) < 5:
            polling = pool.submit(worker.claim, name, "polled", max=10)
            topics.append(name, *range(10))
            polled = [job["$seq"] for job in polling.result()]
            pushed = [job["$seq"] for job in stream.jobs(10 - len(polled))]
            shares.append(len(polled))
            assert len({*polled, *pushed}) == 10
            topics.settle("ack", name, pushed, node="pushed")

    assert shares[-1] == 5


@pins(63)
def test_two_servers_have_a_cohort_each(serve: Serve, name: str) -> None:
    with Topics(serve().address) as one, Topics(serve().address) as two, ThreadPoolExecutor(2) as pool:
        one.queue(name, claim_jitter_ms=200)
        one.append(name, *range(10))

        claimed = list(pool.map(lambda server: server.claim(name, max=10), (one, two)))

        # Whoever's window is over first takes all; no job is taken twice.
        assert sorted(len(jobs) for jobs in claimed) == [0, 10]


@pins(60)
def test_a_claim_whose_caller_hangs_up_takes_nothing(topics: Topics, name: str) -> None:
    topics.queue(name, claim_jitter_ms=WINDOW_MS)
    topics.append(name, 1)
    with Topics(topics.address) as worker:
        worker.client.timeout = httpx.Timeout(0.2)
        with pytest.raises(httpx.ReadTimeout):
            worker.claim(name)

    eventually(lambda: topics.counted(name)["ready"] == 1, what="nobody holds it")
    (job,) = topics.claim(name)
    assert job["deliveries"] == 1
