"""What the declared subset cannot say."""

from __future__ import annotations


class UnsupportedError(Exception):
    """A policy uses what the subset does not have, or is no policy; the message is one sentence that says what."""
