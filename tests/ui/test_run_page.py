"""The page of a trial: positions by hand, and the page itself in a real browser at two widths."""

from __future__ import annotations

import pytest

from opsassay.core.schema.run import Run, Solver
from opsassay.core.schema.trajectory import ToolCall, TraceStep
from opsassay.scoring.verifiers import certify
from opsassay.ui.page import write_whole
from opsassay.ui.run_view import render_run_page, trial_view
from scoring.verifiers.made import at, change, diagnosis, entity, firing, probe, recording, scenario, timeline

HOSTILE = "</style><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e"


def made_view(text="", diagnoses=None, **verification):
    d1 = [1.0] * 4 + [(0.9, ("front-0",))] * 10 + [(0.55, ("cart-0", "front-0"))] * 2 + [1.0] * 15
    load = {s: {"front GET /": (20 * s, max(0, 4 * (s - 4)))} for s in range(31)}
    probes = [probe("p1", 2), probe("p2", 15, took=3.0, reachable=False), probe("p3", 27)]
    made = timeline(d1, d4={14: ("db",)}, probes=probes, load=load, entities={0: [entity("front-0"), entity("cart-0")]})
    actions = [change(11, tool="logs", mutating=False), change(12, tool=f"restart {text}", touched=["cart"])]
    recorded = recording(made, deployed=0, triggered=4, started=10, ended=20, actions=actions, diagnoses=diagnoses)
    committed = scenario(committed_depth="D3", blast_radius={}, truth={"root_causes": ["front"]}, **verification)
    run = Run(cell="c", attempt=1, item="made", item_hash=committed.digest(), system="shop", solver_hash="h",
              solver=Solver(name=f"agent {text}", kind="agent"), arm="baseline/probes-on")  # fmt: skip
    steps = [
        TraceStep(step_id=i, agent_id="a", agent_name="Mitigation", input_context="", output_content=f"said {i} {text}",
                  tool_logs=(ToolCall(tool="restart", arguments={"target": text}, output="", status="error"),),
                  started_at=at(10 + i), ended_at=at(10.5 + i))
        for i in range(1, 4)
    ]  # fmt: skip
    return trial_view(run, committed, recorded, certify(recorded, committed), steps)


def test_lanes_are_the_papers_with_actions_and_probes_above():
    view = made_view()
    names = [lane["name"] for lane in view.clock["lanes"]]
    assert names == ["steps", "actions", "probes", "controller · D4", "network · D3", "workload · D1", "user"]
    workload = view.clock["lanes"][5]["boxes"]
    # The record is from 0 to 30.01 s: 100% whole, 90% from 4 s, 55% from 14 s, whole again from 16 s.
    assert [box["x"] for box in workload] == pytest.approx([0, 400 / 30.01, 1400 / 30.01, 1600 / 30.01], abs=0.01)
    assert [box["height"] for box in workload] == [2.0, 4.0, pytest.approx(18.0), 2.0]
    assert "ready replicas 55.0%: cart-0, front-0; tick 14 to 15, from 14.0 s" in workload[2]["words"]
    assert [box["kind"] for box in view.clock["lanes"][2]["boxes"]] == ["probe", "dead", "probe"]
    assert [box["kind"] for box in view.clock["lanes"][1]["boxes"]] == ["look", "change"]


def test_the_deciding_ticks_are_marked_and_the_verdict_is_said_first():
    view = made_view()
    assert view.state == "hidden"
    cuts = {cut["short"]: cut["x"] for cut in view.clock["cuts"]}
    assert cuts == pytest.approx(
        {"Availability on the way": 1400 / 30.01, "Changes within bounds": 1200 / 30.01}, abs=0.01
    )
    page = render_run_page(view)
    assert "Hidden failure" in page
    assert page.index("Hidden failure") < page.index("v_temporal")
    assert render_run_page(made_view()) == page


def test_a_hidden_failure_that_shows_at_the_end_does_not_look_healthy():
    def headline(d3, *, alerts=(), depth="D1"):
        probes = [probe("p1", 15, reachable=False), probe("p2", 28, reachable=d3 == 1)]
        made = timeline([1.0] * 31, d4={14: ("db",)}, probes=probes)
        recorded = recording(made, deployed=0, triggered=4, started=10, ended=20, alerts=alerts)
        committed = scenario(committed_depth=depth)
        run = Run(cell="c", attempt=1, item="made", item_hash="h", system="s", solver=Solver(name="a"), solver_hash="h")
        return trial_view(run, committed, recorded, certify(recorded, committed)).headline

    assert headline(1) == "Hidden failure: it looks healthy at the end, and the whole run does not hold."
    below = headline(0, depth="D3")
    assert "healthy" not in below
    assert "do not answer" in below or "D3" in below
    told = headline(1, alerts=[firing(5, ("front", "error_rate")), firing(29, ("front", "error_rate"))])
    assert told == "Hidden failure: its replicas are ready at the end, but 1 alert still fires."


def test_probes_that_nobody_committed_are_off_in_words_too():
    assert dict(made_view().facts)["probes"] == "every 20 s"
    assert dict(made_view(probe_every_s=None).facts)["probes"] == "off but for the last"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((diagnosis(13.5, "front"),), "right, after 3.5 s"),
        ((diagnosis(13.5, HOSTILE),), "the diagnosis was not right"),
        ((), "no diagnosis was handed in"),
    ],
)
def test_what_became_of_the_diagnosis_is_a_fact_of_an_agent_that_was_asked(said, told):
    assert dict(made_view(diagnoses=said).facts)["diagnosis"] == told
    assert "diagnosis" not in dict(made_view().facts)


def test_a_timeline_of_an_hour_is_drawn_by_its_changes():
    made = timeline([1.0] * 1800 + [0.5] * 20 + [1.0] * 1780)
    recorded, committed = recording(made, deployed=0, triggered=5, started=10, ended=3590), scenario()
    run = Run(cell="c", attempt=1, item="made", item_hash="h", system="s", solver=Solver(name="a"), solver_hash="h")
    view = trial_view(run, committed, recorded, certify(recorded, committed))
    assert len(view.clock["lanes"][-1]["boxes"]) == 3
    assert len(render_run_page(view).partition("<main")[2]) < 25_000


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_stands_in_a_browser_and_lets_nothing_out_or_in(browser, tmp_path, width):
    out = write_whole(tmp_path / "run.html", render_run_page(made_view(HOSTILE)))
    page = browser.new_page(viewport={"width": width, "height": 900})
    wrong, asked = [], []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type in {"error", "warning"} else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(out.as_uri())
    assert asked == [out.as_uri()]
    assert wrong == []
    assert page.evaluate("window.hacked") is None
    assert page.locator("svg.track rect").count() > 30
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # only the lanes scroll sideways
    box = page.locator("line.cut").first.bounding_box()
    lane = page.locator(".lane .track").nth(1).bounding_box()
    assert lane["x"] < box["x"] < lane["x"] + lane["width"]
    assert page.locator("#steps li.wrong").count() == 3
    page.close()
