"""HTML from values. Text is escaped unless it is markup: nothing that a message says becomes a tag."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TypeAlias

# What XML cannot hold, and what would turn the direction of the text that follows.
UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")
VOID = frozenset({"meta", "br", "path", "line", "rect", "col"})


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = str | int | float | None


def text(value: object) -> Markup:
    """Any text as HTML shows it."""
    return Markup(escape(UNPRINTABLE.sub("\ufffd", str(value)), quote=True))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element. class_ is the attribute class, aria_label is aria-label; one that is None is left out."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{words}/>")
    return Markup(f"<{name}{words}>{joined(children)}</{name}>")


def joined(children: Iterable[Child]) -> Markup:
    """Children one after the other; None is nothing."""
    return Markup("".join(map(_rendered, children)))


def _rendered(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str | int):
        return child if isinstance(child, Markup) else text(child)
    return joined(child)


def shortened(value: str, length: int) -> str:
    """As much of a text as there is room for."""
    return value if len(value) <= length else f"{value[: length - 1]}…"


def name(value: str | None, length: int = 80) -> Markup:
    """A name that somebody chose: a key, a consumer. Its direction stays its own."""
    if value is None:
        return tag("i", "no name", class_="none")
    return tag("bdi", shortened(value, length), title=value[:500] if len(value) > length else None)
