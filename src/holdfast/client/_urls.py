"""The address of an HTTP server, and the key to it."""

from __future__ import annotations

import os
import re
from urllib.parse import urlsplit, urlunsplit

KEY_VARIABLE = "HOLDFAST_API_KEY"
HTTP = ("http", "https")
KEY = re.compile(r"[\x21-\x7e]+")


def scheme(url: str) -> str:
    """What kind of address it is; "" where it does not say."""
    kind, separator, _ = url.partition("://")
    return kind.lower() if separator else ""


def server_url(url: str) -> str:
    """The address of a server, checked."""
    parts = urlsplit(url)
    if parts.scheme not in HTTP or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(
            f"a server is at an address such as http://127.0.0.1:8080, not {without_secrets(url)!r}"
        )
    return urlunsplit(parts).rstrip("/")  # the scheme in lower case


def without_secrets(url: str) -> str:
    """An address as it may be shown: without a name and password."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


def api_key(key: str | None) -> str | None:
    """The key that was given, or that the environment gives."""
    found = key or os.environ.get(KEY_VARIABLE) or None
    if found is not None and not KEY.fullmatch(found):
        raise ValueError("an API key is text such as hf_…, without spaces")  # and is never shown
    return found
