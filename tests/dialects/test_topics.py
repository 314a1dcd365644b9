"""The topics dialect, held against its page: the claims of the page, and its examples as they stand there.

These are the claims, sentence by sentence; docs/dialects/topics.md says which hold, and which do not and why.
A test that pins some says so: @pins(…).

1. A queue is a topic created with type "queue"
2. Writing, reading, deletion and watch work on a queue, with priority, tombstones and node filtering
3. A log rejects every queue endpoint with 409 not_a_queue
4. Queue endpoints never auto-create
5. You POST records into a queue; each is a job, identified by its $seq
6. The durability of jobs follows the topic's durable and durability
7. Who holds what is a projection of an append-only leases log
8. A claim leases up to N jobs to the node, with data, a lease_id and a deadline
9. The worker acks, nacks or extends
10. A lease whose deadline passes makes its job claimable again
11. After too many deliveries a job can be dead-lettered
12. The ack of a worker whose job was reclaimed by another is skipped
13. An ack past the deadline is skipped
14. Claim order is roughly seq order
15. A single worker sees near-FIFO
16. leases_durable defaults to false
17. A restart loses no job; one without a lease is claimable at once
18. An acked job stays gone across a crash iff its delete was durable
19. The queue's fields go in the same configuration object
20. type is immutable: a PUT that changes it is 409 topic_exists_incompatible
21. The PUT of the example makes a durable queue with dead-lettering after 5 deliveries
22. lease_ms is 30000 by default, clamped to 100 and 86400000
23. claim_jitter_ms is 0 by default, clamped to 0 and 5000
24. max_deliveries is 0 by default: unlimited
25. dead_letter is null by default, and must differ from the topic
26. The POST of the example appends a job
27. A job is claimable iff it is not acked and not leased
28. Each claim increments the job's delivery counter
29. node is required
30. max is 1 by default, clamped to 1000; fewer jobs are no error
31. lease_ms of a claim overrides the topic's, within the same bounds
32. The answer has topic, claimed, count, ready, performance
33. claimed is ascending by $seq, with $ts and data, $tag and meta where there are some
34. A lease_id is "lease_" and hex, one for each delivery
35. deadline is the time of the claim plus the lease, in ms
36. deliveries starts at 1
37. ready counts what still waits after the claim
38. claim refuses with 400, 404, 409, 429
39. The ack is the delete
40. Only the current holder's ack counts
41. An ack takes 1 to 1000 seqs
42. lease_ids fence: a token that is not the current lease's is skipped; without them node and seqs decide
43. What is not held by the node is skipped, and reported; acks are safe to retry
44. The answer has acked, skipped, ready, in_flight
45. fsync_ms is above 0 on a durable queue only
46. Bad acks, nacks and extends are 400, 404 without the topic, 409 for a log; over 1000 seqs batch_too_large
47. A nack releases at once, or after delay_ms
48. delay_ms is clamped to 0 and 86400000
49. What the node does not hold is skipped by nack
50. A nacked job's next claim counts one more, and it can be dead-lettered
51. The answer has nacked, skipped, ready, in_flight; a delayed job is not ready
52. Extend sets the deadline, it does not add to it
53. lease_ms is required by extend, and clamped
54. A job that was reclaimed cannot be extended: it is skipped
55. Extending does not change the delivery counter
56. The answer has extended, skipped, and deadlines by seq
57. Expiry is lazy, without timers
58. Expired jobs, and delayed ones whose time has come, are handed out before fresh ones
59. With claim_jitter_ms 0 the first to come takes from the head
60. With a window, what is there is divided evenly, in proportion to max
61. Ten claims of max 10 on 50 jobs get about 5 each
62. work streams take part in the same cohort
63. One coordinator serves the cohort of a pass
64. When it would be delivered for the (max_deliveries + 1)-th time, a job is moved instead
65. The moved record keeps $tag, meta and data, and is gone from the queue
66. It has $dead_letter_from, $dead_letter_deliveries and $dead_letter_src_seq in its meta
67. With max_deliveries 0 or dead_letter null it is reclaimed for ever
68. Each move increments dead_lettered
69. The dead-letter topic is an ordinary one, log or queue, to be read, or sent back by reading and
   producing
70. A moved copy honours the class of the dead-letter topic
71. GET on a queue has type and queue beside the topic's state
72. ready includes jobs whose lease has run out, or whose delay has passed
73. in_flight counts jobs with a lease that has not run out
74. dead_lettered counts over the topic's life, and starts anew when it is made again
75. ready and in_flight add up to the live jobs, but for delayed ones
76. diff and watch never claim, ack or change leases
77. work keeps up to max jobs in flight on a connection, and refills as they are acked
78. work takes a key for reading and writing
79. work takes node, max (1, clamped to 1000) and lease_ms
80. A token in the query is for development only
81. The stream has the headers of SSE, and opens with retry 2000 and a heartbeat
82. A job event has the $seq as its id, and what a claim shows, with the topic
83. Heartbeats come when nothing else does
84. When the connection drops, what was delivered on it is claimable at once
85. Leases from claims by the same node are not touched by that
86. Lease expiry covers crashes that nobody sees
87. An error event has an HTTP status as code; 429 is advice to slow down; terminal ones close the stream,
   such as 409 when the topic is no queue any more
88. work refuses with 400, 404, 406, 409, 429
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.dialects.conftest import At
from tests.dialects.pins import claimed, listed, pinned, pins, verdicts
from tests.dialects.seeds import page
from tests.dialects.topics import Json, Topics
from tests.docs.pages import DOCS, blocks

# The requests of the page, as they stand there.
STEP = re.compile(r"(?P<commands>(?:(?!# ).*\n)+)# (?P<promise>.*)\n")  # what is typed, and what it prints
MARK = "\x1e"

CREATE = """\
curl -X PUT $TOPICS/v0/topics/transcode \\
-H 'content-type: application/json' \\
-d '{ "type": "queue", "durable": true, "discard": "reject",
"lease_ms": 30000, "claim_jitter_ms": 0,
"max_deliveries": 5, "dead_letter": "transcode.dlq" }'"""
PRODUCE = """\
curl -X POST $TOPICS/v0/topics/transcode \\
-H 'content-type: application/json' \\
-d '{ "records": [ { "data": { "type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p" },
"tag": "clip-8800" } ] }'"""  # noqa: E501 - as it stands there
WORK = """\
curl -N "$TOPICS/v0/topics/transcode/work?node=api-fra-1&max=8" \\
-H 'accept: text/event-stream'"""
CLAIM = '{ "node": "api-fra-1", "max": 16, "lease_ms": 30000 }'
ACK = '{ "node": "api-fra-1", "seqs": [480101, 480104], "lease_ids": ["lease_1a2b", "lease_3c4d"] }'
NACK = '{ "node": "api-fra-1", "seqs": [480104], "delay_ms": 0, "lease_ids": ["lease_3c4d"] }'
EXTEND = '{ "node": "api-fra-1", "seqs": [480101], "lease_ms": 30000, "lease_ids": ["lease_1a2b"] }'
# And its answers.
CLAIMED = """\
{
"topic": "transcode",
"claimed": [
{ "$seq": 480101, "lease_id": "lease_7f3a9c", "deadline": 1748450039000,
"$ts": 1748450001000, "$tag": "clip-8800", "deliveries": 1,
"data": { "type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p" }, "meta": { "trace": "z9" } },
{ "$seq": 480104, "lease_id": "lease_7f3a9d", "deadline": 1748450039000,
"$ts": 1748450001050, "deliveries": 2,
"data": { "type": "thumbnail", "src": "s3://uploads/clip-8804.mov", "at_sec": 5 } }
],
"count": 2,
"ready": 840,
"performance": { "server_total_ms": 0.42, "throttle_wait_ms": 0.0 }
}"""  # noqa: E501 - as it stands there
JOB = (
    '{"topic":"transcode","$seq":480101,"lease_id":"lease_7f3a9c","deadline":1748450039000,"$ts":1748450001000,'
    '"$tag":"clip-8800","deliveries":1,"data":{"type":"transcode","src":"s3://uploads/clip-8800.mov",'
    '"preset":"h264-1080p"}}'
)
FRAME = f"""\
id: 480101
event: job
data: {JOB}
: hb"""  # on the page without the empty line
ACKED = """\
{ "topic": "transcode", "acked": 2, "skipped": [],
"ready": 840, "in_flight": 286,
"performance": { "server_total_ms": 0.30, "fsync_ms": 0.21 } }"""
NACKED = """\
{ "topic": "transcode", "nacked": 1, "skipped": [],
"ready": 841, "in_flight": 285,
"performance": { "server_total_ms": 0.18 } }"""
EXTENDED = """\
{ "topic": "transcode", "extended": 1, "skipped": [],
"deadlines": { "480101": 1748450069000 },
"performance": { "server_total_ms": 0.12 } }"""
STATE = """\
{
"topic": "transcode", "type": "queue",
"head_seq": 480231, "earliest_seq": 479101, "count": 1130,
"config": { "type": "queue", "lease_ms": 30000 },
"queue": { "ready": 842, "in_flight": 288, "dead_lettered": 4 },
"performance": { "server_total_ms": 0.06 }
}"""
EXAMPLES = (
    CREATE, PRODUCE, WORK, CLAIM, ACK, NACK, EXTEND, CLAIMED, FRAME, ACKED, NACKED, EXTENDED, STATE
)  # fmt: skip

FIRST, SECOND = 480_101, 480_104
T0_MS = 1_893_456_000_000
CLIP = {"type": "transcode", "src": "s3://uploads/clip-8800.mov", "preset": "h264-1080p"}
THUMBNAIL = {"type": "thumbnail", "src": "s3://uploads/clip-8804.mov", "at_sec": 5}
NEXT_NUMBER = """
select setval(l.ids, %s + (l.id::bigint << 40))
from holdfast.lane l join holdfast.queue q on q.id = l.queue_id where q.name = 'transcode'
"""

Typed = Callable[[str], Json]


# --- the claims ----------------------------------------------------------------------------------


def test_the_claims_above_are_those_of_the_documentation() -> None:
    assert listed(__doc__ or "") == claimed("topics")


def test_every_claim_is_pinned_and_every_pin_is_a_claim() -> None:
    assert pinned("topics") == set(claimed("topics")) == set(range(1, 89))


def test_of_every_claim_it_is_said_whether_it_holds() -> None:
    unclear = {
        number: verdict
        for number, verdict in verdicts("topics").items()
        if not re.match(r"(same\b(?!, (but|except))|differs, because )", verdict)
    }

    assert unclear == {}


def test_the_examples_here_are_those_of_the_page() -> None:
    # Where the page is not there, the summary of the run says so.
    text = page("topics")

    assert [example for example in EXAMPLES if text is not None and example not in text] == []


def test_every_example_of_the_page_is_among_them() -> None:
    left = page("topics")
    if left is None:
        return
    for example in EXAMPLES:
        left = left.replace(example, "")

    assert re.findall(r"^(?:curl |\{|id: ).*", left, re.MULTILINE) == []


# --- the examples --------------------------------------------------------------------------------


@pytest.fixture
def typed(topics: Topics) -> Typed:
    """Types a command of the page into a shell; returns what curl printed, as JSON."""
    bash, curl = shutil.which("bash"), shutil.which("curl")
    if bash is None or curl is None:
        pytest.fail("the page needs curl and bash, and the machine lacks one: apt-get install curl bash")

    def run(command: str) -> Json:
        variables = {"PATH": os.environ["PATH"], "TOPICS": topics.address}
        done = subprocess.run(
            [bash, "-uc", command.replace("curl ", "curl -s ")],
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return json.loads(done.stdout)

    return run


@pytest.fixture
def transcode(topics: Topics, typed: Typed, module_url: str, at: At) -> Topics:
    """The queue of the page, whose next jobs have the numbers of the page; both were claimed once."""
    topics.ok("DELETE", "/v0/topics/transcode")
    typed(CREATE)
    next_number(module_url, FIRST)
    typed(PRODUCE)
    topics.append("transcode", "between", "between")
    topics.append("transcode", THUMBNAIL)
    topics.settle("ack", "transcode", between(topics), node="api-fra-1")
    return topics


def next_number(url: str, seq: int) -> None:
    """The next job of the page's queue gets this number."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(NEXT_NUMBER, [seq - 1])


def between(topics: Topics) -> list[int]:
    """Claim all, give the second back once, the first as if nothing had been; the others remain leased."""
    claimed = topics.claim("transcode", "api-fra-1", max=4)
    seqs = [job["$seq"] for job in claimed]
    assert seqs == [FIRST, FIRST + 1, FIRST + 2, SECOND]
    topics.settle("nack", "transcode", [SECOND], node="api-fra-1")
    return seqs[1:3]


@pins(21)
def test_the_put_of_the_page_makes_its_queue(topics: Topics, typed: Typed) -> None:
    topics.ok("DELETE", "/v0/topics/transcode")

    made = typed(CREATE)

    wanted = {"type": "queue", "durable": True, "discard": "reject", "lease_ms": 30_000}
    wanted |= {"claim_jitter_ms": 0, "max_deliveries": 5, "dead_letter": "transcode.dlq"}
    assert (made["topic"], made["created"]) == ("transcode", True)
    assert {field: made["config"][field] for field in wanted} == wanted


@pins(26)
def test_the_post_of_the_page_appends_its_job(topics: Topics, typed: Typed) -> None:
    topics.ok("DELETE", "/v0/topics/transcode")
    typed(CREATE)

    answer = typed(PRODUCE)

    assert (answer["seqs"], answer["created"]) == ([1], False)
    (record,) = topics.diff("transcode", include_tags=True)["records"]
    assert (record["data"], record["$tag"]) == (CLIP, "clip-8800")


@pins(8, 32, 33)
def test_the_claim_of_the_page_answers_as_it_shows(
    topics: Topics, typed: Typed, module_url: str, at: At
) -> None:
    topics.ok("DELETE", "/v0/topics/transcode")
    typed(CREATE)
    next_number(module_url, SECOND)
    topics.append("transcode", THUMBNAIL)
    topics.claim("transcode", "api-fra-1")
    topics.settle("nack", "transcode", [SECOND], node="api-fra-1")
    next_number(module_url, FIRST)
    record = {"data": CLIP, "tag": "clip-8800", "meta": {"trace": "z9"}}
    topics.ok("POST", "/v0/topics/transcode", {"records": [record]})

    answer = topics.call("POST", "/v0/topics/transcode/claim", json.loads(CLAIM)).json()

    expected = json.loads(CLAIMED)
    assert set(answer.pop("performance")) == set(expected.pop("performance"))
    now = {"deadline": T0_MS + 30_000, "$ts": T0_MS}
    shown = [without_lease(job) | now for job in expected.pop("claimed")]
    assert [without_lease(job) for job in answer.pop("claimed")] == shown
    assert answer == {**expected, "ready": 0}


def without_lease(job: Json) -> Json:
    """A job without its lease id, which is another one each time."""
    assert re.fullmatch("lease_[0-9a-f]+", job["lease_id"])
    return {field: value for field, value in job.items() if field != "lease_id"}


@pytest.mark.parametrize(
    ("verb", "request_", "answer"),
    [("ack", ACK, ACKED), ("nack", NACK, NACKED), ("extend", EXTEND, EXTENDED)],
)
@pins(42, 44, 51, 56)
def test_the_settlements_of_the_page_answer_as_it_shows(
    transcode: Topics, verb: str, request_: str, answer: str
) -> None:
    transcode.claim("transcode", "api-fra-1", max=16)
    asked = json.loads(request_)
    path = f"/v0/topics/transcode/{verb}"

    stale = transcode.call("POST", path, asked).json()  # its lease ids are another day's
    asked.pop("lease_ids")
    done = transcode.call("POST", path, asked).json()

    expected = json.loads(answer)
    changed: dict[str, Any] = {
        "ack": {"ready": 0, "in_flight": 0},
        "nack": {"ready": 1, "in_flight": 1},
        "extend": {"deadlines": {str(FIRST): T0_MS + 30_000}},
    }
    performance = done.pop("performance")
    assert set(performance) == set(expected.pop("performance"))
    assert done == {**expected, **changed[verb]}
    assert stale["skipped"] == asked["seqs"]


@pins(71)
def test_the_state_of_the_page_has_what_it_shows(transcode: Topics) -> None:
    state = transcode.call("GET", "/v0/topics/transcode").json()

    expected = json.loads(STATE)
    config, wanted = state.pop("config"), expected.pop("config")
    assert {field: config[field] for field in wanted} == wanted
    assert set(state) == set(expected)
    numbers = {"head_seq": SECOND, "earliest_seq": FIRST, "count": 2}
    assert {field: state[field] for field in numbers} == numbers
    assert state["queue"] == {"ready": 1, "in_flight": 1, "dead_lettered": 0}


@pins(81, 82)
def test_the_stream_of_the_page_pushes_jobs_as_it_shows_them(transcode: Topics) -> None:
    transcode.settle("nack", "transcode", [FIRST], node="api-fra-1")
    curl = WORK.replace("curl ", "exec curl -s ").replace("$TOPICS", transcode.address)
    bash = shutil.which("bash")
    assert bash is not None
    with subprocess.Popen([bash, "-c", curl], stdout=subprocess.PIPE, text=True) as stream:
        assert stream.stdout is not None
        opening = [stream.stdout.readline().rstrip("\n") for _ in range(4)]
        frame = [stream.stdout.readline().rstrip("\n") for _ in range(4)]
        stream.terminate()

    job = json.loads(frame[2].removeprefix("data: "))
    shown = json.loads(JOB)
    assert opening == ["retry: 2000", "", ": hb", ""]
    assert [frame[0], frame[1], frame[3]] == [f"id: {FIRST}", "event: job", ""]
    assert list(job) == list(shown)
    assert without_lease(job) == {
        **without_lease(shown),
        "deliveries": 2,
        "$ts": T0_MS,
        "deadline": T0_MS + 30_000,
    }


def test_the_example_of_the_documentation_runs(topics: Topics, typed: Typed) -> None:
    topics.ok("DELETE", "/v0/topics/transcode")
    text = (DOCS / "dialects" / "topics.md").read_text(encoding="utf-8")
    block = text[text.index("    export TOPICS=") : text.index("## Routes")]
    commands = re.findall(r"^    (curl -X (?:.|\n)*?)$(?=\n    curl|\n\n)", block, re.MULTILINE)

    put, post, claim, ack = [typed(command) for command in commands]

    assert (put["created"], post["seqs"], claim["count"], ack["acked"]) == (True, [1], 1, 1)


def test_every_command_of_the_documentation_answers_as_it_says(topics: Topics) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    steps = [
        (step["commands"], step["promise"])
        for language, block in blocks(DOCS / "dialects" / "topics.md")
        if language == "sh"
        for step in STEP.finditer(block)
    ]
    page = "".join(f"{commands}\nprintf '\\n{MARK}\\n'\n" for commands, _ in steps)

    done = subprocess.run(
        [bash, "-us"],
        input=f"curl() {{ command curl -s \"$@\"; }}\n{page}",
        env={"PATH": os.environ["PATH"], "TOPICS": topics.address},
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
