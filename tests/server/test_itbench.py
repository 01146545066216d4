"""An agent harness that speaks ITBench's protocol, request by request as the public one does, is graded by the platform."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

import pytest
import yaml

from opsassay.server.client import PlatformClient

from .conftest import bundle, finished
from .test_handed_in import hand_in

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
METADATA = {"id", "resource_type", "creation_timestamp"}


class Harness:
    """The agent harness: it polls its manifest, takes benchmarks that are NotStarted and their bundles that are Ready.

    *answer* is what the agent makes of a bundle's data: the content of the file that it leaves.
    """

    def __init__(self, url, manifest, answer):
        self.root, self.manifest, self.answer = f"{url}/itbench", manifest, answer
        self.phases, self.taken, self.uploads = [], [], []

    def send(self, method, path, body=None, content_type="application/json"):
        headers = {"Authorization": f"Bearer {self.manifest['token']}", "Content-type": content_type}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.root}/{path.lstrip('/')}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def run_once(self):
        at = self.manifest["manifest_endpoint"]
        while not (entries := self._not_started(at)):
            time.sleep(0.3)
        for entry in entries:
            assert {"id", "name", "source_id", "status_endpoint"} <= entry["agent_access_info"].keys()
            assert all("manifest_endpoint" in one for one in entry["bundle_access_infos"])
            of = entry["benchmark_id"]
            self.send("PUT", f"{at}/benchmark-entries/{of}", status("Executing"))
            self._run_benchmark(of, entry["agent_access_info"]["id"])
            self.send("PUT", f"{at}/benchmark-entries/{of}", status("Finished"))

    def _not_started(self, at):
        return [one for one in self.send("GET", at)["benchmark_entries"] if one["status"]["phase"] == "NotStarted"]

    def _run_benchmark(self, of, agent):
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline:
            bundles = self.send("GET", f"/benchmarks/{of}/bundles/")
            self.phases += [one["status"]["phase"] for one in bundles]
            if all(one["status"]["phase"] in ("Terminated", "Error") for one in bundles):
                return
            if ready := [one for one in bundles if one["status"]["phase"] == "Ready"]:
                self._run_agent(ready[0], of, agent)
            else:
                time.sleep(0.3)
        raise AssertionError(self.phases[-3:])

    def _run_agent(self, taken, of, agent):
        assert taken["metadata"].keys() >= METADATA
        assert self.send("GET", f"/benchmarks/{of}/agents/{agent}")["metadata"]["id"] == agent
        bundle_id = taken["metadata"]["id"]
        self.send("PUT", f"/benchmarks/{of}/assign_agent", {"agent_id": agent, "bundle_id": bundle_id})
        self.send("PUT", f"/benchmarks/{of}/agents/{agent}/status", status("Executing"))
        self.taken.append(bundle_id)
        body, kind = form(bundle_id, self.answer(taken["spec"]["data"]))
        self.uploads.append(self.send("POST", f"/benchmarks/{of}/file", body, kind))
        self.send("PUT", f"/benchmarks/{of}/agents/{agent}/status", status("Finished"))
        for _ in range(100):
            if self.send("GET", f"/benchmarks/{of}/bundles/{bundle_id}")["status"]["phase"] in ("Terminated", "Error"):
                break
            time.sleep(0.3)
        self.send("PUT", f"/benchmarks/{of}/agents/{agent}/status", status("Ready"))


def status(phase, message=None):
    return {"lastTransitionTime": "2026-01-01T00:00:00Z", "phase": phase, "message": message}


def form(name, content):
    head = f'--edge\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--edge--\r\n", "multipart/form-data; boundary=edge"


def refused(client, method, path, body=None):
    request = urllib.request.Request(
        f"{client.server}/itbench{path}",
        None if body is None else json.dumps(body).encode(),
        {"Authorization": f"Bearer {client._token}"},
        method=method,
    )
    with pytest.raises(urllib.error.HTTPError) as caught, urllib.request.urlopen(request):
        pass
    with caught.value as answer:
        return answer.code, json.loads(answer.read())["error"]


@pytest.fixture(scope="module")
def class_of_tasks(platform):
    """A task set of one class of tasks of FinOps, beside `bill`."""
    tasks = {"domain": "finops", "baselines": [], "part": {"tasks": ["insight", "anomaly"]}}
    chosen = {**tasks, "choose": {"classes": ["anomaly"], "count": 2}}
    hand_in(platform.user("author of a class", "author"), "anomalies", bundle(task_set__yaml=yaml.safe_dump(chosen)))
    return "anomalies"


def registered(owner, name, **further):
    said = {"name": name, "type": "FinOps", "level": "Beginner", "scenario_class": "anomaly", **further}
    return owner.ask("POST", "/itbench/agents", said)


def test_a_harness_of_itbench_enrolls_takes_its_bundles_answers_and_is_graded(platform, class_of_tasks):
    owner = platform.user("has a harness")
    agent = registered(owner, "harnessed", level="any")
    assert agent["spec"]["scenario_categories"] == ["anomaly"]
    manifest = agent["spec"]["agent_manifest"]
    owner.ask("POST", "/itbench/enroll", {"agent_id": agent["metadata"]["id"]})
    assert owner.ask("POST", "/itbench/ready", {"agent_id": agent["metadata"]["id"]})["token"] == owner._token

    def answer(data):
        assert {"prompt", "mcp", "token", "task"} <= data.keys()
        assert "anomalies" in data["prompt"]
        return json.dumps({"anomalies": []}).encode()

    harness = Harness(platform.url, manifest, answer)
    harness.run_once()
    assert len(set(harness.taken)) == len(harness.taken) == 2
    assert {"NotStarted", "Ready", "Terminated"} <= set(harness.phases)
    (entry,) = harness.send("GET", manifest["manifest_endpoint"])["benchmark_entries"]
    found = finished(owner, entry["benchmark_id"])
    assert entry["status"]["phase"] == "Finished"
    assert found["task_set"] == class_of_tasks
    assert {(cell["bundle"], cell["agent"], cell["error"]) for cell in found["cells"]} == {
        ("Terminated", "Finished", None)
    }
    runs = [
        json.loads((platform.state / "stores" / class_of_tasks / cell["run"] / "run.json").read_text())
        for cell in found["cells"]
    ]
    assert [run["status"] for run in runs] == ["done", "done"], "the uploaded file was the answer"


def test_the_words_of_the_paper_do_the_same(platform, class_of_tasks):
    owner = platform.user("has read the paper")
    about = {"name": "in words of the paper", "type": "FinOps", "level": "any", "scenario_categories": ["anomaly"]}
    agent = owner.ask("POST", "/itbench/agents", about)["metadata"]["id"]
    (entry,) = owner.ask("POST", "/itbench/enroll", {"agent_id": agent})["benchmark_entries"]
    of, done = entry["benchmark_id"], set()
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and len(done) < 2:
        owner.ask("GET", f"/itbench/agents/{agent}/manifest")
        for one in owner.ask("GET", f"/itbench/benchmarks/{of}/bundles/"):
            name = one["metadata"]["id"]
            if one["status"]["phase"] == "Ready" and name not in done:
                body = {"agent_id": agent, "bundle_id": name}
                owner.ask("PUT", f"/itbench/benchmarks/{of}/assign_agent", body)
                owner.ask("PUT", f"/itbench/benchmarks/{of}/agents/{agent}/status", {"phase": "STARTED"})
                if done:
                    owner.ask("POST", f"/itbench/benchmarks/{of}/finish")
                else:
                    owner.ask("PUT", f"/itbench/benchmarks/{of}/agents/{agent}/status", {"phase": "FINISH"})
                after = owner.ask("GET", f"/itbench/benchmarks/{of}/bundles/{name}")["status"]["phase"]
                assert after in ("Evaluating", "Evaluated", "Terminating", "Terminated")
                done.add(name)
        time.sleep(0.3)
    found = finished(owner, of)
    assert [(cell["agent"], cell["passed"]) for cell in found["cells"]] == [("Finished", False)] * 2


def test_what_is_another_s_or_not_ready_is_refused_with_a_sentence(platform, class_of_tasks):
    owner, other = platform.user("has an agent"), platform.user("has none")
    agent = registered(owner, "not yet ready", level="any")["metadata"]["id"]
    (entry,) = owner.ask("POST", "/itbench/enroll", {"agent_id": agent})["benchmark_entries"]
    of, (first, *_) = entry["benchmark_id"], entry["bundle_access_infos"]
    body = {"agent_id": agent, "bundle_id": first["id"]}
    for method, path, sent in (
        ("GET", f"/agents/{agent}/manifest", None),
        ("PUT", f"/agents/{agent}/manifest/benchmark-entries/{of}", status("Executing")),
        ("POST", "/enroll", {"agent_id": agent}),
        ("POST", "/ready", {"agent_id": agent}),
        ("GET", f"/benchmarks/{of}/bundles/", None),
        ("GET", f"/benchmarks/{of}/bundles/{first['id']}", None),
        ("GET", f"/benchmarks/{of}/agents/{agent}", None),
        ("PUT", f"/benchmarks/{of}/assign_agent", body),
        ("PUT", f"/benchmarks/{of}/agents/{agent}/status", status("Finished")),
        ("POST", f"/benchmarks/{of}/finish", None),
    ):
        assert refused(other, method, path, sent)[0] == 403, path
    upload, kind = form(first["id"], b"{}")
    with pytest.raises(urllib.error.HTTPError) as caught:
        Harness(platform.url, {"token": other._token}, None).send("POST", f"/benchmarks/{of}/file", upload, kind)
    assert caught.value.code == 403
    caught.value.close()
    runner = PlatformClient(platform.url, platform.user("a runner", "runner")._token)
    path = f"/benchmarks/{of}/bundles/{first['id']}/status"
    present = owner.ask("GET", f"/itbench/benchmarks/{of}/bundles/{first['id']}")["status"]["phase"]
    if present == "NotStarted":
        assert refused(owner, "PUT", path, status(present))[0] == 403
    assert refused(runner, "PUT", path, status("Evaluated"))[0] == 409
    code, said = refused(owner, "PUT", f"/benchmarks/{of}/agents/{agent}/status", status("Dancing"))
    assert (code, "STARTED, FINISH" in said) == (400, True)
    assert refused(owner, "POST", "/agents", {"name": "x", "type": "Magic"})[0] == 400
    lonely = registered(owner, "lonely", scenario_class="none such")["metadata"]["id"]
    code, said = refused(owner, "POST", "/enroll", {"agent_id": lonely})
    assert (code, "no open task set" in said) == (400, True)
