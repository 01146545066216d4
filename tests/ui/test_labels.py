"""Pages of the label audit: served for one annotator, on this machine only, and what is ticked is what is kept."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest
import uvicorn

from annotation import systems
from annotation.cascade import Effect, fault, frames, incident
from opsassay.annotation.job import AnnotateJob, run_job
from opsassay.annotation.suites.agreement import CaseVerdict, read_verdicts, save_verdict
from opsassay.core.schema.incident import Truth
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.tree import Tree
from opsassay.ui.labels import LabelAudit, labels_app
from opsassay.ui.loopback import LoopbackOnly

CASE = "a" * 16
PASS = "a-key-of-the-test"
EFFECT = Effect(own_ms={"payment": 300})


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("labels") / "suite")
    tree.incidents_dir.mkdir(parents=True)
    tree.write_truth(Truth(id=CASE, system="cascade", faults=(fault("HTTPResponseDelay", "payment", EFFECT),)))
    described = incident().model_copy(update={"id": CASE})
    write_datapack(tree.incident_path(CASE), frames(systems.deep(), EFFECT), described, {})
    run_job(AnnotateJob(tree.incident_path(CASE)))
    return tree.root


@pytest.fixture(scope="module")
def address(suite):
    save_verdict(suite, CaseVerdict(case=CASE, annotator="grace", note="only grace may read this"))
    app = LoopbackOnly(labels_app(LabelAudit(suite, "ada", (CASE,))), PASS)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


@pytest.mark.browser
def test_what_is_ticked_is_kept_and_nothing_of_the_other_is_shown(suite, address, browser):
    tab = browser.new_page(viewport={"width": 390, "height": 900})
    problems, requests = [], []
    tab.on("console", lambda m: problems.append(m.text))
    tab.on("request", lambda r: requests.append(r.url))
    tab.goto(f"{address}/?key={PASS}")
    assert tab.url == f"{address}/"
    tab.get_by_role("link", name=CASE).click()
    text = tab.content()
    assert "HTTPResponseDelay at payment" in text
    assert "only grace may read this" not in text
    assert tab.locator("polyline").count() > 3
    tab.get_by_label("not visible").first.check()
    tab.get_by_label("causal").nth(1).check()
    tab.get_by_label("Missing parts").fill("service|bank\n\n")
    tab.get_by_role("button", name="Save and go on").click()
    assert tab.get_by_text("disagree").count() == 1
    said = read_verdicts(suite, "ada")[CASE]
    graph = Tree(suite).annotation(CASE).graph
    assert said.nodes == (graph.nodes[0].component,)
    assert said.edges == {f"{graph.edges[1].source} -> {graph.edges[1].target}": ("causal",)}
    assert said.missing == ("service|bank",)
    tab.goto(f"{address}/case/{CASE}")
    assert tab.get_by_label("not visible").first.is_checked()
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert problems == []
    assert all(url.startswith(address) for url in requests)
    tab.close()


def with_cookie(address, path, body=None):
    port = address.rpartition(":")[2]
    return urllib.request.Request(f"{address}{path}", body, {"Cookie": f"opsassay-{port}={PASS}"})


def post(address, host=None, **fields):
    request = with_cookie(address, f"/case/{CASE}", urllib.parse.urlencode(fields).encode())
    if host:
        request.add_header("Host", host)
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    caught.value.close()
    return caught.value.code


def test_other_pages_cannot_post_and_other_names_are_not_served(address):
    assert post(address, token="guessed") == 403
    assert post(address, host="evil.example", token="guessed") == 400


def test_an_unknown_case_is_not_found(address):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(with_cookie(address, "/case/nothing"))
    caught.value.close()
    assert caught.value.code == 404
