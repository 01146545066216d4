"""What the code behind an operation would be called: the names of methods in spans and logs."""

from __future__ import annotations

import re

_KINDS = {"process": "Listener", "job": "Scheduler"}


def method_name(service: str, operation: str) -> str:
    """Return ``Class.method`` for *operation* of *service*: a route (``POST /items``), ``process SUBJECT`` or ``job NAME``.

    For instance cart and ``POST /items`` give ``CartController.postItems``.
    """
    verb, _, rest = operation.partition(" ")
    return f"{_camel_case(service)}{_KINDS.get(verb, 'Controller')}.{verb.lower()}{_camel_case(rest)}"


def _camel_case(words: str) -> str:
    """Return *words* as one word, with a capital at the start of each."""
    return "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", words))
