"""Builders of SVG elements with text as text, for the report's page and for separate SVG files."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

from opsassay.ui.plain import plain


@dataclass(frozen=True)
class Figure:
    """A drawing of *width* x *height* px; *title* is its accessible name, *body* its markup."""

    name: str
    title: str
    width: float
    height: float
    body: Markup

    def inline(self) -> Markup:
        """Return the figure as an svg element without styles, for a page that has the style sheet."""
        return self._make_element(Markup(""))

    def standalone(self, style: str) -> str:
        """Return the text of an SVG file with the CSS *style* inside."""
        return str(self._make_element(Markup("<style>{}</style>").format(Markup(style)))) + "\n"  # noqa: S704 - our own file

    def _make_element(self, style: Markup) -> Markup:
        """Return the figure as an svg element that begins with the element *style*."""
        return Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" class="figure" role="img" width="{w}" height="{h}" '
            'viewBox="0 0 {w} {h}"><title>{title}</title>{style}{body}</svg>'
        ).format(
            w=_format_number(self.width), h=_format_number(self.height), title=self.title, style=style, body=self.body
        )


def element(name: str, content: str | Markup = "", **attributes: object) -> Markup:
    """Return an SVG element; in attribute names a trailing underscore is dropped and others become hyphens."""
    attributes_ = Markup("").join(
        Markup(' {}="{}"').format(Markup(key.rstrip("_").replace("_", "-")), _format_number(value))  # noqa: S704 - our names
        for key, value in attributes.items()
        if value is not None
    )
    tag = Markup(name)  # noqa: S704 - our names
    return Markup("<{}{}>{}</{}>").format(tag, attributes_, escape(content), tag)


def text(x: float, y: float, words: str, class_: str = "ink", anchor: str = "start") -> Markup:
    """Return an SVG text element of *words* at (x, baseline y); *anchor* (start, middle or end) is its part at x."""
    return element("text", plain(words, 200), x=x, y=y, class_=class_, text_anchor=anchor)


def label(x: float, y: float, words: str, longest: int, class_: str = "ink") -> Markup:
    """Return an SVG text of at most *longest* characters; a longer one is cut and has *words* as its tooltip."""
    whole = plain(words, 200)
    if len(whole) <= longest:
        return text(x, y, whole, class_)
    content = escape(f"{whole[: longest - 1]}…") + element("title", whole)
    return element("text", content, x=x, y=y, class_=class_, text_anchor="start")


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return an SVG line of CSS class *class_* from (x1, y1) to (x2, y2) in pixels."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str, fill_opacity: float | None = None) -> Markup:
    """Return an SVG rectangle of CSS class *class_* with its upper left corner at (x, y), in pixels."""
    return element("rect", x=x, y=y, width=max(width, 0.0), height=height, class_=class_, fill_opacity=fill_opacity)


def path(points: str, class_: str) -> Markup:
    """Return an SVG path of CSS class *class_*; *points* is its attribute ``d``."""
    return element("path", d=points, class_=class_)


def join(parts: Iterable[Markup]) -> Markup:
    """Return *parts* concatenated as one piece of markup."""
    return Markup("").join(parts)


@dataclass(frozen=True)
class Axis:
    """A linear scale from values *low* .. *high* to pixels *left* .. *right*."""

    low: float
    high: float
    left: float
    right: float

    def pixel_at(self, value: float) -> float:
        """Return the pixel of *value*, limited to the ends of the axis."""
        share = (value - self.low) / (self.high - self.low)
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def ticks(self, count: int = 4) -> list[float]:
        """Return about *count* + 1 round values within the axis, ascending."""
        raw = (self.high - self.low) / count
        ten = 10.0 ** math.floor(math.log10(raw))
        step = next(s * ten for s in (1, 2, 2.5, 5, 10) if s * ten >= raw * 0.999)
        first = int(self.low / step) - 1
        values = [round((first + i) * step, 10) for i in range(int((self.high - self.low) / step) + 4)]
        return [v for v in values if self.low - 1e-9 <= v <= self.high + 1e-9]


def _format_number(value: object) -> object:
    """Return a float with at most two decimals, other values as they are."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
