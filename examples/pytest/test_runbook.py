"""A runbook under test: does it repair what somebody changed, and what does the system go through meanwhile?"""

import pytest


@pytest.mark.opsassay(system="kiosk")
def test_the_runbook_brings_the_catalog_back(opsassay_system):
    opsassay_system.change("scale", service="catalog", replicas=1)
    opsassay_system.tools.call("scale", {"service": "catalog", "replicas": 2})  # your agent or runbook stands here
    opsassay_system.assert_recovers(within_s=30)
    opsassay_system.assert_kept("D2", at_least=0.5)
    opsassay_system.assert_touched_only("catalog")
