"""A call of an inbound hook: from the request as it came to the message as it is kept."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Sequence
from hashlib import sha256

from msgspec import Raw, json
from starlette.requests import Request

from holdfast.client import HeadersTooLargeError, UnsupportedMediaError
from holdfast.wire.requests import NewMessage

from .hooks import Hook, HookConfig

ROOM = 16_384  # bytes of names and values of headers that are kept
# Of the connection, not of the message; or what lets the caller in somewhere.
NOT_KEPT = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
    | {"expect", "content-length", "authorization", "proxy-authorization", "proxy-authenticate"}
    | {"cookie", "x-api-key"}
)

Headers = Sequence[tuple[str, str]]


def headers_of(request: Request) -> Headers:
    """All headers in their order, names in lower case; bytes that are not UTF-8 are read as Latin-1."""
    return [(name.decode("latin-1").lower(), text_of(value)) for name, value in request.headers.raw]


def text_of(value: bytes) -> str:
    """The value of a header."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def values(headers: Headers, wanted: str) -> list[str]:
    """What a header says, as often as it is there."""
    return [value for name, value in headers if name == wanted]


def kept(headers: Headers, dropped: Collection[str]) -> dict[str, str | list[str]]:
    """The headers that go with a message: one that came several times is a list."""
    named = {name.strip().lower() for value in values(headers, "connection") for name in value.split(",")}
    not_kept = NOT_KEPT | named | {name.lower() for name in dropped}
    told: dict[str, list[str]] = {}
    size = 0
    for name, value in headers:
        if name not in not_kept:
            told.setdefault(name, []).append(value)
            size += len(name) + len(value.encode())
    if size > ROOM:
        raise HeadersTooLargeError(
            "QH202", "the headers are too large", f"They have {size} bytes.", f"A hook keeps {ROOM} of them."
        )
    return {name: found[0] if len(found) == 1 else found for name, found in told.items()}


def check_content_type(config: HookConfig, headers: Headers) -> str | None:
    """What the body is; refused, if the hook does not take it."""
    given = next(iter(values(headers, "content-type")), None)
    media = (given or "").partition(";")[0].strip().lower()
    taken = config.content_types
    if taken is not None and not any(fits(each.lower(), media) for each in taken):
        raise UnsupportedMediaError(
            "QH913",
            "this hook does not take this type of content",
            f"Got {media[:100]!r}." if media else "No Content-Type was given.",
            f"It takes {', '.join(taken) or 'none'}.",
        )
    return given


def fits(pattern: str, media: str) -> bool:
    """Whether a type is one of these: text/plain, text/*, */*."""
    kind, _, rest = pattern.partition("/")
    if rest != "*":
        return pattern == media
    return kind == "*" or media.startswith(f"{kind}/")


def message(hook: Hook, headers: Headers, content_type: str | None, body: bytes) -> NewMessage:
    """The message: the body byte for byte, and the headers under a name of their own."""
    return NewMessage(
        body=b64encode(body).decode("ascii"),
        content_type=content_type,
        headers={
            "hook": Raw(json.encode(hook.name)),
            "http": Raw(json.encode(kept(headers, hook.config.drop_headers))),
        },
    )


def key_of_call(hook: Hook, headers: Headers, id: str | None) -> str | None:
    """Under which key a call is taken once; id: the one that its signature covers.

    Hashed: whatever a caller sends fits, and is none of the keys that programs send with.
    """
    name = hook.config.idempotency_header
    given = id if name is None else next(iter(values(headers, name.lower())), None)
    if not given:
        return None
    return f"hook:{sha256(f'{hook.name}/{given}'.encode()).hexdigest()}"
