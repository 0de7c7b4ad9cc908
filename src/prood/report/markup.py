"""HTML and SVG that cannot be broken by what is put into it, and charts: axes with ticks, lines, bands and steps.

Text is escaped unless it is markup already. Marks have classes and no colours: the page's style sheet gives them, so
that they follow its light or dark mode.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import ArrayLike, NDArray

VOID = {"img", "meta"}
Floats = NDArray[np.float64]
TOP, RIGHT, BOTTOM, LEFT = 8.0, 12.0, 18.0, 30.0


class Html(str):
    """Text that is markup. `element` escapes every other string."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | bool | None) -> Html:
    """`<name attributes>children</name>`. In names of attributes '_' stands for '-', at the end for nothing (class_).

    An attribute that is None or False is left out, True stands alone.
    """
    opening = f"<{name}"
    for key, value in attributes.items():
        if value is not None and value is not False:
            opening += f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
    return Html(f"{opening}>" if name in VOID else f"{opening}>{joined(*children)}</{name}>")


def joined(*children: str) -> Html:
    return Html("".join(child if isinstance(child, Html) else escape(child) for child in children))


def nice_ticks(low: float, high: float, most: int = 5) -> dict[float, str]:
    """At most `most` multiples in [low, high] of the smallest such step that is 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    for step in (factor * power for factor in (1, 2, 5, 10, 20, 50)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first < most:
            break
    return {number * step: f"{number * step:.6g}".replace("-", "−") for number in range(first, last + 1)}


def thinned(x: Floats, y: Floats, tolerance: float = 0.15) -> tuple[Floats, Floats]:
    """Those points of a curve that lines need to stay within `tolerance` of all of them (Ramer-Douglas-Peucker)."""
    keep = np.zeros(len(x), bool)
    keep[[0, -1]] = True
    pending = [(0, len(x) - 1)]
    while pending:
        first, last = pending.pop()
        if last - first < 2:
            continue
        across, up = x[last] - x[first], y[last] - y[first]
        right, above = x[first + 1 : last] - x[first], y[first + 1 : last] - y[first]
        length = math.hypot(across, up)
        off = np.abs(across * above - up * right) / length if length else np.hypot(right, above)
        far = int(off.round(9).argmax())  # of equals the first, on every machine
        if off[far] > tolerance:
            keep[first + 1 + far] = True
            pending += [(first, first + 1 + far), (first + 1 + far, last)]
    return x[keep], y[keep]


@dataclass(frozen=True)
class Axis:
    """What it reaches from and to, its ticks with their texts, and what it shows."""

    low: float
    high: float
    ticks: Mapping[float, str] = field(default_factory=dict)
    label: str = ""

    def share(self, values: ArrayLike) -> Floats:
        return np.asarray((np.asarray(values, np.float64) - self.low) / (self.high - self.low))


class Chart:
    """A plot; `label` says what it shows to those who do not see it."""

    def __init__(self, label: str, x: Axis, y: Axis, size: tuple[int, int] = (280, 200)) -> None:
        self.label, self.size = label, size
        self.x, self.y = x, y
        self.bottom = size[1] - BOTTOM - (14 if x.label else 0)
        self.left = LEFT + (12 if y.label else 0)
        self.marks: list[Html] = []
        self._axes()

    def across(self, values: ArrayLike) -> Floats:
        return self.left + self.x.share(values) * (self.size[0] - RIGHT - self.left)

    def up(self, values: ArrayLike) -> Floats:
        return self.bottom + self.y.share(values) * (TOP - self.bottom)

    def line(self, x: ArrayLike, y: ArrayLike, kind: str, tip: str = "") -> None:
        self._path(f"M{_points(*thinned(self.across(x), self.up(y)))}", f"line {kind}", tip)

    def band(self, x: ArrayLike, low: ArrayLike, high: ArrayLike, kind: str, tip: str = "") -> None:
        forward, back = self.across(x), self.across(x)[::-1]
        points = f"{_points(forward, self.up(low))} {_points(back, self.up(high)[::-1])}"
        self._path(f"M{points}Z", f"band {kind}", tip)

    def steps(self, edges: Floats, heights: Floats, kind: str, tip: str = "") -> None:
        """The outline of a histogram. Where nothing is, nothing is drawn, not even along the axis."""
        places, tops, floor = self.across(edges), self.up(heights), f"{self.up(0):.1f}"
        d, down = "", True
        for start, end, top, height in zip(places, places[1:], tops, heights, strict=False):
            if height > 0:
                d += (f"M{start:.1f} {floor}" if down else "") + f"V{top:.1f}H{end:.1f}"
            elif not down:
                d += f"V{floor}"
            down = not height > 0
        self._path(d if down else f"{d}V{floor}", f"steps {kind}", tip)

    def dots(self, x: ArrayLike, y: ArrayLike, kind: str, tips: list[str]) -> None:
        for across, up, tip in zip(self.across(x), self.up(y), tips, strict=True):
            title = element("title", tip)
            self.marks.append(element("circle", title, cx=f"{across:.1f}", cy=f"{up:.1f}", r=2.6, class_=f"dot {kind}"))

    def upright(self, x: float, kind: str, tip: str = "") -> None:
        self._path(f"M{self.across(x):.1f} {self.bottom:.1f}V{TOP}", kind, tip)

    def svg(self) -> Html:
        width, height = self.size
        return element("svg", *self.marks, viewBox=f"0 0 {width} {height}", role="img", aria_label=self.label)

    def _path(self, d: str, kind: str, tip: str = "") -> None:
        self.marks.append(element("path", *([element("title", tip)] if tip else []), d=d, class_=kind))

    def _axes(self) -> None:
        right = self.size[0] - RIGHT
        grid = "".join(f"M{self.left} {up:.1f}H{right}" for up in self.up(list(self.y.ticks)))
        self._path(grid, "grid")
        self._path(f"M{self.left} {self.bottom}H{right}", "axis")
        for across, text in zip(self.across(list(self.x.ticks)), self.x.ticks.values(), strict=True):
            self._text(across, self.bottom + 13, text, "middle")
        for up, text in zip(self.up(list(self.y.ticks)), self.y.ticks.values(), strict=True):
            self._text(self.left - 5, up + 3.2, text, "end")
        if self.x.label:
            self._text((self.left + right) / 2, self.size[1] - 4, self.x.label, "middle", class_="name")
        if self.y.label:
            middle = (TOP + self.bottom) / 2
            self._text(9, middle, self.y.label, "middle", class_="name", transform=f"rotate(-90 9 {middle})")

    def _text(self, x: float, y: float, text: str, anchor: str, **attributes: str) -> None:
        self.marks.append(element("text", text, x=f"{x:.1f}", y=f"{y:.1f}", text_anchor=anchor, **attributes))


def _points(x: Floats, y: Floats) -> str:
    return " ".join(f"{across:.1f} {up:.1f}" for across, up in zip(x, y, strict=True))
