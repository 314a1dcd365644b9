"""The condition of a read: one expression in SQL, that cannot end the statement it is put into."""

from __future__ import annotations

import re

# What quotes: text, text with escapes, names, dollar quotes. What opens and closes. What parts or hides.
TOKEN = re.compile(
    r"""
      (?P<escaped>\b[eE]'(?:[^'\\]|\\.|'')*')
    | (?P<text>'(?:[^']|'')*')
    | (?P<name>"(?:[^"]|"")*")
    | (?P<dollar>\$(?P<tag>[A-Za-z_]\w*|)\$.*?\$(?P=tag)\$)
    | (?P<comment>--|/\*)
    | (?P<end>;)
    | (?P<open>[(\[])
    | (?P<close>[)\]])
    | (?P<stray>['"])
    """,
    re.VERBOSE | re.DOTALL,
)


def checked_condition(condition: str) -> str:
    """The condition as it is, or a ValueError that says why it is none.

    What protects the database are the caller's rights and a read-only transaction; this is for clear errors.
    """
    if not condition.strip():
        raise ValueError("it is empty")
    if "\0" in condition:
        raise ValueError("it has a NUL character")
    depth = 0
    for token in TOKEN.finditer(condition):
        match token.lastgroup:
            case "comment":
                raise ValueError("it has a comment")
            case "end":
                raise ValueError("it has a semicolon")
            case "stray":
                raise ValueError("a quote is not closed")
            case "open":
                depth += 1
            case "close":
                depth -= 1
            case _:
                pass
        if depth < 0:
            raise ValueError("a parenthesis closes that was not opened")
    if depth:
        raise ValueError("a parenthesis is not closed")
    return condition
