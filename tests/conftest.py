"""Fixtures that every stage shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")  # a machine may be busy with other things, and no test says how fast it is


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real public data, or skip loudly: it is not part of the project."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("OPSASSAY_DATA", default)).resolve()
    if not (folder / "README.md").exists():
        pytest.skip(f"no real data at {folder}; set OPSASSAY_DATA to the folder that holds nezha-datapacks and others")
    return folder
