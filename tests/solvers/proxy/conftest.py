"""Proxies for the tests, each with a folder and a real key of its own."""

from __future__ import annotations

import pytest

from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from solvers.proxy.recording import REAL_KEY, Recorded


@pytest.fixture
def proxied(tmp_path):
    """Start a proxy in front of an upstream and return it with a token."""

    def start(base, **settings):
        token = issue_token(tmp_path, "run")
        context = running_proxy(ProxySettings(upstream=base, directory=tmp_path, key=REAL_KEY, **settings))
        url = context.__enter__()
        open_.append(context)
        return Recorded(url, tmp_path, token)

    open_ = []
    yield start
    for context in open_:
        context.__exit__(None, None, None)
