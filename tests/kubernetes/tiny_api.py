"""A small API server with a script, and a kubeconfig that leads to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsassay.testbed.substrates.kubernetes.api.small_api import Script, SmallApi, served, write_kubeconfig


@contextmanager
def tiny_api(script: Script, folder: Path) -> Iterator[tuple[SmallApi, Path]]:
    """Serve *script*; yield the server and a kubeconfig that leads to it."""
    with served(SmallApi(script)) as tiny:
        yield tiny, write_kubeconfig(folder / "kubeconfig.yaml", tiny.url)
