"""What the engine advises, in commands instead of functions."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from types import MappingProxyType

# The functions that hints and remedies name, and the commands that do the same.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "blocked_keys": "blocked",
        "browse": "peek",
        "configure_queue": "queue set",
        "create_queue": "queue create",
        "discard": "dead discard",
        "extend": "extend",
        "log_delete": "log delete",
        "maintain": "maintain",
        "read": "log read",
        "redrive": "dead redrive",
        "repair": "repair",
        "resume_queue": "queue resume",
        "sweep": "maintain",
        "unblock": "unblock",
    }
)
# What calls say by arguments and commands by options, and what a command wants to be told beside.
FLAGS: Mapping[str, str] = MappingProxyType({"how": "--skip", "unreadable_only": "--unreadable-only"})
BEFORE: Mapping[tuple[str, int], str] = MappingProxyType({("browse", 1): "--state"})
BEHIND: Mapping[str, str] = MappingProxyType({"redrive": "--all"})

LITERAL = r"(?P<escape>E?)'(?P<text>(?:[^']|'')*)'"
ARGUMENT = re.compile(rf"(?:(?P<name>\w+) => )?(?:{LITERAL}|true)")
CALL = re.compile(
    rf"(?:select )?holdfast\.(?P<name>{'|'.join(COMMANDS)})\b"
    r"(?P<call>\((?P<arguments>(?:[^()']|'(?:[^']|'')*')*)\))?"
)


def advice(text: str) -> str:
    """A hint or a remedy of the engine; functions that no command calls stay as they are."""
    return CALL.sub(lambda found: " ".join(command(found)), text)


def command(call: re.Match[str]) -> Iterator[str]:
    """The words of the command for one call, or for the bare name of a function."""
    name = call["name"]
    yield f"holdfast {COMMANDS[name]}"
    for place, argument in enumerate(ARGUMENT.finditer(call["arguments"] or "")):
        if argument["name"]:
            yield FLAGS[argument["name"]]
            continue
        if (name, place) in BEFORE:
            yield BEFORE[name, place]
        yield shlex.quote(unquoted(argument))
    if call["arguments"] and name in BEHIND:
        yield BEHIND[name]


def unquoted(literal: re.Match[str]) -> str:
    """The text of a literal of SQL."""
    text = literal["text"].replace("''", "'")
    return text.replace(r"\\", "\\") if literal["escape"] else text
