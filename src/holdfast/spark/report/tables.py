"""Tables, some of whose cells are bars: a plot that is its own text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .figures import Spread
from .markup import Child, Markup, tag
from .scales import Logarithmic
from .words import duration


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a column; numbers are set to the right."""

    head: str
    style: str | None = "n"
    title: str | None = None


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[Child]], caption: str, style: str | None = None
) -> Markup:
    """A table that scrolls by itself where it is wider than the screen."""
    head = [tag("th", each.head, class_=each.style, scope="col", title=each.title) for each in columns]
    body = [
        tag(
            "tr", *(_cell(n, column, cell) for n, (column, cell) in enumerate(zip(columns, row, strict=True)))
        )
        for row in rows
    ]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption),
            tag("thead", tag("tr", *head)),
            tag("tbody", *body),
            class_=style,
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def bar(parts: Sequence[tuple[float, str]]) -> Markup:
    """A bar of one or more shares of the longest one, each in the colour of a CSS class."""
    drawn = [tag("i", class_=style, style=f"width:{100 * share:.2f}%") for share, style in parts if share > 0]
    return tag("div", *drawn, class_="bar", aria_hidden="true")


def spread_bar(spread: Spread, scale: Logarithmic) -> Markup | None:
    """From p50 over p95 to p99, as a line with a mark at p95."""
    if spread.p50 is None or spread.p95 is None or spread.p99 is None:
        return None
    low, middle, high = (100 * scale.at(value) for value in (spread.p50, spread.p95, spread.p99))
    return tag(
        "div",
        tag("i", style=f"left:{low:.2f}%;width:{max(high - low, 0.5):.2f}%"),
        tag("b", style=f"left:{middle:.2f}%"),
        class_="spread",
        title=f"p50 {duration(spread.p50)}, p95 {duration(spread.p95)}, p99 {duration(spread.p99)}",
    )


def folded(summary: str, content: Child) -> Markup:
    """Something that opens on demand, and in print stays as it is."""
    return tag("details", tag("summary", summary), content)


def _cell(n: int, column: Column, cell: Child) -> Markup:
    return tag("th", cell, scope="row") if n == 0 else tag("td", cell, class_=column.style)
