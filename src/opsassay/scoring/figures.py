"""The text of a solver's figure, a mean with its interval; `rates` computes it."""

from __future__ import annotations

from dataclasses import dataclass

from opsassay.core.text import number_text


@dataclass(frozen=True)
class MeanFigure:
    """A mean over *n* cases with its 95% interval, None without one; *share*: the mean is a share in [0, 1]."""

    value: float
    low: float | None
    high: float | None
    n: int
    share: bool = True

    @property
    def text(self) -> str:
        """The mean with its 95% interval: ``15.4% [6.2, 33.5]`` for a share, else ``2.5 [1.9, 3.1]``."""
        write = _format_percent_number if self.share else number_text
        ends = "" if self.low is None or self.high is None else f" [{write(self.low)}, {write(self.high)}]"
        return f"{write(self.value)}{'%' if self.share else ''}{ends}"

    @property
    def text_with_n(self) -> str:
        """The mean with its 95% interval and the number of cases: ``15.4% [6.2, 33.5] (26)``."""
        return f"{self.text} ({self.n})"


def difference_text(value: float, low: float | None, high: float | None, *, share: bool) -> str:
    """Return difference *value* as ``-8.3 pp [-20.0, +4.1]`` (*low*, *high*) if *share* (in points), else plain."""
    shown = [
        None if one is None else f"{100 * one:+.1f}" if share else _format_signed(one) for one in (value, low, high)
    ]
    ends = f" [{shown[1]}, {shown[2]}]" if low is not None and high is not None else ""
    return f"{shown[0]}{' pp' if share else ''}{ends}"


def percent(value: float | None) -> str | None:
    """Return the share *value* in percent, 0.154 as "15.4%"; None for None."""
    return None if value is None else f"{_format_percent_number(value)}%"


def _format_percent_number(value: float) -> str:
    """Return the share *value* in percent without the sign, 0.154 as "15.4"."""
    return f"{100 * value:.1f}"


def _format_signed(value: float) -> str:
    """Return *value* as text with its sign, + included."""
    return f"{'+' if value >= 0 else ''}{number_text(value)}"
