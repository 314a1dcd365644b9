"""What to do is told in requests: hints of errors, and remedies of `why`; to the Python client, in verbs."""

from __future__ import annotations

import re

import pytest

from holdfast import Holdfast, HttpHoldfast
from holdfast.client import QueueNotFoundError
from holdfast.client._hints import in_verbs
from holdfast.migrate import SQL_ROOT
from holdfast.server.advice import advice
from tests.fix_http import Caller


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Create it with holdfast.create_queue, or", "Create it with PUT /v1/queues/{queue}, or"),
        ("Raise it with configure_queue if", "Raise it with PATCH /v1/queues/{queue} if"),
        ("holdfast.keys() lists them.", "GET /v1/keys lists them."),
        ("in SQL, holdfast.leases says", "GET /v1/queues/{queue}/leases says"),
        ("now: select holdfast.sweep('a b').", "now: POST /v1/queues/a%20b/sweep."),
        ("holdfast.browse('q', 'dead')", "GET /v1/queues/q/messages?state=dead"),
        (
            "select holdfast.unblock('q', E'a\\\\b', how => 'skip').",
            'POST /v1/queues/q/unblock with {"key": "a\\\\b", "how": "skip"}.',
        ),
        ("holdfast.drop_service('shop', forget => true)", "DELETE /v1/services/shop?forget=true"),
        ("select holdfast.repair(unreadable_only => true)", 'POST /v1/repair with {"unreadable_only": true}'),
        ("select pg_terminate_backend(7)", "select pg_terminate_backend(7)"),
        ("Producers with keys wait with next to nothing.", "Producers with keys wait with next to nothing."),
    ],
)
def test_a_call_becomes_a_request(text: str, expected: str) -> None:
    assert advice(text) == expected


def test_every_function_that_the_engine_names_has_a_request() -> None:
    source = (SQL_ROOT / "install.sql").read_text()
    texts = re.findall(r"'((?:[^'\n]|'')*\bholdfast\.[a-z](?:[^'\n]|'')*)'", source)
    advised = [text for text in texts if re.search(r"[.:;] |\.$", text) and not text.startswith("Usage")]

    assert len(advised) > 10
    assert [text for text in map(advice, advised) if re.search(r"holdfast\.[a-z_]+\b", text)] == []


def test_hints_and_remedies_come_as_requests(http: Caller, engine: Holdfast) -> None:
    engine.create_queue("orders")
    engine.send("orders", 1)
    engine.pause_queue("orders")

    error = http.refused("POST", "/v1/queues/nowhere/claim", {}, status=404, code="QH101")
    findings = http.ok("GET", "/v1/queues/orders/why")["findings"]

    assert error["hint"] == "Create it with PUT /v1/queues/{queue}, or check the spelling."
    assert [each["remedy"] for each in findings if each["finding"] == "paused"] == [
        "Resume it: POST /v1/queues/orders/resume."
    ]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("Create it with PUT /v1/queues/{queue}, or", "Create it with create_queue, or"),
        ("Change it with PATCH /v1/queues/{queue}.", "Change it with configure_queue."),
        ("GET /v1/keys lists them.", "keys lists them."),
        ("Resume it: POST /v1/queues/a%20b/resume.", "Resume it: resume_queue('a b')."),
        ("GET /v1/queues/q/messages?state=dead", "browse('q', state='dead')"),
        ('POST /v1/queues/q/unblock with {"key": "a", "how": "skip"}.', "unblock('q', key='a', how='skip')."),
        ('Say PATCH /v1/queues/q with {"shards": 4}.', "Say configure_queue('q', {'shards': 4})."),
        ("POST /v1/repair", "repair"),
        ("GET /v1/nothing", "GET /v1/nothing"),
        ("Ask again.", "Ask again."),
        (None, None),
    ],
)
def test_a_request_becomes_a_verb_for_those_who_call_from_python(
    hint: str | None, expected: str | None
) -> None:
    assert in_verbs(hint) == expected


def test_hints_come_as_verbs_to_the_client(http: Caller) -> None:
    with HttpHoldfast(http.address) as client, pytest.raises(QueueNotFoundError) as refused:
        client.claim("nowhere")

    assert refused.value.hint == "Create it with create_queue, or check the spelling."
