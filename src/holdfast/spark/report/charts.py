"""Plots over time. The picture is an SVG that stretches; what is written is HTML, and so keeps its size.

Tips are elements over the picture that show when the pointer is there: that takes no script.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import Child, Markup, tag
from .scales import Linear, Logarithmic, Tick

WIDTH = 1000.0
HEIGHT = 200.0
GAP = 0.12  # of a column's place


@dataclass(frozen=True, slots=True)
class Series:
    """A row of values with a name, one for each place; None: there is none. The style is a CSS class."""

    name: str
    style: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Axis:
    """What the plots of a report share: where the places are, and what is written below them."""

    ticks: Sequence[Tick]
    width: float  # of a place, where the whole is 1; the last may reach beyond it

    def left(self, place: int) -> float:
        """Where a place begins."""
        return place * self.width

    def clipped(self, place: int) -> float:
        """How wide a place is inside the plot."""
        return min(self.width, 1 - self.left(place))


def columns(series: Sequence[Series], axis: Axis, tips: Sequence[str | None], label: str) -> Markup:
    """Stacked columns of counts."""
    heights = [sum(filter(None, values)) for values in zip(*(each.values for each in series), strict=True)]
    scale = Linear.up_to(max(heights, default=0))
    base = [0.0] * len(heights)
    paths = []
    for each in series:
        paths.append(tag("path", d=_blocks(each.values, base, axis, scale), class_=f"fill {each.style}"))
        base = [low + (value or 0) for low, value in zip(base, each.values, strict=True)]
    return plot(paths, scale.ticks(), axis, tips, label, legend(series))


def lines(
    series: Sequence[Series],
    axis: Axis,
    tips: Sequence[str | None],
    label: str,
    limits: Sequence[tuple[float, str]] = (),
) -> Markup | None:
    """Lines of durations, over each other on a logarithmic scale; None if there is nothing to show."""
    found = [value for each in series for value in each.values if value is not None]
    if not found:
        return None
    scale = Logarithmic.over([*found, *(limit for limit, _ in limits)])
    drawn = [
        tag("path", d=_strokes(each.values, axis, scale), class_=f"stroke {each.style}") for each in series
    ]
    marks = [
        tag("line", x1=0, x2=1000, y1=y, y2=y, class_="limit") for y in (_y(scale.at(at)) for at, _ in limits)
    ]
    flags = [
        tag("span", words, class_="flag", style=f"bottom:{_percent(scale.at(at))}") for at, words in limits
    ]
    return plot([*marks, *drawn], scale.ticks(), axis, tips, label, legend(series), flags)


def strip(levels: Sequence[str], axis: Axis, tips: Sequence[str | None], label: str) -> Markup:
    """A band of cells: how it was at each place, as a CSS class."""
    drawn = []
    for level in dict.fromkeys(filter(None, levels)):
        cells = [1.0 if each == level else None for each in levels]
        path = _blocks(cells, [0.0] * len(cells), axis, Linear(1.0))
        drawn.append(tag("path", d=path, class_=f"fill {level}"))
    return tag("div", picture(drawn, label), overlay(axis, tips), class_="strip")


def sparkline(values: Sequence[float], label: str) -> Markup:
    """A small picture of how much it was over time."""
    top = max(values, default=0) or 1
    step = WIDTH / max(len(values), 1)
    corners = "".join(f"V{_y(value / top)}H{_short((n + 1) * step)}" for n, value in enumerate(values))
    area = tag("path", d=f"M0 {HEIGHT:.0f}{corners}V{HEIGHT:.0f}Z", class_="fill spark")
    return tag("div", picture([area], label), class_="sparkline")


def plot(
    drawn: Iterable[Child],
    ticks: Sequence[Tick],
    axis: Axis,
    tips: Sequence[str | None],
    label: str,
    below: Child,
    flags: Iterable[Child] = (),
) -> Markup:
    """A picture with its axes, its tips and its legend."""
    grid = [tag("line", x1=0, x2=1000, y1=_y(tick.at), y2=_y(tick.at), class_="grid") for tick in ticks]
    beside = [tag("span", tick.label, style=f"bottom:{_percent(tick.at)}") for tick in ticks]
    under = [
        tag("span", tick.label, class_="minor" if n % 2 else None, style=f"left:{_percent(tick.at)}")
        for n, tick in enumerate(axis.ticks)
    ]
    return tag(
        "div",
        tag("div", *beside, class_="y", aria_hidden="true"),
        tag("div", picture([*grid, *drawn], label), *flags, overlay(axis, tips), class_="area"),
        tag("div", *under, class_="x", aria_hidden="true"),
        below,
        class_="plot",
    )


def picture(drawn: Iterable[Child], label: str) -> Markup:
    """An SVG that fills its place, and says what it shows."""
    return tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )


def overlay(axis: Axis, tips: Sequence[str | None]) -> Markup:
    """What shows when the pointer is over a place; its first line is bold. The table behind says the same."""
    spots = [
        tag(
            "i",
            tag("b", tip),
            class_="r" if axis.left(place) > 0.5 else None,
            style=f"left:{_percent(axis.left(place))}",
        )
        for place, tip in enumerate(tips)
        if tip is not None
    ]
    return tag("div", *spots, class_="tips", style=f"--w:{_percent(axis.width)}", aria_hidden="true")


def legend(series: Sequence[Series]) -> Markup:
    """Which colour is what."""
    return tag(
        "div", *(tag("span", tag("i", class_=each.style), each.name) for each in series), class_="legend"
    )


def _blocks(values: Sequence[float | None], base: Sequence[float], axis: Axis, scale: Linear) -> str:
    """A rectangle for each value, on top of what is there."""
    blocks = []
    for place, (value, low) in enumerate(zip(values, base, strict=True)):
        if not value:
            continue
        width = axis.clipped(place) * WIDTH
        left = axis.left(place) * WIDTH + width * GAP / 2
        bottom, top = _y(scale.at(low)), _y(scale.at(low + value))
        blocks.append(f"M{_short(left)} {bottom}V{top}h{_short(width * (1 - GAP))}V{bottom}z")
    return "".join(blocks)


def _strokes(values: Sequence[float | None], axis: Axis, scale: Logarithmic) -> str:
    """A line through the middle of each place; it breaks where there is no value, and a lone one is a dot."""
    strokes = []
    before: float | None = None
    for place, value in enumerate(values):
        if value is not None:
            x = _short((axis.left(place) + axis.clipped(place) / 2) * WIDTH)
            y = _y(scale.at(value))
            strokes.append(f"M{x} {y}h0" if before is None else f"L{x} {y}")
        before = value
    return "".join(strokes)


def _y(share: float) -> str:
    return _short(HEIGHT * (1 - share))


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _percent(share: float) -> str:
    return f"{100 * share:.3f}".rstrip("0").rstrip(".") + "%"
