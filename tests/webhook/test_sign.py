"""Signatures: what the library of Standard Webhooks accepts, and nothing that it would not."""

from __future__ import annotations

import time
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from holdfast.webhook.sign import key_of, signature, signed_headers

OLD, NEW, OTHER = ("whsec_" + b64encode(letter * 24).decode() for letter in (b"o", b"n", b"x"))
BODY = b'{"order": 7, "name": "\xc3\xa4"}'


def headers(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    return signed_headers([key_of(secret) for secret in secrets], "msg_7", int(time.time()), body)


def test_the_example_of_the_standard_is_signed_the_same() -> None:
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')

    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_library_takes_what_is_signed() -> None:
    assert Webhook(NEW).verify(BODY, headers(NEW)) == {"order": 7, "name": "ä"}


def test_while_secrets_rotate_each_of_them_verifies() -> None:
    signed = headers(NEW, OLD)

    assert len(signed["webhook-signature"].split(" ")) == 2
    for secret in (NEW, OLD):
        Webhook(secret).verify(BODY, signed)


def test_a_secret_that_was_not_used_does_not_verify() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers(NEW, OLD))


@pytest.mark.parametrize("changed", ["webhook-id", "webhook-timestamp"])
def test_a_header_that_was_changed_does_not_verify(changed: str) -> None:
    signed = headers(NEW)
    signed[changed] = {"webhook-id": "msg_8", "webhook-timestamp": str(int(time.time()) - 1)}[changed]

    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(BODY, signed)


@given(st.text(), st.binary(min_size=24, max_size=64))
def test_the_library_takes_any_text_under_any_key(text: str, key: bytes) -> None:
    secret = "whsec_" + b64encode(key).decode()
    body = text.encode(errors="replace")

    Webhook(secret).verify(body, headers(secret, body=body), json_parse=False)


def test_without_a_secret_there_is_an_id_and_a_time_but_no_signature() -> None:
    assert set(headers()) == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_AAAA!", "whsec_" + "A" * 400, "AAAAä"])
def test_what_is_no_secret_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(ValueError, match="a signing secret") as refused:
        key_of(secret)
    assert "AAAA" not in str(refused.value)
