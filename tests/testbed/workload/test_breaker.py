"""A circuit breaker under steady traffic: it opens, refuses without trying, and closes again when a try succeeds."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

from opsassay.core.schema.system import Step
from opsassay.testbed.workload.runtime import clients
from opsassay.testbed.workload.runtime.clients import CallFailedError
from opsassay.testbed.workload.runtime.settings import Settings
from opsassay.testbed.workload.runtime.steps import Executor, Work


class Caller(Executor):
    """Calls that fail while the callee is *broken*; everything else is the executor's own."""

    def __init__(self):
        self.clients = SimpleNamespace(breakers={}, settings=Settings())
        self.broken, self.tries = True, 0

    async def _attempt_call(self, *_):
        self.tries += 1
        if self.broken:
            raise CallFailedError("no answer")


def test_an_open_circuit_closes_again_under_steady_traffic(monkeypatch):
    now = 0.0
    monkeypatch.setattr(clients.time, "monotonic", lambda: now)
    caller, step = Caller(), Step(call="ads GET /ads", timeout_s=1, breaker_failures=3, breaker_open_s=5)

    def call():
        try:
            asyncio.run(caller._run_call(step, Work("GET /")))
        except CallFailedError as error:
            return str(error)
        return "answered"

    said = []
    for tenth in range(200):  # ten calls a second; the callee is well again after two seconds
        now = tenth / 10
        caller.broken = now < 2
        said.append(call())
    assert said[:3] == ["no answer"] * 3
    assert set(said[3:52]) == {"circuit to ads is open"}
    assert set(said[53:]) == {"answered"}
    assert caller.tries == 3 + said.count("answered")
