"""Dispatchers that are killed, told to end, and lose their database, beside receivers that fail.

1. Whatever fails, each message is accepted at least once, signed, and in the order of its key.
2. A breaker opens while a receiver is down, and closes by itself.
3. No address is contacted but those that are allowed.
4. A dispatcher that is told to end gives back what it has not delivered, at no cost.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from standardwebhooks.webhooks import Webhook

from holdfast import Holdfast, NewMessage
from tests.cli.conftest import PROGRAM, environment
from tests.fix_proxy import Proxy
from tests.waiting import eventually
from tests.webhook.conftest import KEY, Endpoints, Receive
from tests.webhook.receiver import Received, Receiver, Reply
from tests.webhook.sample import SECRET
from tests.webhook.worker import METADATA, METADATA_NAME

ROOT = Path(__file__).parents[2]
LEASE = "2"  # seconds
KEYS = 40
FAULTS = 0.1
BATCH = 1_000  # messages sent at once
PATIENCE = 900.0  # seconds for a share of all messages, on a busy machine
STOP_PATIENCE = 40.0


class Faulty:
    """Accepts what comes, but for one in ten, and but for what comes while it is down."""

    def __init__(self) -> None:
        self._random = random.Random(7)
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.invalid = 0
        self.down = False

    def __call__(self, got: Received) -> Reply:
        try:
            message = Webhook(SECRET).verify(got.body, got.headers)
        except Exception:
            self.invalid += 1
            return Reply(400)
        if self.down:
            return Reply(503)
        if self._random.random() < FAULTS:
            return self._random.choice([Reply(500), Reply(429), Reply(reset=True), Reply(raw=b"HTTP/1.1 2")])
        self.accepted[message["key"]].append(message["n"])
        return Reply()

    def count(self) -> int:
        """How many messages it has accepted, each once."""
        return sum(len({*numbers}) for numbers in [*self.accepted.values()])


@contextmanager
def working(database_url: str, contacts: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A dispatcher, which is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.webhook.worker", database_url, str(contacts), LEASE],
        cwd=ROOT,
        env=environment(database_url, HOLDFAST_SECRET_KEY=KEY),
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(STOP_PATIENCE)


def survive(
    count: int,
    kills: int,
    receive: Receive,
    endpoints: Endpoints,
    holdfast: Holdfast,
    database_url: str,
    folder: Path,
) -> None:
    """Deliver so many messages, while receivers fail, one is down for a time, and dispatchers are killed."""
    faulty, contacts = Faulty(), folder / "contacts"
    receiver = receive(faulty)
    retry = {"strategy": "fixed", "base": 0.05, "cap": 0.05, "jitter": 0, "max_attempts": 1000}
    breaker = {"threshold": 10, "cooldown": 0.5}
    endpoints.make(receiver.url, ordering="key", concurrency=20, retry=retry, breaker=breaker)
    rude = receive(lambda _: Reply(302, {"location": f"http://{METADATA}/latest"}))
    endpoints.make(rude.url, "redirecting")
    endpoints.make(f"http://{METADATA_NAME}/", "rebinding")
    messages: list[dict[str, Any]] = [{"key": f"key {n % KEYS}", "n": n} for n in range(count)]
    for start in range(0, count, BATCH):
        part = messages[start : start + BATCH]
        holdfast.send_many(
            "shop", [NewMessage(payload=each, ordering_key=each["key"]) for each in part]
        )
    for name in ("redirecting", "rebinding"):
        holdfast.send_batch(name, range(5))

    with ExitStack() as stack:
        for kill in range(kills):
            with working(database_url, contacts) as dispatcher:
                share = count * (kill + 1) // (kills + 1)
                await_count(faulty, share, dispatcher)
        dispatcher = stack.enter_context(working(database_url, contacts))
        faulty.down = True
        eventually(lambda: endpoints.state() == "open", what="the breaker opens", timeout=PATIENCE)
        faulty.down = False
        await_count(faulty, count, dispatcher)
        eventually(
            lambda: holdfast.queue_stats("shop").depth == 0, what="all are settled", timeout=PATIENCE
        )
        eventually(lambda: holdfast.queue_stats("redirecting").dead == 5, what="redirects end, dead")
        eventually(lambda: refused(endpoints) > 0, what="the name is refused")

    assert faulty.invalid == 0
    for key, numbers in faulty.accepted.items():
        first = list(dict.fromkeys(numbers))
        assert first == [message["n"] for message in messages if message["key"] == key]
    events = [row["event"] for row in endpoints.rows("endpoint_events", "shop")]
    assert {"opened", "half_opened", "closed"} <= {*events}
    assert endpoints.state() == "closed"
    assert {line.split()[1] for line in contacts.read_text().splitlines()} == {"127.0.0.1"}


def await_count(faulty: Faulty, count: int, dispatcher: subprocess.Popen[bytes]) -> None:
    """Until so many messages are accepted, by a dispatcher that lives."""

    def reached() -> bool:
        assert dispatcher.poll() is None, "the dispatcher has ended"
        return faulty.count() >= count

    eventually(reached, what=f"{count} messages are accepted", timeout=PATIENCE)


def refused(endpoints: Endpoints) -> int:
    """How often a delivery was refused by the guard."""
    attempts = endpoints.rows("endpoint_attempts", "rebinding")
    assert all(attempt["error"].startswith(f"refused: {METADATA_NAME}, which means") for attempt in attempts)
    return len(attempts)


def test_every_message_is_accepted_though_receivers_fail_and_dispatchers_are_killed(
    receive: Receive, endpoints: Endpoints, holdfast: Holdfast, database_url: str, tmp_path: Path
) -> None:
    survive(300, 1, receive, endpoints, holdfast, database_url, tmp_path)


@pytest.mark.verify
@pytest.mark.timeout(3600)
def test_twenty_thousand_messages_are_accepted_in_order(
    receive: Receive, endpoints: Endpoints, holdfast: Holdfast, database_url: str, tmp_path: Path
) -> None:
    survive(20_000, 4, receive, endpoints, holdfast, database_url, tmp_path)


class Command:
    """`holdfast dispatch` as people run it."""

    def __init__(self, database_url: str, *options: str) -> None:
        self.process = subprocess.Popen(
            [str(PROGRAM), "dispatch", "--json", "--log-format", "json", *options],
            env=environment(database_url, HOLDFAST_SECRET_KEY=KEY),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"it ended: {self.process.communicate(timeout=STOP_PATIENCE)}"
        self.told = json.loads(line)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, list[dict[str, Any]]]:
        """End it; returns its exit code and its log."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=STOP_PATIENCE)
        return self.process.returncode, [json.loads(line) for line in err.splitlines()]


Run = Callable[..., Command]


@pytest.fixture
def run(database_url: str) -> Iterator[Run]:
    """Starts `holdfast dispatch` with options; it is gone after the test."""
    with ExitStack() as stack:

        def start(*options: str, url: str | None = None) -> Command:
            command = Command(url or database_url, *options)
            stack.callback(command.process.communicate)
            stack.callback(command.process.kill)
            return command

        yield start


def test_the_command_delivers_and_ends_by_sigterm_giving_back_what_it_held(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, run: Run
) -> None:
    receiver.answering = lambda got: Reply(after=300 if got.body == b'"slow"' else 0)
    endpoints.make(receiver.url, concurrency=1, timeout=300)
    command = run("--endpoint", "shop", "--grace", "200ms")
    holdfast.send("shop", "quick")
    eventually(lambda: holdfast.queue_stats("shop").depth == 0, what="it is delivered")
    holdfast.send_batch("shop", ["slow", "later"])
    eventually(lambda: receiver.at_once == 1, what="the slow one is on its way")

    code, _ = command.end()

    assert (command.told, code) == ({"endpoints": ["shop"]}, 0)
    stats = holdfast.queue_stats("shop")
    assert (stats.ready, stats.in_flight) == (2, 0)
    assert {entry.deliveries for entry in holdfast.browse("shop")} == {0}


def test_a_second_signal_ends_it_at_once(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, run: Run
) -> None:
    receiver.answering = lambda _: Reply(after=300)
    endpoints.make(receiver.url, timeout=300)
    command = run("--grace", "5min")
    holdfast.send("shop", "slow")
    eventually(lambda: receiver.at_once == 1, what="it is on its way")

    command.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        command.process.wait(1)
    code, _ = command.end(signal.SIGINT)

    assert code == 130


def test_the_log_shows_no_payload_and_no_secret(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, run: Run
) -> None:
    receiver.answering = lambda _: Reply(400, body=b"answer of the receiver")
    endpoints.make(f"{receiver.url}/path?token=hush", headers={"x-key": "hush"})
    command = run()
    holdfast.send("shop", {"password": "hush"})
    eventually(lambda: holdfast.queue_stats("shop").dead == 1, what="it is dead")

    _, log = command.end()

    (line,) = [line for line in log if line["message"].startswith("shop: message")]
    assert line["message"].endswith("attempt 1: 400 Bad Request (dead)")
    assert not any(word in str(log) for word in ("hush", SECRET, "answer of the receiver", "path"))


def test_a_database_that_goes_away_and_comes_back_costs_no_message(
    receiver: Receiver, endpoints: Endpoints, holdfast: Holdfast, run: Run, proxy: Proxy
) -> None:
    receiver.answering = lambda _: Reply(after=0.02)
    endpoints.make(receiver.url, concurrency=2)
    holdfast.send_batch("shop", range(100))
    run("--lease", "2s", url=proxy.url)
    for share in (20, 50):
        eventually(lambda: len(receiver.received) >= share, what="some arrive")  # noqa: B023
        proxy.stop()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(proxy.url)
        proxy.start()

    eventually(lambda: holdfast.queue_stats("shop").depth == 0, what="all are settled", timeout=PATIENCE)

    assert {int(body) for body in receiver.bodies()} == {*range(100)}


def test_what_allows_nothing_is_refused_by_the_command(database_url: str) -> None:
    for options, named in ((["--allow", "10.0.0.0/99"], "--allow"), ([], "HOLDFAST_ALLOW")):
        ended = subprocess.run(
            [str(PROGRAM), "dispatch", *options],
            env=environment(database_url, HOLDFAST_ALLOW="" if options else "10.0.0.0/99"),
            capture_output=True,
            text=True,
        )

        assert ended.returncode == 2
        assert named in ended.stderr
        assert "allows nothing" in ended.stderr
