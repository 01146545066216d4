"""Small texts of messages: how many of something there are, what an error says first."""

from __future__ import annotations


def plural(number: int, noun: str) -> str:
    """Return *number* of *noun*, which is given for one of them: 1 run, 1,000 runs."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def first_line(error: BaseException) -> str:
    """Return the first line of what *error* says, for messages of one sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
