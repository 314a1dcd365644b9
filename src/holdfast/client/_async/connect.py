"""One way to any door: the URL says whether it is the database or an HTTP server."""

from __future__ import annotations

from typing import Any, TypeAlias

from holdfast.client._async.client import AsyncHoldfast
from holdfast.client._async.http import AsyncHttpHoldfast
from holdfast.client._urls import HTTP, scheme

AsyncClient: TypeAlias = AsyncHoldfast | AsyncHttpHoldfast


def async_connect(url: str, **options: Any) -> AsyncClient:
    """A client of the database at a postgresql:// URL, or of the server at an http:// or https:// URL.

    The options are those of AsyncHoldfast or of AsyncHttpHoldfast.
    """
    kind = scheme(url)
    if kind in HTTP:
        return AsyncHttpHoldfast(url, **options)
    if kind in ("postgresql", "postgres") or (not kind and "=" in url):
        return AsyncHoldfast(url, **options)
    raise ValueError(f"a URL begins with postgresql, http or https and ://, not with {kind or url[:9]!r}")
