"""What the engine advises, in commands instead of functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from holdfast.advised import Argument, arguments, calls

# The functions that hints and remedies name, and the commands that do the same.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "blocked_keys": "blocked",
        "browse": "peek",
        "configure_endpoint": "endpoint set",
        "configure_hook": "hook set",
        "configure_queue": "queue set",
        "create_endpoint": "endpoint create",
        "create_event_type": "event create",
        "create_hook": "hook create",
        "create_queue": "queue create",
        "discard": "dead discard",
        "drop_endpoint": "endpoint drop",
        "drop_hook": "hook drop",
        "drop_service": "service remove",
        "enable_endpoint": "endpoint enable",
        "endpoint_health": "endpoint health",
        "extend": "extend",
        "keys": "key list",
        "leases": "leases",
        "log_delete": "log delete",
        "maintain": "maintain",
        "publish": "publish",
        "queue_schema": "schema show",
        "read": "log read",
        "redrive": "dead redrive",
        "repair": "repair",
        "reset_breaker": "endpoint reset",
        "resume_queue": "queue resume",
        "seal_keys": "seal keys",
        "rotate_hook": "hook rotate",
        "rotate_secret": "endpoint rotate",
        "service_queues": "service queues",
        "services": "service list",
        "sweep": "maintain",
        "unblock": "unblock",
    }
)
# Where a command for one value of an argument says it all.
SAID: Mapping[tuple[str, str | bool], str] = MappingProxyType({("browse", "dead"): "dead list"})
# What a command wants to be told where only the name of its function stands.
WANTED: Mapping[str, str] = MappingProxyType(
    {"discard": "{queue} ID", "extend": "{queue} TOKEN", "leases": "{queue}", "queue_schema": "{queue}"}
    | {"seal_keys": "{queue}", "service_queues": "SERVICE"}
)
# What calls say by arguments and commands by options, and what a command wants to be told beside.
FLAGS: Mapping[str, str] = MappingProxyType(
    {"forget": "--forget", "how": "--skip", "unreadable_only": "--unreadable-only"}
)
BEFORE: Mapping[tuple[str, int], str] = MappingProxyType({("browse", 1): "--state"})
BEHIND: Mapping[str, str] = MappingProxyType({"redrive": "--all"})

CALL = calls(COMMANDS)


def advice(text: str, queue: str = "QUEUE") -> str:
    """A hint or a remedy of the engine; functions that no command calls stay as they are."""
    return CALL.sub(lambda found: " ".join(command(found, shlex.quote(queue))), text)


def command(call: re.Match[str], queue: str) -> Iterator[str]:
    """The words of the command for one call, or for the bare name of a function."""
    name = call["name"]
    given = arguments(call)
    said = next((SAID[name, each.value] for each in given if (name, each.value) in SAID), None)
    yield f"holdfast {said or COMMANDS[name]}"
    yield from words(name, [each for each in given if (name, each.value) not in SAID])
    if given and name in BEHIND:
        yield BEHIND[name]
    if not call["call"] and name in WANTED:
        yield WANTED[name].format(queue=queue)


def words(name: str, given: Sequence[Argument]) -> Iterator[str]:
    """The arguments of a call, as the command takes them."""
    for place, argument in enumerate(given):
        if argument.name:
            yield FLAGS[argument.name]
            continue
        if (name, place) in BEFORE:
            yield BEFORE[name, place]
        yield shlex.quote(str(argument.value))
