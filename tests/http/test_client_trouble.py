"""The client over HTTP when things go wrong. Claims pinned here:

1. What the server has certainly not done is asked again, for as long as the client's patience.
2. What it may have done is asked again only if a second time changes nothing more.
3. Retry-After is honoured; where it is longer than the patience, the error is raised at once.
4. Whatever comes back that is not Holdfast's is an error that says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import (
    ERRORS,
    HoldfastError,
    HttpHoldfast,
    LeaseLostError,
    NewMessage,
    OutcomeUnknownError,
    QueueFullError,
    TooManyRequestsError,
    UnavailableError,
    UnexpectedAnswerError,
)
from tests.http.scripted import CUT, SILENCE, Answer, Scripted, refusal

Call = Callable[[HttpHoldfast], Any]

SENT = Answer(201, {"ids": ["1"]})
SETTLED = Answer(200, {"settled": ["1"], "skipped": []})
NOTHING = Answer(200, {"messages": []})
GONE = refusal("QH930", 503, after=0)
PERHAPS = refusal("QH932", 503, after=0)

REPEATABLE: list[tuple[str, Call, Answer]] = [
    ("send with a key", lambda c: c.send("q", 1, idempotency_key="a"), SENT),
    ("send_batch with a key", lambda c: c.send_batch("q", [1], idempotency_key="a"), SENT),
    ("send_many with keys", lambda c: c.send_many("q", [NewMessage(idempotency_key="a")]), SENT),
    ("ack", lambda c: c.ack("q", 1), SETTLED),
    ("nack", lambda c: c.nack("q", 1), SETTLED),
    ("release", lambda c: c.release("q", 1), SETTLED),
    ("extend", lambda c: c.extend("q", 1), SETTLED),
    ("claim", lambda c: c.claim("q"), NOTHING),
    ("next", lambda c: c.next("q", 1), NOTHING),
    ("browse", lambda c: c.browse("q"), NOTHING),
    ("holders", lambda c: c.holders("q", [1]), Answer(200, {"holders": []})),
    ("create_queue", lambda c: c.create_queue("q"), Answer(201, {"created": True})),
    ("pause_queue", lambda c: c.pause_queue("q"), Answer(200, {"changed": True})),
    ("configure_queue", lambda c: c.configure_queue("q", {}), Answer(200, {})),
]
NOT_REPEATABLE: list[tuple[str, Call, Answer]] = [
    ("send", lambda c: c.send("q", 1), SENT),
    ("send with a key that replaces", lambda c: c.send("q", 1, key="a"), SENT),
    ("send_batch", lambda c: c.send_batch("q", [1]), SENT),
    ("send_many with one key", lambda c: c.send_many("q", [1, NewMessage(idempotency_key="a")]), SENT),
    ("strict ack", lambda c: c.ack("q", 1, strict=True), SETTLED),
    ("strict next", lambda c: c.next("q", 1, strict=True), NOTHING),
    ("redrive", lambda c: c.redrive("q"), NOTHING),
    ("purge", lambda c: c.purge("q", ["ready"]), Answer(200, {"purged": 1, "more": False})),
    ("discard", lambda c: c.discard("q", [1]), Answer(200, {"ids": ["1"]})),
    ("take_rate", lambda c: c.take_rate("a", 1), Answer(200, {})),
]


def client(server: Scripted, **options: Any) -> HttpHoldfast:
    """A client of a scripted server."""
    return HttpHoldfast(server.url, **{"patience": 20.0, **options})


def tries(answers: list[Answer], call: Call) -> int:
    """How often a call was made, until its answer was taken."""
    with Scripted(answers) as server, client(server) as holdfast:
        call(holdfast)
        return len(server.asked)


# --- 1. certainly not done -----------------------------------------------------------------------


@pytest.mark.parametrize(("name", "call", "answer"), REPEATABLE + NOT_REPEATABLE[:-1])
def test_what_the_server_did_not_take_is_sent_again(name: str, call: Call, answer: Answer) -> None:
    assert tries([GONE, GONE, answer], call) == 3


def test_a_server_that_nobody_reaches_is_unavailable() -> None:
    with Scripted([]) as server:
        url = server.url

    with HttpHoldfast(url, patience=0.3) as holdfast, pytest.raises(UnavailableError) as caught:
        holdfast.send("q", 1)

    assert (caught.value.code, caught.value.message) == ("QH930", f"no server answers at {url}")
    assert "Nothing was done" in (caught.value.detail or "")


# --- 2. perhaps done -----------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [CUT, PERHAPS, Answer(502, text="<html>Bad Gateway</html>")])
@pytest.mark.parametrize(("name", "call", "answer"), REPEATABLE)
def test_what_may_be_done_twice_is_sent_again(name: str, call: Call, answer: Answer, trouble: Answer) -> None:
    assert tries([trouble, answer], call) == 2


@pytest.mark.parametrize("trouble", [CUT, PERHAPS, Answer(504, text="")])
@pytest.mark.parametrize(("name", "call", "answer"), NOT_REPEATABLE)
def test_what_may_not_be_done_twice_is_not_sent_again(
    name: str, call: Call, answer: Answer, trouble: Answer
) -> None:
    with Scripted([trouble, answer]) as server, client(server) as holdfast:
        with pytest.raises(OutcomeUnknownError) as caught:
            call(holdfast)

        assert len(server.asked) == 1
    assert caught.value.code == "QH932"


def test_an_answer_that_takes_too_long_leaves_the_outcome_unknown() -> None:
    with (
        Scripted([SILENCE]) as server,
        client(server, timeout=0.2) as holdfast,
        pytest.raises(OutcomeUnknownError, match="timed out"),
    ):
        holdfast.send("q", 1)


# --- 3. when to come again -----------------------------------------------------------------------


def test_a_limited_request_is_sent_again_after_the_time_that_the_server_says() -> None:
    assert tries([refusal("QH922", 429, after=1), SENT], lambda c: c.send("q", 1)) == 2


def test_a_wait_that_is_longer_than_the_patience_is_the_callers_to_make() -> None:
    with Scripted([refusal("QH922", 429, after=60)]) as server, client(server) as holdfast:
        with pytest.raises(TooManyRequestsError) as caught:
            holdfast.send("q", 1)

        assert len(server.asked) == 1
    assert caught.value.retry_after == 60


def test_without_patience_nothing_is_repeated() -> None:
    with Scripted([GONE, SENT]) as server, client(server, patience=0) as holdfast:
        with pytest.raises(UnavailableError):
            holdfast.send("q", 1)

        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal("QH209", 429, after=1), QueueFullError),
        (refusal("QH304", 409), LeaseLostError),
        (refusal("QH931", 500), ERRORS["QH931"]),
        (refusal("QH920", 401), ERRORS["QH920"]),
    ],
)
def test_other_refusals_are_raised_at_once(answer: Answer, kind: type[HoldfastError]) -> None:
    with Scripted([answer]) as server, client(server) as holdfast:
        with pytest.raises(kind) as caught:
            holdfast.claim("q")

        assert len(server.asked) == 1
    assert (caught.value.message, caught.value.detail, caught.value.hint) == ("no", "because", "go on")


def test_a_code_that_is_not_known_becomes_a_plain_error() -> None:
    with (
        Scripted([refusal("QH999", 418)]) as server,
        client(server) as holdfast,
        pytest.raises(HoldfastError) as caught,
    ):
        holdfast.claim("q")

    assert type(caught.value) is HoldfastError
    assert caught.value.code == "QH999"


# --- 4. somebody else's answers ------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        Answer(404, text="<html>not here</html>"),
        Answer(200, text="<html>welcome</html>"),
        Answer(302, text=""),
        Answer(200, {"news": []}),
        Answer(200, {"messages": [{"id": "1"}]}),
        Answer(200, {"messages": 7}),
        Answer(500, {"error": "no"}),
        Answer(200, text="\udcff"),
    ],
    ids=lambda answer: ascii(answer.text or answer.document),
)
def test_an_answer_of_another_shape_is_not_holdfasts(answer: Answer) -> None:
    with (
        Scripted([answer]) as server,
        client(server) as holdfast,
        pytest.raises(UnexpectedAnswerError) as caught,
    ):
        holdfast.claim("q")

    assert caught.value.code == "QH933"
    assert caught.value.hint


def test_fields_that_this_client_does_not_know_are_passed_over() -> None:
    answer = Answer(200, {"settled": ["1"], "skipped": [], "news": {}})

    with Scripted([answer]) as server, client(server) as holdfast:
        assert holdfast.ack("q", 1).settled == [1]


def test_no_secret_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Scripted([CUT]) as server:
        url = server.url.replace("//", "//user:hidden@")
        holdfast = HttpHoldfast(url, key="hf_secret", patience=0)
        with holdfast, pytest.raises(OutcomeUnknownError) as caught:
            holdfast.send("q", 1)

    assert "hidden" not in str(caught.value)
    assert "hf_secret" not in str(caught.value) + repr(holdfast) + caplog.text
