"""What a feature does in a process of its own kind: a replica's application, asked in this process, with no network."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import time

import pytest

from opsassay.testbed.apps import load_system
from opsassay.testbed.workload.runtime.replica import ReplicaProcess

HEAP = """
import os, threading, time
import psutil
from opsassay.testbed.workload.runtime.stress import grow_heap

template = bytearray(b"\\1") * (64 << 20)
if os.fork():
    raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
parameters = {"size_mb": 4096, "limit_mb": 256, "beside_mb": 40}
threading.Thread(target=grow_heap, args=(threading.Event(), parameters), daemon=True).start()
seen = [0.0]
while len(seen) < 4 or seen[-1] > seen[-4]:
    time.sleep(0.3)
    seen.append(psutil.Process().memory_full_info().uss / 2**20)
print(seen[-1], flush=True)
os._exit(0)
"""
"""A process that was forked from one with 64 MiB, and whose heap grows."""


@pytest.mark.slow
def test_a_heap_grows_until_its_container_is_nearly_full_whatever_it_shares_with_whom_it_was_forked_from():
    done = subprocess.run([sys.executable, "-c", HEAP], capture_output=True, text=True, check=True, timeout=60)
    full = 256 * 0.9 - 40
    assert full - 8 <= float(done.stdout) <= full + 2


FILES = """
import os, threading
from opsassay.testbed.workload.runtime.stats import Stats
from opsassay.testbed.workload.runtime.stress import FILES_LIMIT, hold_files

stats = Stats()
known = stats.memory_bytes()
ended = threading.Event()
thread = threading.Thread(target=hold_files, args=(ended, {"per_s": 1000}))
thread.start()
for _ in range(1000):
    ended.wait(0.01)
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        print(error.strerror, stats.memory_bytes() == known)
        break
ended.set()
thread.join()
os.close(os.open(os.devnull, os.O_RDONLY))
print("open again")
"""


def test_a_watch_over_files_uses_up_the_descriptors_and_gives_them_back():
    done = subprocess.run([sys.executable, "-c", FILES], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["Too many open files True", "open again"]


@pytest.fixture
def replica(tmp_path, monkeypatch):
    """Return a function that makes the replica of a service with settings; what it registers goes with the test."""
    callbacks = list(gc.callbacks)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")  # there is no receiver here

    def made(**settings):
        return ReplicaProcess(
            {
                "system": load_system("grid").model_dump(mode="json", by_alias=True), "service": "auth-service",
                "release": "v1", "settings": settings, "inside": None, "clock_offset_ns": 0, "beside_mb": 0,
                "id": "auth-service-0", "endpoint": "http://127.0.0.1:9", "resource": {}, "names": [],
                "ledger": str(tmp_path / "ledger.jsonl"), "stores": {}, "token": "t",
            }
        )  # fmt: skip

    yield made
    gc.callbacks[:] = callbacks


async def asked(replica, arriving=None):
    """Return status and body of one request, once what its settings switch on acts; *arriving* comes for its body."""
    await replica.set_hooks({"hooks": ()})
    sent = []
    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "query_string": b"", "headers": [],
             "http_version": "1.1", "scheme": "http", "server": ("a", 1), "client": ("b", 2), "root_path": ""}  # fmt: skip

    async def receive():
        return arriving or {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        sent.append(message)

    await replica.application()(scope, receive, send)
    body = b"".join(one.get("body", b"") for one in sent)
    return sent[0]["status"], body


def test_unready_code_fails_refuses_breaks_and_delays_every_request(replica):
    whole = asyncio.run(asked(replica()))
    assert whole[0] == 200
    assert asyncio.run(asked(replica(FEATURE_STRICT_INPUT="1")))[0] == 500
    assert asyncio.run(asked(replica(FEATURE_ADMISSION="503")))[0] == 503
    status, body = asyncio.run(asked(replica(FEATURE_COMPRESSION="1")))
    assert (status, len(body), body == whole[1]) == (200, len(whole[1]), False)
    began = time.monotonic()
    assert asyncio.run(asked(replica(FEATURE_AUDIT="300")))[0] == 200
    assert time.monotonic() - began >= 0.3


def test_a_request_whose_caller_has_hung_up_is_dropped_before_its_work_begins(replica):
    served, dropped = replica(), replica()
    assert asyncio.run(asked(served))[0] == 200
    assert asyncio.run(asked(dropped, {"type": "http.disconnect"})) == (499, b"")
    assert "server" in served.stats.snapshot()
    assert "server" not in dropped.stats.snapshot()


def test_hooks_of_an_injection_leave_what_settings_switch_on(replica):
    async def injected():
        one = replica(FEATURE_ADMISSION="503")
        await one.set_hooks({"hooks": [{"injection": "i", "type": "delay_method", "parameters": {"delay_ms": 1}}]})
        return [hook["type"] for hook in one.hooks.active], (await asked(one))[0]

    assert asyncio.run(injected()) == (["delay_method", "abort_request"], 503)


def test_a_strain_begins_with_the_process_and_can_be_ended(replica):
    async def strained():
        one = replica(FEATURE_PREFETCH="1")
        await one.set_hooks({"hooks": ()})
        strain = one.strain
        await strain.stop()
        return strain.hook

    assert asyncio.run(strained()) == "keep_busy"
