"""The page of a running system: signals and alerts come by themselves, what is injected to whoever asks for it alone."""

from __future__ import annotations

import json
import threading
import time

import pytest

from live import state_folder
from opsassay.core.errors import NotFoundError
from opsassay.core.schema.incident import FaultPlan, Target
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from opsassay.ui.browsing import systems
from opsassay.ui.browsing.kinds import PageQuery
from opsassay.ui.browsing.site import StorePages
from opsassay.ui.browsing.systems import graph_of
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.browsing.watching import Watcher

from .stores import ended

TWO = System.model_validate({
    "system": "two",
    "services": {
        "front": {"operations": {"GET /": {"steps": [{"call": "back GET /", "timeout_s": 1}]}}},
        "back": {"operations": {"GET /": {"steps": [{"wait_ms": 2}]}}},
    },
    "load": {"rate_rps": 20, "timeout_s": 3, "mix": [{"request": "front GET /"}]},
})  # fmt: skip


def test_callers_are_to_the_left_and_every_state_has_its_shape():
    signals = {
        name: {"rate_rps": 1.0, "p99_ms": 2.0, "errors": errors} for name, errors in (("front", 0.5), ("back", 0.0))
    }
    graph = graph_of(TWO, signals, {"back"}, ())
    places = {node["name"]: (node["x"], node["state"]) for node in graph["nodes"]}
    assert places["front"][0] < places["back"][0]
    assert (places["front"][1], places["back"][1]) == ("failing", "loud")
    assert [(line["a"], line["b"]) for line in graph["lines"]] == [("front", "back")]
    (down,) = [node["name"] for node in graph_of(TWO, {}, (), ("back-0",))["nodes"] if node["state"] == "down"]
    assert down == "back"


@pytest.mark.live
def test_a_running_system_is_followed_and_its_fault_is_behind_the_reveal(tmp_path, monkeypatch):
    monkeypatch.setattr(systems, "USUAL_S", 5.0)
    monkeypatch.setattr(systems, "IDLE_S", 3.0)
    ended(tmp_path)
    watcher = Watcher([tmp_path])
    with state_folder(), LocalSubstrate().deployed(TWO, "two", isolation="plain") as running:
        watches = systems.SystemWatches(LocalSubstrate())
        pages = StorePages(lambda: watcher.catalogue, StoredVerdicts(), systems=watches)

        def page(form="json", reveal=""):
            return pages.answer(f"systems/two.{form}", PageQuery({"reveal": reveal})).text

        def until(seen):
            ends = time.monotonic() + 60
            while not seen(found := json.loads(page())):
                assert time.monotonic() < ends, found
                time.sleep(0.5)

        try:
            assert [one["name"] for one in json.loads(pages.answer("systems.json").text)["systems"]] == ["two"]
            with pytest.raises(NotFoundError):
                pages.answer("systems/three.html")
            until(
                lambda one: (
                    {row["service"] for row in one["signals"]} == {"front", "back"} and "no alert" in one["answer"]
                )
            )
            plan = FaultPlan(fault="HTTPResponseAbort", target=Target(service="back"), duration_s=30)
            over = threading.Event()
            injecting = threading.Thread(target=lambda: list(running.inject(plan, over)))
            injecting.start()
            until(lambda one: one["alerts"] and "fails" in one["answer"])
            assert all("HTTPResponseAbort" not in page(form) for form in ("html", "json"))
            assert all("HTTPResponseAbort" in page(form, "1") for form in ("html", "json"))
            over.set()
            injecting.join()
            (name,) = running.receiver.stats().sessions
            time.sleep(6)
            assert running.receiver.stats().sessions == {}, name
        finally:
            watches.close()
