"""Systems that many tests start."""

from __future__ import annotations

from pathlib import Path

_HERE = Path(__file__).parent
CORNER = str(_HERE / "faults.yaml")
TINY = str(_HERE / "tiny.yaml")
