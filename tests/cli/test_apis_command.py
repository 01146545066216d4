"""opsassay incident serve-apis, as it is called."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request

import pytest

from telemetry.packs import make_pack, make_tree

ASK = "import os, urllib.request; print(urllib.request.urlopen(os.environ['{}'] + '{}').read().decode())"
OPSASSAY = (sys.executable, "-m", "opsassay", "incident", "serve-apis")


def run(*words):
    return subprocess.run([*OPSASSAY, *map(str, words)], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.slow
def test_a_client_finds_all_apis_and_its_exit_code_is_passed_on(tmp_path):
    pack = make_pack(tmp_path / "p")
    done = run(pack.path, "--", sys.executable, "-c", ASK.format("PROMETHEUS_URL", "/api/v1/query?query=1"))
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "success"), done.stderr
    done = run(
        pack.path, "--", sys.executable, "-c", ASK.format("JAEGER_URL", "/api/services") + "; raise SystemExit(3)"
    )
    assert (done.returncode, "cart" in done.stdout) == (3, True)
    for name, path, seen in (
        ("LOKI_URL", "/loki/api/v1/label/service_name/values", "cart"),
        ("ALERTMANAGER_URL", "/api/v2/status", "versionInfo"),
        ("TEMPO_URL", "/api/search/tag/service.name/values", "cart"),
    ):
        done = run(pack.path, "--", sys.executable, "-c", ASK.format(name, path))
        assert (done.returncode, seen in done.stdout) == (0, True), done.stderr


@pytest.mark.slow
def test_a_folder_with_one_incident_is_enough_and_with_two_one_is_asked_for(tmp_path):
    assert run(make_tree(tmp_path / "one", count=1).root, "--", sys.executable, "-c", "pass").returncode == 0
    done = run(make_tree(tmp_path / "two", count=2).root)
    assert (done.returncode, done.stdout) == (2, "")
    assert "has 2 incidents; name one of them, as" in done.stderr


@pytest.mark.slow
def test_what_is_neither_an_incident_nor_a_running_system_is_one_sentence(tmp_path):
    for path in (tmp_path, tmp_path / "none", "no-such-system"):
        done = run(path)
        assert done.returncode == 2
        assert done.stderr.startswith("Error: ")
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_interrupted_and_a_port_is_taken_once(tmp_path, sent):
    pack = make_pack(tmp_path / "p")
    with subprocess.Popen(
        ["env", "--default-signal=INT", *OPSASSAY, str(pack.path)],  # whoever runs the tests may ignore it
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as serving:  # fmt: skip
        name, _, url = serving.stdout.readline().strip().removeprefix("export ").partition("=")
        with urllib.request.urlopen(f"{url}/-/healthy") as answer:
            assert (name, answer.status) == ("PROMETHEUS_URL", 200)
        second = run(pack.path, "--port", url.rpartition(":")[2])
        assert (second.returncode, "cannot be listened on" in second.stderr) == (2, True)
        serving.send_signal(sent)
        assert serving.wait(20) == 130
        assert "Interrupted" in serving.stderr.read()


def test_where_interrupts_are_ignored_it_goes_on_serving(tmp_path):
    pack = make_pack(tmp_path / "p")
    with subprocess.Popen(
        ["env", "--ignore-signal=INT", *OPSASSAY, str(pack.path)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as serving:  # fmt: skip
        url = serving.stdout.readline().strip().partition("=")[2]
        for number, ends in ((signal.SIGINT, False), (signal.SIGTERM, True)):
            with urllib.request.urlopen(f"{url}/-/healthy") as answer:
                assert answer.status == 200
            serving.send_signal(number)
            if ends:
                assert serving.wait(20) == 130
            else:
                with pytest.raises(subprocess.TimeoutExpired):
                    serving.wait(0.5)
