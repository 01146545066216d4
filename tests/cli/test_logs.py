"""`opsassay system logs`: all processes of a system in the order of time, one sentence for a system that is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from live import state_folder
from opsassay.cli import run
from opsassay.cli.system.logs import merge_logs
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

TINY = str(Path(__file__).parents[1] / "testbed" / "tiny.yaml")


def line(second, event, **fields):
    return json.dumps({"time": f"2026-01-01T00:00:{second:02}.000Z", "level": "info", "event": event, **fields}) + "\n"


def test_logs_are_merged_by_time_and_a_line_of_another_program_stays_with_the_one_before_it():
    shown = {}
    written = {"a": line(1, "one") + line(5, "five"), "b": line(3, "three") + "LOG: ready\n" + '{"time": "2026'}
    found = merge_logs(written, shown)
    assert [(one["process"], one["event"]) for one in found] == [
        ("a", "one"), ("b", "three"), ("b", "LOG: ready"), ("a", "five"),
    ]  # fmt: skip
    assert merge_logs(written, shown) == [], "nothing is shown twice"
    written["b"] = written["b"].removesuffix('{"time": "2026') + line(7, "seven")
    assert [one["event"] for one in merge_logs(written, shown)] == ["seven"], "half a line is shown when it is whole"
    written["b"] = line(9, "nine")
    assert [one["event"] for one in merge_logs(written, shown)] == ["nine"], (
        "a log that began anew is shown from its start"
    )


def test_an_unknown_system_is_one_sentence(capsys):
    with state_folder():
        assert run(["system", "logs", "nobody"]) == 2
    assert "There is no system with logs 'nobody'" in capsys.readouterr().err


@pytest.mark.live
@pytest.mark.timeout(120)
def test_the_life_of_a_system_is_in_its_logs_and_stays_readable_when_its_supervisor_was_killed(capsys):
    def shown(*options):
        assert run(["system", "logs", "told", "--json", *options]) == 0
        return [json.loads(one) for one in capsys.readouterr().out.splitlines()]

    with state_folder():
        running = LocalSubstrate().deploy(load_system(TINY), "told")
        pid = running.command("status")["pids"]["back-0"]
        command = [
            sys.executable,
            "-m",
            "opsassay",
            "system",
            "logs",
            "told",
            "--follow",
            "--process",
            "supervisor",
            "--json",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
            threading.Timer(40, following.kill).start()
            assert json.loads(following.stdout.readline())["event"] == "starting"
            os.kill(pid, signal.SIGKILL)
            events = [json.loads(following.stdout.readline())["event"] for _ in range(3)]
            following.send_signal(signal.SIGINT)
        assert events == ["ready", "replica died", "replica restarted"]
        entries = shown()
        by_process = {name: [e for e in entries if e["process"] == name] for name in {e["process"] for e in entries}}
        assert {"supervisor", "receiver", "template", "loadgenerator", "front-0", "back-0"} <= by_process.keys()
        died = next(one for one in by_process["supervisor"] if one["event"] == "replica died")
        assert (died["replica"], died["pid"], died["status"], died["system"]) == ("back-0", pid, -9, "told")
        assert [one["event"] for one in by_process["back-0"] if one["event"] == "started"] == ["started"] * 2
        times = [one["time"] for one in entries if one["time"]]
        assert times == sorted(times)
        assert {one["event"] for one in shown("--level", "warning")} >= {"replica died"}
        assert all(one["level"] != "info" for one in shown("--level", "warning"))
        assert run(["system", "logs", "told", "--process", "nobody"]) == 2
        assert "There is no process of told with a log 'nobody'" in capsys.readouterr().err
        psutil.Process(running.command("status")["pid"]).kill()
        time.sleep(0.5)
        assert "replica died" in {one["event"] for one in shown("--process", "supervisor")}
        LocalSubstrate().status()
        assert run(["system", "logs", "told"]) == 2, "what was cleared is gone"
