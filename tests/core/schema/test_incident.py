"""What a truth says of itself: whether anything was broken, and what names its roots."""

from __future__ import annotations

import pytest

from opsassay.core.schema.incident import Fault, RootLabel, Truth

NOTHING = Fault(type="NoFault", service=None, start_ns=0, end_ns=1)
DELAY = Fault(type="NetworkDelay", service="cart", start_ns=0, end_ns=1)
UNKNOWN = Fault(type="tidal wave", service="cart", start_ns=0, end_ns=1)
NAMED, EMPTY = RootLabel(service=("store",)), RootLabel()


@pytest.mark.parametrize(
    ("faults", "roots", "broken", "services"),
    [
        ((), (), None, []),
        ((), (EMPTY,), None, []),
        ((), (NAMED,), True, [{"store"}]),
        ((NOTHING,), (), False, []),
        ((NOTHING,), (EMPTY,), False, []),
        ((NOTHING,), (NAMED,), True, [{"store"}]),  # any root means broken
        ((DELAY,), (NAMED,), True, [{"cart"}]),
        ((UNKNOWN,), (), True, [{"cart"}]),
    ],
)
def test_any_root_means_broken(faults, roots, broken, services):
    truth = Truth(id="i", system="s", faults=faults, roots=roots)
    assert truth.broken is broken
    assert [set(names) for names in truth.root_services()] == services
