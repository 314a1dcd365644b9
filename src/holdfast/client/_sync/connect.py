# Made from ../_async/connect.py by tools/generate_sync.py: change that file, then run make generate.
"""One way to any door: the URL says whether it is the database or an HTTP server."""

from __future__ import annotations

from typing import Any, TypeAlias

from holdfast.client._sync.client import Holdfast
from holdfast.client._sync.http import HttpHoldfast
from holdfast.client._urls import HTTP, scheme

Client: TypeAlias = Holdfast | HttpHoldfast


def connect(url: str, **options: Any) -> Client:
    """A client of the database at a postgresql:// URL, or of the server at an http:// or https:// URL.

    The options are those of Holdfast or of HttpHoldfast.
    """
    kind = scheme(url)
    if kind in HTTP:
        return HttpHoldfast(url, **options)
    if kind in ("postgresql", "postgres") or (not kind and "=" in url):
        return Holdfast(url, **options)
    raise ValueError(f"a URL begins with postgresql, http or https and ://, not with {kind or url[:9]!r}")
