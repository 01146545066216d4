"""Which cases of a long list `make test` runs; the others are slow tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], every: int = 4) -> list[object]:
    """Return *cases* as parameters of which one in *every* runs in `make test`, and all of them in `make test-slow`.

    A case of several values is a tuple.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)), marks=[pytest.mark.slow] if number % every else []
        )
        for number, case in enumerate(cases)
    ]
