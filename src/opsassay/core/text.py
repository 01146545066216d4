"""How texts say how many of something there are."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Return *number* of *noun*, which is given for one of them: 1 run, 1,000 runs."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
