"""Fingerprints of errors: what is left of a text when all that differs from message to message is folded.

The rules are regular expressions that mean the same in Java and in Python: they name their characters. Every
run is bounded, or ends where another character begins, so that no text takes long. They apply in turn.
"""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

LONGEST_TEXT = 1000  # characters that are looked at
LONGEST = 200  # characters of a fingerprint
RULES: tuple[tuple[str, str], ...] = (
    (r"[\x00-\x20\x7f]+", " "),
    (r"[A-Za-z][A-Za-z0-9+.-]{1,20}://[^ \"'<>]+", "<url>"),
    (r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,200}", "<email>"),
    (r"(?<![A-Za-z0-9])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![A-Za-z0-9])", "<uuid>"),
    (
        r"(?<![0-9])[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2})?(?:[.,][0-9]{1,9})?"
        r"(?:Z|[+-][0-9]{2}:?[0-9]{2})?",
        "<time>",
    ),
    (r"(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]{1,5})?(?![0-9.])", "<address>"),
    (r"(?<![0-9A-Za-z:])(?:[0-9a-fA-F]{1,4}:){3,7}:?[0-9a-fA-F]{1,4}(?![0-9A-Za-z:])", "<address>"),
    (r"\"[^\"]{0,500}\"", "<text>"),
    (r"«[^»]{0,500}»", "<text>"),
    (r"“[^”]{0,500}”", "<text>"),
    (r"`[^`]{0,500}`", "<text>"),
    (r"(?<![A-Za-z0-9])'[^']{0,500}'(?![A-Za-z0-9])", "<text>"),
    (r"0[xX][0-9a-fA-F]+", "<hex>"),
    (r"(?<![A-Za-z0-9])(?=[a-f]{0,64}[0-9])(?=[0-9]{0,64}[a-f])[0-9a-f]{8,64}(?![A-Za-z0-9])", "<hex>"),
    # Letters and digits mixed, enough of both to be an id: not a word like utf8, QH101 or Base64Decoder.
    (
        r"(?<![A-Za-z0-9])(?=(?:[A-Za-z]{0,64}[0-9]){3})(?=[0-9]{0,64}[A-Za-z])[A-Za-z0-9]{8,64}(?![A-Za-z0-9])",
        "<id>",
    ),
    (r"(?<![A-Za-z0-9])[0-9]+(?:[.,:][0-9]+)*", "<n>"),
)
_COMPILED = tuple((re.compile(pattern), folded) for pattern, folded in RULES)


def fingerprint(text: str) -> str:
    """The fingerprint of an error."""
    found = text[:LONGEST_TEXT]
    for pattern, folded in _COMPILED:
        found = pattern.sub(folded, found)
    return found.strip(" ")[:LONGEST]


def fingerprinted(text: Column) -> Column:
    """The same for a column."""
    found = F.substring(text, 1, LONGEST_TEXT)
    for pattern, folded in RULES:
        found = F.regexp_replace(found, pattern, folded)
    return F.substring(F.btrim(found), 1, LONGEST)
