"""The pages of the documentation, and what is in them: blocks, sections, tables, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "bench" / "README.md", *sorted(DOCS.rglob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def text_of(name: str) -> str:
    """A page below docs/."""
    return (DOCS / name).read_text(encoding="utf-8")


def blocks(path: Path) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    for found in BLOCK.finditer(path.read_text(encoding="utf-8")):
        yield found[1], found[2]


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return BLOCK.sub("", text)


def sections(text: str, level: int) -> dict[str, str]:
    """The text under each heading of a level, down to the next heading of that level or a higher one."""
    parts = re.split(rf"^(#{{1,{level}}}) (.*)$", text, flags=re.MULTILINE)
    return {
        title.strip(): body
        for marks, title, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
        if len(marks) == level
    }


def rows(text: str) -> list[list[str]]:
    """The rows of all tables in a text, without heads; a bar within backticks does not part cells."""
    found = [
        [cell.strip() for cell in re.split(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", line.strip("|"))]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    rules = [number for number, cells in enumerate(found) if all(re.fullmatch(r":?-+:?", c) for c in cells)]
    dropped = {*rules, *(number - 1 for number in rules)}
    return [cells for number, cells in enumerate(found) if number not in dropped]


def quoted(cell: str) -> list[str]:
    """What stands in backticks in a cell."""
    return re.findall(r"`([^`]*)`", cell)


def anchors(text: str) -> set[str]:
    """The anchors that a page's headings get: lower case, spaces to hyphens, punctuation gone."""
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in HEADING.findall(prose(text)))
    return {title.strip().replace(" ", "-") for title in plain}
