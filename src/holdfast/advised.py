"""The functions that hints and remedies name: other doors than SQL tell them in words of their own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

LITERAL = r"(?P<escape>E?)'(?P<text>(?:[^']|'')*)'"
ARGUMENT = re.compile(rf"(?:(?P<name>\w+) => )?(?:{LITERAL}|true)")


@dataclass(frozen=True, slots=True)
class Argument:
    """What a call says of one parameter."""

    name: str | None
    value: str | bool


def calls(names: Iterable[str]) -> re.Pattern[str]:
    """What finds calls of these functions, and their names, without the schema too if they are no words."""
    names = sorted(names)
    alone = "|".join(name for name in names if "_" in name)
    return re.compile(
        rf"(?:(?:select |in SQL, )?holdfast\.|(?<=with )(?=(?:{alone})\b))(?P<name>{'|'.join(names)})\b"
        r"(?P<call>\((?P<arguments>(?:[^()']|'(?:[^']|'')*')*)\))?"
    )


def arguments(call: re.Match[str]) -> list[Argument]:
    """The arguments of a call that was found, in order."""
    return [Argument(each["name"], value(each)) for each in ARGUMENT.finditer(call["arguments"] or "")]


def value(argument: re.Match[str]) -> str | bool:
    """The text of a literal of SQL, or true."""
    if argument["text"] is None:
        return True
    text = argument["text"].replace("''", "'")
    return text.replace(r"\\", "\\") if argument["escape"] else text
