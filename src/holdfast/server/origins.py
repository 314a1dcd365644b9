"""Where requests come from: whether a web page, or a proxy, may be behind them."""

from __future__ import annotations

from functools import lru_cache

from holdfast.client import ForbiddenError

from .credentials import Headers
from .settings import is_loopback

# A proxy says so itself; one that hides it has to be kept away by whoever runs it.
OF_PROXIES = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"})
OWN_SITE = (b"none", b"same-origin")


def check_local(headers: Headers, allowed: tuple[str, ...]) -> None:
    """In open mode, refuse whatever is not a program on this machine."""
    host = headers.get(b"host", b"")
    if not is_here(host):
        raise elsewhere(f"Host is {text(host)!r}.")
    if OF_PROXIES & headers.keys():
        raise elsewhere("A proxy has passed it on.")
    check_site(headers, allowed)


def check_site(headers: Headers, allowed: tuple[str, ...]) -> None:
    """Refuse what a web page of another origin has sent, unless it is one of those that may."""
    origin = headers.get(b"origin")
    site = headers.get(b"sec-fetch-site")
    if origin is not None and text(origin) in allowed:
        return
    if site is not None and site not in OWN_SITE:
        raise elsewhere(f"Sec-Fetch-Site is {text(site)!r}.")
    # Browsers that do not send the other: where a request changes something, this one says whose page it is.
    if site is None and origin is not None and origin.partition(b"://")[2] != headers.get(b"host"):
        raise elsewhere(f"Origin is {text(origin)!r}.")


def elsewhere(detail: str) -> ForbiddenError:
    """The refusal."""
    return ForbiddenError(
        "QH921",
        "this request is from elsewhere",
        detail,
        "Without API keys the server answers programs on this machine alone, at 127.0.0.1 or localhost; "
        "with them, web pages of its own origin, and those that --cors names.",
    )


@lru_cache(maxsize=100)
def is_here(host: bytes) -> bool:
    """Whether a Host header names this machine."""
    return is_loopback(host_name(text(host)))


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    return host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]


def text(value: bytes) -> str:
    """A header, for people."""
    return value[:200].decode("latin-1")
