"""A platform in a folder of its own whose workers know the domain that asks nothing (see no_op_domain.py)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Running", "no_op_platform"]
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tests"))
from server.conftest import Running  # type: ignore[import-not-found]  # noqa: E402 - tests are not installed
from test_extending import install  # type: ignore[import-not-found]  # noqa: E402 - as above


@contextmanager
def no_op_platform(*words: str) -> Iterator[Running]:
    """Have it run while the block does; *words* are options of `server start`, without workers unless they say so."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        install(site, {"opsassay.domains": {"no-op": "no_op_domain:NO_OP"}})
        os.environ["PYTHONPATH"] = os.pathsep.join([str(site), str(HERE), os.environ.get("PYTHONPATH", "")])
        running = Running(Path(folder) / "state", *(words or ("--workers", "0")))
        try:
            yield running
        finally:
            running.end()
