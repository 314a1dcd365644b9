"""The bodies and queries of the FoundryDB dialect. A field that is not named here is refused."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.wire.requests import ANY_BUT_NUL, Body

Word: TypeAlias = Annotated[str, Meta(pattern=ANY_BUT_NUL)]
MOST_MESSAGES = 100  # in a batch


class NewQueue(Body, kw_only=True):
    """A queue to make; what is left out, or null, is the default."""

    name: Word
    database_name: Word | None = None
    visibility_timeout_seconds: Annotated[int, Meta(ge=1, le=43_200)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=100)] | None = None
    dlq_enabled: bool | None = None


class NewMessage(Body, kw_only=True):
    """A message to enqueue, and how long it stays out of sight at first."""

    payload: Raw | UnsetType = UNSET  # the engine asks for it, and says of which message of a batch
    delay_seconds: Annotated[int, Meta(ge=0, le=43_200)] | None = None


class Enqueue(Body, kw_only=True):
    """Messages to enqueue, all or none."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]


class Poll(Body, kw_only=True):
    """Which task."""

    task_id: Word
