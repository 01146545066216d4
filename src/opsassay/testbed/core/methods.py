"""Names of methods, as spans and logs show the code behind an operation."""

from __future__ import annotations

import re

_KINDS = {"process": "Listener", "job": "Scheduler"}


def method_name(service: str, operation: str) -> str:
    """Return the ``Class.method`` name for *operation* of *service*, as spans and logs show it.

    An operation is a route (``POST /items``), ``process SUBJECT`` or ``job NAME``: cart and ``POST /items`` give
    ``CartController.postItems``.
    """
    verb, _, rest = operation.partition(" ")
    return f"{_camel_case(service)}{_KINDS.get(verb, 'Controller')}.{verb.lower()}{_camel_case(rest)}"


def _camel_case(words: str) -> str:
    """Return the alphanumeric words in *words* joined, each with a capital: "order-items" gives "OrderItems"."""
    return "".join(word[0].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", words))
