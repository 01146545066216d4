"""A small world, served."""

from __future__ import annotations

import pytest

from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects

from .worlds import WORLD


@pytest.fixture(params=["port", "socket"])
def world(request, tmp_path):
    """Serve the world and return where, on a port and at a Unix socket."""
    path = tmp_path / "api.sock" if request.param == "socket" else None
    with serving_objects(WORLD, socket=path) as serving:
        assert (serving.url is None) is (path is not None)
        yield path or serving.url


@pytest.fixture
def writable():
    with serving_objects(WORLD, read_only=False) as serving:
        yield serving.url
