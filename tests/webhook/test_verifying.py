"""What docs/deliveries.md gives receivers, in Python and in Node.js, takes genuine requests and no others."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.webhook.sign import key_of, signed_headers
from tests.docs.pages import DOCS, blocks
from tests.webhook.sample import SECRET

Verify = Callable[[str, dict[str, str], bytes], bool]

OLD = "whsec_" + b64encode(b"o" * 24).decode()
BODY = b'{"order": 7, "name": "\xc3\xa4", "raw": "\xff"}'
CALL = """
let text = "";
process.stdin.on("data", (chunk) => { text += chunk; }).on("end", () => {
  const { secret, headers, body } = JSON.parse(text);
  console.log(verify(secret, headers, Buffer.from(body, "base64")));
});
"""


def block(language: str) -> str:
    """The block of the page in a language that verifies."""
    (found,) = (
        text for name, text in blocks(DOCS / "deliveries.md") if name == language and "verify(" in text
    )
    return found


def in_python() -> Verify:
    """The page's function."""
    names: dict[str, Any] = {}
    exec(block("python"), names)
    verify: Verify = names["verify"]
    return verify


def in_node() -> Verify:
    """The page's function, each time in a process."""
    node = shutil.which("node")
    assert node, "node is missing: `make test` as root installs it, or: apt-get install nodejs"
    script = block("javascript") + CALL

    def verify(secret: str, headers: dict[str, str], body: bytes) -> bool:
        given = {"secret": secret, "headers": headers, "body": b64encode(body).decode()}
        ran = subprocess.run(
            [node, "-e", script], input=json.dumps(given), capture_output=True, text=True, check=True
        )
        return {"true\n": True, "false\n": False}[ran.stdout]

    return verify


@pytest.fixture(params=[in_python, in_node], ids=["python", "node"])
def verify(request: pytest.FixtureRequest) -> Verify:
    """Each of them."""
    made: Verify = request.param()
    return made


def signed(*secrets: str, seconds_ago: int = 0) -> dict[str, str]:
    """The headers of a delivery of BODY."""
    at = int(time.time()) - seconds_ago
    return signed_headers([key_of(secret) for secret in secrets], "msg_7", at, BODY)


def test_a_genuine_request_is_taken(verify: Verify) -> None:
    assert verify(SECRET, signed(SECRET), BODY)


def test_while_secrets_rotate_either_is_taken(verify: Verify) -> None:
    headers = signed(SECRET, OLD)

    assert verify(SECRET, headers, BODY)
    assert verify(OLD, headers, BODY)


def test_a_changed_body_or_header_or_another_secret_is_refused(verify: Verify) -> None:
    headers = signed(SECRET)

    assert not verify(SECRET, headers, BODY + b" ")
    assert not verify(OLD, headers, BODY)
    assert not verify(SECRET, headers | {"webhook-id": "msg_8"}, BODY)
    assert not verify(SECRET, headers | {"webhook-signature": "v1,AAAA"}, BODY)
    assert not verify(SECRET, {name: headers[name] for name in ("webhook-id", "webhook-timestamp")}, BODY)


def test_an_old_request_is_refused(verify: Verify) -> None:
    assert verify(SECRET, signed(SECRET, seconds_ago=200), BODY)
    assert not verify(SECRET, signed(SECRET, seconds_ago=400), BODY)
    assert not verify(SECRET, signed(SECRET) | {"webhook-timestamp": "soon"}, BODY)
