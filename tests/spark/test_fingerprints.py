"""Fingerprints of errors: what differs from message to message is folded, and nothing else.

In Spark they are the same: test_insight_frames.py.
"""

from __future__ import annotations

import time

import pytest

from holdfast.spark.transforms.insights.fingerprints import LONGEST, fingerprint

CASES = {
    "card declined": "card declined",
    "  card\n\tdeclined ": "card declined",
    "timeout after 30 s": "timeout after <n> s",
    "timeout after 1.5s, limit 2,000ms": "timeout after <n>s, limit <n>ms",
    "order 7b4f6e6e-0f53-4a21-A7A5-0b1a7a7b8d11 not found": "order <uuid> not found",
    "connect to 10.0.3.7:5432 failed": "connect to <address> failed",
    "no route to fe80:0:0:1:2:3:4:5": "no route to <address>",
    "from 00:1a:2b:3c:4d:5e": "from <address>",
    "GET https" + "://shop.example/orders/17?x=1 returned 503": "GET <url> returned <n>",
    "mail to ann.b+c@shop.example bounced": "mail to <email> bounced",
    "at 2026-11-18T05:09:13.123+01:00 it broke": "at <time> it broke",
    "at 2026-11-18 05:09 it broke": "at <time> it broke",
    "KeyError: 'shipping_address'": "KeyError: <text>",
    'column "price" is null': "column <text> is null",
    "unknown «Größe» and “x” and `y`": "unknown <text> and <text> and <text>",
    "can't reach it, don't try": "can't reach it, don't try",
    "object at 0x7fB31c": "object at <hex>",
    "commit 9f8e7d6c5b4a": "commit <hex>",
    "customer ord8Fh3k2Z is gone": "customer <id> is gone",
    "order_4711 of line-12": "order_<n> of line-<n>",
    "codes QH101, utf8 and Base64Decoder stay": "codes QH101, utf8 and Base64Decoder stay",
    "Ошибка 42: zu groß für 3 Ä": "Ошибка <n>: zu groß für <n> Ä",
    "١٢٣ are not folded": "١٢٣ are not folded",
    "😀 failed 7 times": "😀 failed <n> times",
    "$1 and \\1 are text": "$<n> and \\<n> are text",
    "<script>alert(1)</script>": "<script>alert(<n>)</script>",
    "": "",
}


@pytest.mark.parametrize(("text", "folded"), CASES.items())
def test_what_differs_is_folded(text: str, folded: str) -> None:
    assert fingerprint(text) == folded


def test_a_fingerprint_of_a_fingerprint_is_the_same() -> None:
    assert [fingerprint(folded) for folded in CASES.values()] == list(CASES.values())


def test_a_fingerprint_is_short() -> None:
    assert len(fingerprint("word " * 10_000)) == LONGEST


@pytest.mark.parametrize(
    "text", ["a" * 10_000, "0" * 10_000, "a1" * 5_000, "1." * 5_000, "'\"`" * 3_000, "a:" * 5_000]
)
def test_no_text_takes_long(text: str) -> None:
    began = time.process_time()

    fingerprint(text)

    assert time.process_time() - began < 0.5
