"""Where others post messages to: whoever knows the slug of a hook needs no key."""

from __future__ import annotations

from datetime import timedelta
from time import time

from holdfast.client import HookNotFoundError, HookPausedError, QueueNotFoundError
from holdfast.server.answering import known
from holdfast.server.endpoint import Book, Call
from holdfast.server.hooks import Hook
from holdfast.server.inbound import Headers, check_content_type, headers_of, key_of_call, message
from holdfast.server.reading import read_raw
from holdfast.server.traces import carried
from holdfast.webhook.verify import verify
from holdfast.wire.answers import IdText, stating
from holdfast.wire.requests import NewMessage

from .messages import with_trace

PAUSE_SECONDS = 60  # until a caller of a paused hook is to come again
IGNORED = ("headers",)  # of a call that comes once more: another time, another signature

book = Book("inbound")
Received = stating("Received", id=IdText, sequence=int, duplicate=bool)


@book.add("POST", "/wh/{slug}", None, answer=Received, status=202)
async def receive(call: Call[None]) -> object:
    """Take a message for a hook: the body as it is, and the headers.

    The body may be anything, and is kept byte for byte. The answer comes once the message is stored.
    """
    hook = await call.service.hooks.of(call.part("slug"))
    if hook is None:
        raise no_hook()
    calls = call.service.hook_calls
    size = None
    try:
        await let_in(call, hook)
        headers = headers_of(call.request)
        content_type = check_content_type(hook.config, headers)
        body = await read_raw(call.request, min(hook.config.max_body, call.service.settings.max_body))
        size = len(body)
        id = signed_id(hook, headers, body)
        made = message(hook, headers, content_type, body)
        if (trace := carried(call.request.headers.raw)) is not None:
            made = with_trace(made, trace)
        with call.service.traces.operation("send", "send", hook.queue) as operation:
            sent, duplicate = await store(call, hook, made, key_of_call(hook, headers, id))
            operation.concerns([sent])
    except Exception as error:
        ours = known(error)
        calls.note(hook.name, "refused", ours.http_status, size=size, code=ours.code, id=None)
        raise
    calls.note(hook.name, "duplicate" if duplicate else "accepted", 202, size=size, code=None, id=sent)
    return Received(str(sent), sent - hook.base, duplicate)


async def let_in(call: Call[None], hook: Hook) -> None:
    """Refuse calls of a hook that is paused, and those beyond its limit, before their body is read."""
    config = hook.config
    if not config.enabled:
        error = HookPausedError("QH884", "this hook is paused", None, "Wait as long as Retry-After says.")
        error.retry_after = PAUSE_SECONDS
        raise error
    if config.rate_limit is not None:
        await call.service.limits.take(f"hook:{hook.name}", config.rate_limit, config.burst)


def signed_id(hook: Hook, headers: Headers, body: bytes) -> str | None:
    """The id of a call whose signature fits; None: the hook has no secret, and nobody signs."""
    if not hook.keys:
        return None
    return verify(hook.keys, headers, body, now=time(), tolerance=hook.config.tolerance)


async def store(call: Call[None], hook: Hook, made: NewMessage, key: str | None) -> tuple[int, bool]:
    """Send the message, once under its key; returns its id, and whether it was sent before."""
    sends = call.service.sends
    try:
        if key is None:
            (sent,) = await sends.send(hook.queue, [made])
            return sent, False
        window = timedelta(seconds=hook.config.idempotency_window)
        (sent,), duplicate = await sends.send_once(hook.queue, [made], key, window, ignoring=IGNORED)
    except QueueNotFoundError as error:
        # Dropped with its hook, in this moment.
        raise no_hook() from error
    return sent, duplicate


def no_hook() -> HookNotFoundError:
    """The refusal of a slug: it tells nothing, and asks for nothing."""
    return HookNotFoundError("QH880", "there is no such hook")
