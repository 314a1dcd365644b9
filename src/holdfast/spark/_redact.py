"""Texts without the secrets of a connection, and still readable: words that only look like them stay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

BLOT = "***"
# A password is hidden as a whole word; a long one wherever it stands, a short one in connection strings only.
SHORT, LONG = 4, 8  # characters
DATABASE_URL = re.compile(r"postgres(?:ql)?://[^\s'\"]+", re.IGNORECASE)
USER_INFO = re.compile(r"(?<=://)[^\s/@]+(?=@)")
KEYWORD = re.compile(r"(\w*password\s*=\s*)('(?:[^'\\]|\\.)*'|\"[^\"]*\"|[^\s&'\"]+)", re.IGNORECASE)
# Between user and host, however often these characters are in it: no URL that is right, but a secret.
BETWEEN = re.compile(r"://[^:@/]*:(.+)@")
SECRETS = ("password", "sslpassword")


def redacted(text: str, connection: str) -> str:
    """A text without this connection string, and without the password in it."""
    text = text.replace(connection, BLOT)
    text = DATABASE_URL.sub(BLOT, text)
    text = USER_INFO.sub(BLOT, text)
    text = KEYWORD.sub(rf"\1{BLOT}", text)
    for form in sorted(set(_forms(connection)), key=len, reverse=True):
        text = _word(form).sub(BLOT, text)
    return text


def _word(secret: str) -> re.Pattern[str]:
    if len(secret) >= LONG:
        return re.compile(re.escape(secret))
    # In a quoted text \n is two characters, of which the second is no part of the word behind it.
    return re.compile(rf"(?:(?<![^\W_])|(?<=\\[nrt])){re.escape(secret)}(?![^\W_])")


def _forms(connection: str) -> Iterator[str]:
    """The ways in which passwords may be written, as far as they are long enough."""
    for password in _passwords(connection):
        escaped = password.replace("\\", "\\\\").replace("'", "\\'")
        for form in (password, unquote(password), quote(password, safe=""), quote(password), escaped):
            if len(form) >= SHORT:
                yield form


def _passwords(connection: str) -> Iterator[str]:
    try:
        known = conninfo_to_dict(connection)
    except psycopg.ProgrammingError:
        known = {}
    yield from (str(known[name]) for name in SECRETS if known.get(name))
    if between := BETWEEN.search(connection):
        # What cannot be read is quoted in parts: 'invalid port number: "…"'.
        yield from (between[1], *re.split(r"[/@:?#]", between[1]))
    for _, value in KEYWORD.findall(connection):
        yield value.strip("'\"")
