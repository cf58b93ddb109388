"""A canvas for small technical drawings as SVG: boxes, frames, arrows and texts."""

import math
from collections.abc import Iterable
from html import escape
from typing import Literal, NamedTuple

Look = Literal["plain", "accent", "good", "bad", "warn", "info", "quiet"]
Side = Literal["left", "right", "top", "bottom"]

CORNER = 8.0  # the radius of the bends of arrows
HEAD = 8.0  # the length of their heads
LINE_HEIGHT = 17.0


class Point(NamedTuple):
    """A position on the canvas, from its upper left corner."""

    x: float
    y: float


class Area(NamedTuple):
    """A rectangle that arrows begin and end at."""

    x: float
    y: float
    width: float
    height: float

    def at(self, side: Side, share: float = 0.5) -> Point:
        """Return a point of a side, by its share of the way from left to right, or from top to bottom."""
        x, y = self.x + self.width * share, self.y + self.height * share
        points = {
            "left": Point(self.x, y),
            "right": Point(self.x + self.width, y),
            "top": Point(x, self.y),
            "bottom": Point(x, self.y + self.height),
        }
        return points[side]


class Canvas:
    """Collects the elements of a drawing; `to_svg` returns it."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._elements: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, *lines: str, look: Look = "plain") -> Area:
        """Draw a box with lines of text in its middle, the first one strong if there are several."""
        shape = f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>'
        self._elements.append(shape)
        area = Area(x, y, width, height)
        self._lines(area, lines)
        return area

    def bar(self, x: float, y: float, width: float, height: float, look: Look) -> None:
        """Draw a bar of a plot."""
        self._elements.append(
            f'<rect class="{look}" x="{x:g}" y="{y:g}" width="{width:.4g}" height="{height:g}" rx="3"/>'
        )

    def cylinder(self, x: float, y: float, width: float, height: float, *lines: str) -> Area:
        """Draw a database."""
        half, depth = width / 2, 8.0
        top = f"M{x:g},{y + depth:g} a{half:g},{depth:g} 0 0 1 {width:g},0"
        body = f"{top} v{height - 2 * depth:g} a{half:g},{depth:g} 0 0 1 {-width:g},0 z"
        rim = f"M{x:g},{y + depth:g} a{half:g},{depth:g} 0 0 0 {width:g},0"
        self._elements += [f'<path class="cylinder info" d="{body}"/>', f'<path class="arrow" d="{rim}"/>']
        self._lines(Area(x, y + depth, width, height - depth), lines)
        return Area(x, y, width, height)

    def frame(self, x: float, y: float, width: float, height: float, label: str = "") -> Area:
        """Draw a dashed frame around what belongs together, with a label in its upper left corner."""
        self._elements.append(
            f'<rect class="frame" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="10"/>'
        )
        if label:
            self.text(x + 12, y + 18, label, "small left")
        return Area(x, y, width, height)

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        """Write a line of text around, or with the style `left` from, a point."""
        kind = f' class="{style}"' if style else ""
        self._elements.append(f'<text{kind} x="{x:g}" y="{y:g}">{escape(text)}</text>')

    def arrow(self, *points: Point, both: bool = False, dashed: bool = False, about: str = "") -> None:
        """Draw an arrow through points; `about` is kept in the file, for tests."""
        kind = "arrow dashed" if dashed else "arrow"
        path = _rounded(_shorten(points, both=both))
        self._elements.append(f'<path class="{kind}" d="{path}"{about}/>')
        self._elements.append(_head(points[-2], points[-1]))
        if both:
            self._elements.append(_head(points[1], points[0]))

    def line(self, start: Point, end: Point, *, dashed: bool = False) -> None:
        """Draw a line without a head."""
        kind = "arrow dashed" if dashed else "arrow"
        self._elements.append(f'<path class="{kind}" d="{_rounded([start, end])}"/>')

    def to_svg(self, style: str) -> str:
        """Return the drawing as a file."""
        width, height = self._size
        opening = (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">'
        )
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([opening, title, f"<style>\n{style}</style>", *self._elements, "</svg>", ""])

    def _lines(self, area: Area, lines: tuple[str, ...]) -> None:
        x = area.x + area.width / 2
        y = area.y + area.height / 2 + 4.5 - (len(lines) - 1) * LINE_HEIGHT / 2
        for number, line in enumerate(lines):
            style = "strong" if number == 0 and len(lines) > 1 else "small" if number else ""
            self.text(x, y + number * LINE_HEIGHT, line, style)


def _towards(start: Point, end: Point, distance: float) -> Point:
    length = math.dist(start, end) or 1.0
    share = min(distance / length, 1.0)
    return Point(start.x + (end.x - start.x) * share, start.y + (end.y - start.y) * share)


def _shorten(points: Iterable[Point], *, both: bool) -> list[Point]:
    """Return the points of a line that ends within its heads, not at their tips."""
    shortened = list(points)
    shortened[-1] = _towards(shortened[-1], shortened[-2], HEAD / 2)
    if both:
        shortened[0] = _towards(shortened[0], shortened[1], HEAD / 2)
    return shortened


def _rounded(points: list[Point]) -> str:
    """Return a path through points, with round corners."""
    parts = [f"M{points[0].x:.4g},{points[0].y:.4g}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        radius = min(CORNER, math.dist(before, corner) / 2, math.dist(corner, after) / 2)
        begin, end = _towards(corner, before, radius), _towards(corner, after, radius)
        parts.append(f"L{begin.x:.4g},{begin.y:.4g} Q{corner.x:.4g},{corner.y:.4g} {end.x:.4g},{end.y:.4g}")
    return " ".join([*parts, f"L{points[-1].x:.4g},{points[-1].y:.4g}"])


def _head(before: Point, tip: Point) -> str:
    angle = math.atan2(tip.y - before.y, tip.x - before.x)
    base = [
        (tip.x - HEAD * math.cos(angle + turn), tip.y - HEAD * math.sin(angle + turn))
        for turn in (-math.pi / 7, math.pi / 7)
    ]
    corners = " ".join(f"{x:.4g},{y:.4g}" for x, y in [tip, *base])
    return f'<polygon class="head" points="{corners}"/>'
