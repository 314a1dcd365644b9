"""The queue-ti dialect, held against its page: the claims of the page, and its examples as they stand there.

These are the claims, sentence by sentence; docs/dialects/queue_ti.md says which hold, and which do not and
why. A test that pins some says so: @pins(…).

1. A message has an id, which is a UUID, a topic, a payload, optional metadata and an optional key for
   deduplication
2. Its status is one of pending, processing, deleted, failed, expired
3. retry_count is how often it was nacked, max_retries how often it may be, last_error what the last nack said
4. visibility_timeout is when it becomes visible again, null until it is dequeued
5. expires_at is when it expires, null without a TTL
6. original_topic and dlq_moved_at say where a dead letter came from and when, and are null otherwise
7. created_at and updated_at are the timestamps of its life
8. Messages are in one table, with an index for dequeues and a unique one for the keys of pending messages
9. A dequeued message is processing, and invisible to other consumers for a configurable time, 30 seconds by
   default
10. If the consumer crashes, the time ends and the message is pending again, for another consumer
11. A dequeue can override the time, as the example does
12. Messages are never lost, and one that a consumer leaves is retried
13. A consumer may receive a message more than once
14. An acknowledged message is deleted
15. A nacked message with retries remaining, below the threshold, is pending again
16. A nacked message at the threshold moves to `<topic>.dlq`, pending, with max_retries 0
17. A requeued message is pending in its original topic, with retry_count 0 and max_retries restored
18. A pending or processing message whose TTL is over becomes expired
19. Messages without a key are inserted each time
20. A keyed message is inserted if no other message with its topic and key is pending
21. Else the pending one is replaced in place: payload, metadata, updated_at; its id stays, and there is no
    new one
22. A message that is processing is never replaced; another is inserted, which may fail
23. The example sends a message, and a newer one of the same key, and gets the same id twice
24. The oldest pending message is dequeued first, unless it is at its retry limit or has expired
25. Concurrent consumers get different messages, without waiting for each other
26. failed is a message nacked without retries remaining, where the threshold is disabled or not reached
27. deleted is a message permanently removed
28. expired is a message marked by the expiry reaper
29. In the dead-letter topic a message is not retried by itself, and its retry_count begins at 0
30. POST /api/messages/:id/requeue sends a dead letter back
31. To enqueue to a topic whose name ends in .dlq is an error
32. The expiry reaper runs every 60 seconds, unless the TTL is 0
33. It marks messages that are past their expires_at, and deletes none
34. POST /api/admin/expiry-reaper/run runs it
35. The delete reaper runs on a cron schedule; by default there is none
36. It permanently deletes messages that are expired
37. POST /api/admin/delete-reaper/run runs it
38. A topic can override max_retries
39. And message_ttl_seconds; 0 disables the TTL
40. And max_depth, of pending and processing messages; null or 0 is no limit, and what is more is answered
    with 429
41. And throughput_limit, messages dequeued in a second; null or 0 is no limit, and when it is exhausted a
    dequeue returns fewer messages, and no error
42. What a topic overrides goes before the defaults
43. A field that is left out, or null, is the default again
44. The example sets the configuration of a topic
45. The admin UI shows and edits configurations
46. Configurations are cached, as schemas are; with Redis in two tiers, for 30 seconds
47. A change of a configuration is in force at all instances by itself
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.dialects.conftest import At
from tests.dialects.pins import claimed, listed, pinned, pins, verdicts
from tests.dialects.queue_ti import Json, QueueTi, content_of
from tests.dialects.seeds import page
from tests.docs.pages import DOCS, blocks

# The requests of the page, as they stand there, and the answers to two of them.
DEQUEUE = """\
curl -X POST http://localhost:8080/api/messages/dequeue \\
  -H "Content-Type: application/json" \\
  -d '{"topic": "orders", "count": 1, "visibility_timeout_seconds": 60}'"""
ENQUEUE = """\
curl -X POST http://localhost:8080/api/messages \\
  -H "Content-Type: application/json" \\
  -d '{"topic": "orders", "key": "order-42", "payload": "eyJhbW91bnQiOjk5fQ=="}'"""
AGAIN = """\
curl -X POST http://localhost:8080/api/messages \\
  -H "Content-Type: application/json" \\
  -d '{"topic": "orders", "key": "order-42", "payload": "eyJhbW91bnQiOjEwMH0="}'"""
CONFIGURE = """\
curl -u admin:secret -X PUT http://localhost:8080/api/topic-configs/orders \\
  -H "Content-Type: application/json" \\
  -d '{
    "max_retries": 5,
    "message_ttl_seconds": 3600,
    "max_depth": 1000,
    "throughput_limit": 100
  }'"""
ENQUEUED = '{"id": "abc123"}'
EXAMPLES = (DEQUEUE, ENQUEUE, AGAIN, CONFIGURE, ENQUEUED)
STEP = re.compile(r"(?P<commands>(?:(?!# ).*\n)+)# (?P<promise>.*)\n")  # what is typed, and what it prints
MARK = "\x1e"

Typed = Callable[[str], Json]


# --- the claims ----------------------------------------------------------------------------------


def test_the_claims_above_are_those_of_the_documentation() -> None:
    assert listed(__doc__ or "") == claimed("queue_ti")


def test_every_claim_is_pinned_and_every_pin_is_a_claim() -> None:
    assert pinned("queue_ti") == set(claimed("queue_ti")) == set(range(1, 48))


def test_of_every_claim_it_is_said_whether_it_holds() -> None:
    unclear = {
        number: verdict
        for number, verdict in verdicts("queue_ti").items()
        if not re.match(r"(same\b(?!, (but|except))|differs, because )", verdict)
    }

    assert unclear == {}


def test_the_examples_here_are_those_of_the_page() -> None:
    # Where the page is not there, the summary of the run says so.
    text = page("queue-ti")

    assert [example for example in EXAMPLES if text is not None and example not in text] == []


def test_every_command_of_the_page_is_among_the_examples() -> None:
    text = page("queue-ti")

    commands = [] if text is None else re.findall(r"^curl .*", text, re.MULTILINE)
    assert [command for command in commands if not any(command in one for one in EXAMPLES)] == []


# --- the examples --------------------------------------------------------------------------------


@pytest.fixture
def typed(queue_ti: QueueTi) -> Typed:
    """Types a command of the page into a shell; returns what curl printed, as JSON."""
    bash, curl = shutil.which("bash"), shutil.which("curl")
    if bash is None or curl is None:
        pytest.fail("the page needs curl and bash, and the machine lacks one: apt-get install curl bash")

    def run(command: str) -> Json:
        here = command.replace("http://localhost:8080", queue_ti.address).replace("curl ", "curl -s ")
        variables = {"PATH": os.environ["PATH"], "QUEUE_TI": queue_ti.address, "no_proxy": "*"}
        done = subprocess.run(
            [bash, "-uc", here], env=variables, capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(done.stdout)

    return run


@pins(9, 11, 16, 21, 23, 44)
def test_the_examples_of_the_page_do_what_it_says(queue_ti: QueueTi, typed: Typed, at: At) -> None:
    config = {"max_retries": 5, "message_ttl_seconds": 3600, "max_depth": 1000, "throughput_limit": 100}

    first, second = typed(ENQUEUE), typed(AGAIN)
    configured = typed(CONFIGURE)
    (taken,) = typed(DEQUEUE)["messages"]

    assert set(first) == set(json.loads(ENQUEUED))
    assert first == second
    assert configured == {"topic": "orders", **config}
    assert (taken["id"], content_of(taken), taken["key"]) == (first["id"], b'{"amount":100}', "order-42")
    assert (taken["status"], taken["visibility_timeout"]) == ("processing", "2030-01-01T00:01:00Z")
    assert typed(DEQUEUE) == {"messages": []}
    queue_ti.nack(first["id"])
    queue_ti.fail("orders", 2)
    assert queue_ti.item("orders.dlq")["max_retries"] == 0


def test_every_command_of_the_documentation_answers_as_it_says(queue_ti: QueueTi) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    steps = [
        (step["commands"], step["promise"])
        for language, block in blocks(DOCS / "dialects" / "queue_ti.md")
        if language == "sh"
        for step in STEP.finditer(block)
    ]
    script = "".join(f"{commands}\nprintf '\\n{MARK}\\n'\n" for commands, _ in steps)

    done = subprocess.run(
        [bash, "-us"],
        input=f'curl() {{ command curl -s "$@"; }}\n{script}',
        env={"PATH": os.environ["PATH"], "QUEUE_TI": queue_ti.address, "KEY": "hf_none"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    printed = [part.strip() for part in done.stdout.split(MARK)[:-1]]
    assert (len(printed), done.stderr) == (len(steps), "")
    assert len(steps) >= 15
    for (commands, promise), line in zip(steps, printed, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, promise.split("…"))), line), (commands, promise, line)
