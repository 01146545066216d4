"""Limits that hold at once: the local ports of a service, and where a level cannot change them."""

from __future__ import annotations

import pytest

from opsassay.core.errors import RefusedError
from opsassay.testbed.substrates.local.limits import PORT_RANGE, read_ports
from testbed.operations.test_mechanisms import PAGE, answers, small_desk


@pytest.mark.parametrize("value", ["", "42000", "42001 42000", "80 90", "42000 70000", "42000 42001 42002", "all"])
def test_what_is_no_range_of_ports_is_refused(value):
    with pytest.raises(RefusedError, match="two numbers from 1024 to 65535"):
        read_ports(value)


def test_a_range_is_written_as_the_kernel_writes_it():
    assert read_ports("42000-42009") == read_ports(" 42000 42009 ") == "42000 42009"


@pytest.fixture(scope="module", params=["namespaced", "plain"])
def running(request):
    with small_desk(request.param) as system:
        yield system


@pytest.mark.long
@pytest.mark.timeout(600)
def test_calls_fail_without_local_ports_until_there_are_some_again(running):
    few = {"target": "proxy", "key": PORT_RANGE, "value": "42000 42001"}
    if running.status().isolation == "plain":
        with pytest.raises(RefusedError, match="take the level namespaced"):
            running.operate("config set", few)
        return
    assert answers(running, PAGE, 200)["status"] == 200
    running.operate("config set", {"target": "proxy", "key": "KEEP_ALIVE", "value": "off"})
    running.operate("config set", few)
    running.operate("restart", {"target": "proxy"})
    assert answers(running, PAGE, 502)["status"] == 502
    running.operate("restart", {"target": "proxy"})  # the namespace outlives the process, and so do its ports
    assert answers(running, PAGE, 502)["status"] == 502
    assert running.operate("describe", {"target": "proxy"})["local_ports"]["proxy-0"]["range"] == "42000 42001"
    assert running.operate("config get", {"target": "proxy"})["settings"][PORT_RANGE] == "42000 42001"
    fresh = running.operate("scale", {"service": "proxy", "replicas": 2})["added"]
    assert running.operate("describe", {"target": "proxy"})["local_ports"][fresh[0]]["range"] == "42000 42001"
    running.operate("config unset", {"target": "proxy", "key": PORT_RANGE})
    assert answers(running, PAGE, 200)["status"] == 200
    assert PORT_RANGE not in running.operate("config get", {"target": "proxy"})["settings"]
