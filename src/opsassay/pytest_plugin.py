"""The pytest plugin (entry point ``pytest11``): a running system for tests of your own agent or runbook.

Every pytest of an environment that has OpsAssay imports this file, so it imports pytest alone; a system's parts are
imported when a test asks for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from opsassay.testing import SystemInTest

MARKER = (
    "opsassay(system, rate_rps=None, isolation=None, seed=0, warmup_s=4.0, cadence_s=0.5): the system that "
    "opsassay_system runs for this test, a name or the path of a YAML file, and how"
)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker ``opsassay`` with pytest."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def opsassay_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SystemInTest]:
    """Yield the system that the test's marker ``opsassay`` names; it is stopped after the test, also if that failed."""
    marker = request.node.get_closest_marker("opsassay")
    if marker is None:
        pytest.fail('say which system: @pytest.mark.opsassay(system="kiosk")', pytrace=False)
    from opsassay.core.errors import UserError
    from opsassay.core.extras import install_hint

    try:
        from opsassay.testing import system_in_test
    except ModuleNotFoundError as error:
        pytest.fail(f"opsassay_system needs {error.name}; {install_hint('testbed')}.", pytrace=False)
    try:
        entered = system_in_test(*marker.args, **marker.kwargs, folder=tmp_path / "opsassay")
    except TypeError as error:
        pytest.fail(f"the marker opsassay: {error}", pytrace=False)
    with ExitStack() as stack:
        try:
            system = stack.enter_context(entered)
        except UserError as error:
            pytest.fail(f"the marker opsassay: {error}", pytrace=False)
        yield system
