"""The pages that show the truth of a run, only if requested."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.tree import Case, Tree
from opsassay.ui.browsing.catalogue import StoredRun
from opsassay.ui.browsing.rows import View, run_page
from opsassay.ui.plain import plain

if TYPE_CHECKING:
    from opsassay.core.schema.scenario import Scenario
    from opsassay.evals.runner.grading import GradedRun
    from opsassay.ui.reports import ShownTask


@dataclass(frozen=True)
class DomainTruth:
    """How a domain shows the truth of a run: *words* returns (name, text) pairs, *page* a whole HTML page.

    *about* describes the truth in a phrase.
    """

    words: Callable[[StoredRun, Path | None], list[tuple[str, str]]]
    page: Callable[[StoredRun, Path | None], str]
    about: str = "what was broken"


def about_truth(domain: str) -> str:
    """Return a phrase on the true answer of a run in *domain*: what it consists of."""
    return TRUTHS[domain].about if domain in TRUTHS else "what the grader knows"


def truth_view(stored: StoredRun, name: str, cases: Path | None, *, reveal: bool) -> View:
    """Return the page data on the truth of a run's task *name*, the truth itself only with *reveal*.

    *cases* is the folder of recorded incidents, None for the run's store.
    """
    found = TRUTHS.get(stored.domain)
    view: View = {
        "answer": f"This page shows {about_truth(stored.domain)} in {name}.",
        "run": run_page(stored),
        "task": name,
        "about": about_truth(stored.domain),
        "revealed": reveal,
        "facts": [],
        "whole": None,
        "problem": "",
    }
    if not reveal:
        return view
    if found is None:
        return view | {"problem": f"The domain {plain(stored.domain, 60)} keeps no truth that can be shown here."}
    try:
        facts = [(name, plain(text, 2_000)) for name, text in found.words(stored, cases) if text]
    except (OpsAssayError, OSError) as error:
        return view | {"problem": plain(str(error), 600)}
    return view | {"answer": facts[0][1], "facts": facts[1:], "whole": f"whole/{stored.key}.html"}


def whole_page(stored: StoredRun, cases: Path | None) -> str:
    """Return the HTML page of a run with its true answer; *cases* is as in `truth_view`; raises OpsAssayError."""
    if stored.domain not in TRUTHS:
        raise NotFoundError("page of domain", stored.domain, TRUTHS)
    return TRUTHS[stored.domain].page(stored, cases)


def _case_of_run(stored: StoredRun, cases: Path | None) -> Case:
    """Return the run's incident with truth from *cases* (None: the run's store); raises NotFoundError without it."""
    tree, id_ = Tree(cases or stored.root), stored.run.item
    if id_ not in tree.ids():
        raise NotFoundError("incident", id_, tree.ids(), "Say with --cases where its recording lies.")
    datapack = tree.datapack(id_)
    if content_hash(datapack.path) != stored.run.item_hash:
        raise NotFoundError(
            "recording of incident", id_, [], "The one that lies there is another; give its own --cases."
        )
    return Case(datapack, tree.truth(id_), tree.annotation(id_), tree.truth_path(id_), id_)


def _incident_facts(stored: StoredRun, cases: Path | None) -> list[tuple[str, str]]:
    """Return (name, text) of what was broken in the run's incident, and its label; *cases* is as in `truth_view`."""
    from opsassay.ui.payload import CaseReport
    from opsassay.ui.view import headline

    case = _case_of_run(stored, cases)
    report = CaseReport(incident=case.datapack.incident, truth=case.truth, annotation=case.annotation)
    label = case.annotation.label.value if case.annotation else "not annotated"
    return [("What happened", headline(report)), ("Label", label)]


def _render_incident(stored: StoredRun, cases: Path | None) -> str:
    """Return the HTML page of the run's incident: its answer over the true cascade; *cases* is as in `truth_view`."""
    from opsassay.evals.runner.store import read_diagnosis
    from opsassay.ui.browsing.verdicts import StoredVerdicts
    from opsassay.ui.payload import AnswerPayload, build_case
    from opsassay.ui.report import render_report

    case = _case_of_run(stored, cases)
    answer = AnswerPayload(
        run=stored.run, diagnosis=read_diagnosis(stored.folder), verdict=StoredVerdicts().verdict_of(stored)
    )
    report = build_case(case.datapack, case.truth, case.annotation, [answer])
    return render_report([report], title=f"{stored.run.item}, {stored.run.solver.label}")


def _scenario_facts(stored: StoredRun, cases: Path | None) -> list[tuple[str, str]]:
    """Return (name, text) of what the run's scenario breaks, its causes, and the desired outcome; *cases* is unused."""
    from opsassay.evals.remediation.tasks import kept_scenario

    del cases
    scenario = kept_scenario(stored.root, stored.run.item_hash)
    causes = ", ".join(scenario.truth.root_causes)
    return [
        ("What was broken", "; ".join(_describe_trigger(scenario)) or "Nothing was broken: it is a false alarm."),
        ("Title", scenario.title),
        ("Root causes", causes),
        ("What the agent heard", scenario.alert),
        ("What is right", scenario.desired_outcome),
    ]


def _describe_trigger(scenario: Scenario) -> Iterator[str]:
    """Yield a phrase for each fault, operation and object or node change of the scenario's trigger."""
    yield from (part.name for plan in scenario.trigger.faults for part in plan.parts)
    yield from (f"{call.verb} {json.dumps(call.arguments)}" for call in scenario.trigger.operations)
    if scenario.cluster is not None:
        changes = (*scenario.cluster.changes, *scenario.cluster.nodes)
        yield from (change.model_dump_json(exclude_defaults=True) for change in changes)


def _render_trial(stored: StoredRun, cases: Path | None) -> str:
    """Return the HTML page of the remediation run with its verdict; *cases* is not used."""
    from opsassay.evals.remediation.score import read_recording
    from opsassay.evals.remediation.tasks import kept_scenario
    from opsassay.scoring.verifiers import certify
    from opsassay.ui.reports import trial_page

    del cases
    scenario, name = kept_scenario(stored.root, stored.run.item_hash), f"{stored.run.cell}/{stored.run.attempt}"
    verdict = certify(read_recording(stored.folder), scenario, run=name, solver=stored.run.solver.name,
                      committed_digest=stored.run.item_hash)  # fmt: skip
    return trial_page(stored.root, stored.folder, stored.run, verdict)


def _cost_facts(stored: StoredRun, cases: Path | None) -> list[tuple[str, str]]:
    """Return (name, text) of what the run's cost task asks; *cases* is not used."""
    del cases
    return [("What was asked", _read_cost_task(stored).goal)]


def _render_cost(stored: StoredRun, cases: Path | None) -> str:
    """Return the HTML page that compares the run's answer with the right one; *cases* is not used."""
    from opsassay.ui.reports import answer_page

    del cases
    return answer_page(_with_verdict(stored), _read_cost_task(stored))


def _read_cost_task(stored: StoredRun) -> ShownTask:
    """Return the cost task of the run *stored*, with its truth and answer, as page data."""
    from opsassay.evals.runner.store import RunStore
    from opsassay.ui.cost_page import shown_cost

    return shown_cost(RunStore(stored.root), stored.folder, stored.run)


def _storm_facts(stored: StoredRun, cases: Path | None) -> list[tuple[str, str]]:
    """Return (name, text) of the problems in the run's alert storm, with their cost to users; *cases* is not used."""
    from opsassay.evals.triage.tasks import Storm

    del cases
    storm = Storm.read_kept(stored.root, stored.run.item_hash)
    return [("The problems", "; ".join(storm.harm_words()))]


def _render_storm(stored: StoredRun, cases: Path | None) -> str:
    """Return the HTML page that shows the cause of each alert and its group in the answer; *cases* is not used."""
    from opsassay.evals.runner.store import RunStore
    from opsassay.ui.reports import answer_page
    from opsassay.ui.triage_page import shown_storm

    del cases
    graded = _with_verdict(stored)
    return answer_page(graded, shown_storm(RunStore(stored.root), graded))


def _compliance_facts(stored: StoredRun, cases: Path | None) -> list[tuple[str, str]]:
    """Return (name, text) of the control, the goal and the number of cluster states judged; *cases* is not used."""
    from opsassay.evals.compliance.clusters.kept import graded_task
    from opsassay.evals.compliance.tasks import ANSIBLE

    del cases
    task = graded_task(stored.root, stored.run)
    worlds = task.judged_hosts() if task.task_class == ANSIBLE else task.judged()
    comply = sum(world.compliant for world in worlds)
    judged = f"{comply} comply and {len(worlds) - comply} violate it, and as many that differ from these at one place"
    return [
        ("What is right", f"{task.task_info.description}."),
        ("What was asked", task.goal),
        ("Worlds that it is judged on", judged),
    ]


def _render_compliance(stored: StoredRun, cases: Path | None) -> str:
    """Return the HTML page of the answer on all cluster states that it was judged on; *cases* is not used."""
    from opsassay.evals.compliance.evidence_collection.cache import KeptEvidence
    from opsassay.evals.runner.store import RunStore
    from opsassay.ui.compliance_page import shown_compliance
    from opsassay.ui.reports import answer_page

    del cases
    graded = _with_verdict(stored)
    return answer_page(graded, shown_compliance(RunStore(stored.root), graded, KeptEvidence))


def _with_verdict(stored: StoredRun) -> GradedRun:
    """Return the run with its verdict; raises UserError when it has not been graded."""
    from opsassay.evals.runner.grading import GradedRun
    from opsassay.ui.browsing.verdicts import StoredVerdicts

    verdict = StoredVerdicts().verdict_of(stored)
    if verdict is None:
        raise UserError(f"{stored.folder} is not graded; `opsassay score run {stored.root}` does it.")
    return GradedRun(stored.folder, stored.run, verdict)


TRUTHS: Mapping[str, DomainTruth] = {
    "diagnosis": DomainTruth(_incident_facts, _render_incident),
    "sre": DomainTruth(_scenario_facts, _render_trial),
    "finops": DomainTruth(_cost_facts, _render_cost, "what was asked and what is right"),
    "triage": DomainTruth(_storm_facts, _render_storm, "which alert belongs to which fault"),
    "ciso": DomainTruth(_compliance_facts, _render_compliance, "what is right"),
}
