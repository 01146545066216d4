"""How often re-runs find planted failures, what techniques cost, and how fast a page of 10,000 steps is painted.

Run: ``python benchmarks/blame.py [FOLDER OF WHO&WHEN]``; with the folder, the combined method is fitted by nested
leave-one-out, which takes minutes.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from opsassay.analysis.blame.attribute import attribute
from opsassay.analysis.blame.labelled import read_labelled
from opsassay.analysis.blame.rerun import ProxyRerun
from opsassay.core.schema.trajectory import Attribution, Trace, TraceStep
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.models.server import running_server
from opsassay.ui.trace_view import TracePage, write_trace_page
from papers.blame.bench import bench

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "multi_agent"))
TECHNIQUES = ("all-at-once", "binary-search", "step-by-step", "static", "dynamic")


def main() -> None:
    planted()
    paint()
    if len(sys.argv) > 1:
        public(Path(sys.argv[1]))


def planted() -> None:
    """Print how many planted failures each technique finds, agent and step, with its calls and tokens per trace."""
    analyst, failures = importlib.import_module("analyst"), importlib.import_module("failures")
    model, hits, calls, tokens, count = (
        ScriptedModel(analyst.respond),
        Counter[str](),
        Counter[str](),
        Counter[str](),
        0,
    )
    begun = time.perf_counter()
    for failure in failures.failures():
        count += 1
        with running_server(failure.model()) as upstream:
            trace, exchanges = failures.record(failure, upstream)
            again = ProxyRerun(failure.start, exchanges, upstream)
            for technique in TECHNIQUES:
                blamed = attribute(trace, technique, model=model, rerun=again)
                answer = blamed.attribution
                hits[technique] += (answer.agent_name, answer.step_id) == (failure.agent, failure.step)
                calls[technique] += blamed.cost.calls
                tokens[technique] += blamed.cost.tokens
    print(f"{count} planted failures in {time.perf_counter() - begun:.0f} s")
    for name in TECHNIQUES:
        print(
            f"{name:>14}: {hits[name]}/{count}, {calls[name] / count:.1f} calls, {tokens[name] / count:,.0f} tokens a trace"
        )


def paint() -> None:
    """Print how long a browser takes to the first paint of a trace of 10,000 steps."""
    from playwright.sync_api import sync_playwright

    words = "the agent asked the tool for rows of the service and read what came back " * 30
    steps = (
        TraceStep(
            step_id=i,
            agent_id=str(i % 5),
            agent_name=f"Agent{i % 5}",
            input_context=words,
            output_content=f"{i} {words[:400]}",
        )
        for i in range(1, 10_001)
    )
    trace = Trace(task_id="t", task_instruction="i", system_name="s", steps=tuple(steps))
    suggestion = Attribution(agent_name="Agent2", step_id=7002, reason="r")
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = write_trace_page([TracePage("big", trace, suggestion)], Path(folder, "trace.html"), title="Big")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        taken = []
        for _ in range(5):
            tab = browser.new_page()
            tab.goto(file.as_uri())
            taken.append(tab.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            tab.close()
        browser.close()
        size = file.stat().st_size / 1e6
    print(f"10,000 steps, {size:.0f} MB: first contentful paint after {', '.join(f'{ms:.0f}' for ms in taken)} ms")


def public(folder: Path) -> None:
    """Print the rules and the combined method on public data."""
    for row in bench(read_labelled(folder), ["combined"]).rows:
        agent, step = row.summary.agent, row.summary.step
        print(
            f"{row.subset:>20} {row.technique:>18}: agent {agent.value:.1%}, step {step.value:.1%}, n = {row.summary.n}"
        )


if __name__ == "__main__":
    main()
