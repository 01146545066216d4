"""Side processes of replicas and stores: an operator finds and ends them, and none outlives its system."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from live import state_folder
from opsassay.core.errors import OpsAssayError, RefusedError, UserError
from opsassay.core.schema.system import System
from opsassay.testbed.kernel.private_root import Confinement, confinement
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
TINY = System.model_validate(
    {
        "system": "tiny",
        "description": "A page that writes to a cache.",
        "hosts": ["host-a"],
        "stores": {"cache": {"engine": "valkey"}, "queue": {"engine": "nats"}},
        "services": {
            "web": {
                "gateway": True,
                "operations": {
                    "GET /": {"steps": [{"cache": "set", "key": "a:{int:9}", "ttl_s": 60}]},
                    "GET /read": {"steps": [{"cache": "get", "key": "a:{int:9}"}]},
                },
            }
        },
        "load": {"rate_rps": 4.0, "mix": [{"request": "web GET /", "weight": 1}]},
    }
)
EXPORT = {"target": "cache", "process": "nightly-export"}


@pytest.fixture(scope="module", params=["namespaced", "plain"])
def running(request):
    if not probe()[request.param].available:
        pytest.skip(f"no {request.param} isolation: {probe()[request.param].reason}")
    with state_folder(), LocalSubstrate().deployed(TINY, "tiny", isolation=request.param) as system:
        yield system


def page(running, path="/"):
    about = {"source": "web", "service": "web", "port": 8080, "path": path, "method": "GET", "timeout_s": 5.0}
    try:
        return running.operate("exec curl", about).get("status")
    except OpsAssayError:
        return None


def becomes(wanted, read, timeout_s=40.0):
    deadline = time.monotonic() + timeout_s
    while read() != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return read() == wanted


def test_a_store_without_a_disk_of_its_own_cannot_be_filled(running):
    with pytest.raises(RefusedError, match="queue has no disk of its own here"):
        running.operate("disk fill", {"store": "queue", "process": "nightly-export"})
    with pytest.raises(UserError, match="'web'"):
        running.operate("disk fill", {"store": "web", "process": "nightly-export"})
    with pytest.raises(UserError, match="no process at web 'python'"):
        running.operate("kill", {"target": "web", "process": "python"})
    with pytest.raises(UserError, match="'host-a'"):
        running.operate("kill", {"target": "host-a", "process": "python"})


@pytest.mark.skipif(confinement() is not Confinement.PRIVATE_ROOT, reason="no root who may mount")
def test_a_full_disk_stops_writes_until_the_process_is_ended(running):
    def described():
        return running.operate("describe", {"target": "cache"})

    assert becomes(200, lambda: page(running))
    with pytest.raises(RefusedError, match="at most 15 characters"):
        running.operate("disk fill", {"store": "cache", "process": "a name with too much"})
    running.operate("config set", {"target": "cache", "key": "save", "value": "1 1"})
    running.operate("disk fill", {"store": "cache", "process": "nightly-export"})
    assert becomes(502, lambda: page(running))
    assert page(running, "/read") == 200
    assert described()["disk_free_mb"] == 0
    (one,) = described()["processes"]
    assert (one["process"], one["writes_to"]) == ("nightly-export", "nightly-export.out (deleted)")
    running.operate("restart", {"target": "cache"})  # a disk outlives a restart, and so does what fills it
    assert becomes(502, lambda: page(running))
    assert described()["disk_free_mb"] == 0
    assert running.operate("kill", EXPORT) == {"ended": ["cache"]}
    assert (described()["processes"], described()["disk_free_mb"] > 15) == ([], True)
    assert becomes(200, lambda: page(running))
    assert running.status().unexpected_exits == ()


def test_a_preview_on_the_port_of_its_service_keeps_it_from_starting(running):
    def preview(port):
        running.operate("config set", {"target": "web", "key": "PREVIEW_PORT", "value": port})

    def seen():
        described = running.operate("describe", {"target": "web"})
        return [one["listens_on"] for one in described["processes"]], described["replicas"][0]["state"]

    if running.status().isolation != "namespaced":
        with pytest.raises(UserError, match="take the level namespaced"):
            preview("8080")
        return
    preview("8080")
    assert running.operate("restart", {"target": "web"})["not_ready"] == ["web-0"]
    assert becomes(([8080], "crashing"), seen)
    assert "port 8080: address already in use" in str(running.operate("logs", {"target": "web", "lines": 9}))
    assert running.operate("kill", {"target": "web", "process": "preview"}) == {"ended": ["web-0"]}
    assert becomes(([], "ready"), seen)  # a crash makes no new pod, and so no new preview
    assert running.operate("restart", {"target": "web"})["not_ready"] == ["web-0"]
    preview("9100")
    assert running.operate("restart", {"target": "web"})["not_ready"] == []
    assert seen() == ([9100], "ready")
    assert running.operate("scale", {"service": "web", "replicas": 2})["not_ready"] == []
    assert seen()[0] == [9100, 9100]
    assert running.operate("scale", {"service": "web", "replicas": 1})["removed"] == ["web-1"]
    assert seen()[0] == [9100]
    running.operate("config unset", {"target": "web", "key": "PREVIEW_PORT"})
    assert running.operate("restart", {"target": "web"})["not_ready"] == []
    assert seen() == ([], "ready")


@pytest.mark.skipif(confinement() is not Confinement.PRIVATE_ROOT, reason="no root who may mount")
def test_nothing_is_left_of_it_when_the_supervisor_is_killed():
    def survives(pid):
        return Path(f"/proc/{pid}").exists()

    with state_folder(), LocalSubstrate().deployed(TINY, "short") as system:
        system.operate("disk fill", {"store": "cache", "process": "nightly-export"})
        pid = system.operate("describe", {"target": "cache"})["processes"][0]["pid"]
        assert Path(f"/proc/{pid}/comm").read_text().strip() == "nightly-export"
        os.kill(system.status().pid, signal.SIGKILL)
        assert becomes(wanted=False, read=lambda: survives(pid))
