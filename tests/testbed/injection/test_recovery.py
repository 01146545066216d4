"""A fault is over when its signature is gone lately: calls that began before the undo may still end long after it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import pytest

from opsassay.core.schema.incident import EffectCheck
from opsassay.testbed.injection import inject
from opsassay.testbed.injection.inject import Act


@pytest.mark.parametrize(("slow_until_s", "recovered"), [(0.5, True), (60.0, False)])
def test_late_ends_of_calls_do_not_keep_a_fault_alive(monkeypatch, slow_until_s, recovered):
    undone = time.monotonic()

    def signature(_, times):
        """Return a mean over the time since *times[1]*, high as long as late ends of calls are in it."""
        return 1.0, 100.0 if times[1] < undone + slow_until_s else 2.0, 10.0

    monkeypatch.setattr(
        inject, "catalogued", lambda _: SimpleNamespace(signature=signature, recovered_when_ready=False)
    )
    monkeypatch.setattr(inject, "RECENT_S", 0.3)
    monkeypatch.setattr(inject, "RECOVERY_TIMEOUT_S", 2.0)
    effect = EffectCheck(signature="mean", before=1, after=100, threshold=10, passed=True, seconds=1)
    system = SimpleNamespace(fleet=SimpleNamespace(not_ready=list))
    act = Act(SimpleNamespace(plan=SimpleNamespace(fault="NetworkBandwidth"), system=system), None, effect=effect)
    assert asyncio.run(inject._check_recovery(act, undone)) is recovered
