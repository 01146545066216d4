"""Boards: who is ranked, who is not and why; every cheat that was thought of stays below or is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opsassay.analysis.leaderboard.board import make_board
from opsassay.analysis.leaderboard.tables import board_tables
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.grading import GradedRun, GradedRuns
from opsassay.evals.runner.run import verdict_of
from opsassay.evals.runner.store import cell_hash
from opsassay.server.task_sets import USUAL_BASELINES, TaskSet, jobs_of
from opsassay.ui.leaderboards import boards_page

TASKS = 24


def run_of(solver, task, passed, *, status=RunStatus.DONE, system="focus", seed=0, digest=None, started=1, **further):
    digest = digest or f"digest-of-{task}"
    who = Solver(name=solver, kind="agent")
    run = Run(
        cell=cell_hash(digest, solver, "default", seed), attempt=1, domain="finops", item=task, item_hash=digest,
        system=system, solver=who, solver_hash=solver, seed=seed, status=status, started_ns=started, ended_ns=started + 1,
        isolation=further.pop("isolation", "sealed"), versions={"opsassay": "0.1.0"}, **further,
    )  # fmt: skip
    metric = Metric(value=float(passed), status=MetricStatus.SCORED)
    if status is not RunStatus.DONE:
        metric = Metric(status=MetricStatus.FAILED, reason="the run failed")
    return GradedRun(Path("/none"), run, verdict_of(run, {"passed": metric}))


def solver(name, outcomes, **further):
    return [run_of(name, f"t{i:02}", passed, **further) for i, passed in enumerate(outcomes)]


def board_of(*groups, aborted=None, retried=None):
    runs = tuple(run for group in groups for run in group)
    return make_board(GradedRuns(domain_named("finops"), runs, aborted=aborted or {}, retried=retried or {}))


def row(board, name):
    return next(one for one in board.rows if one.entry.name == name)


CONSTANT = solver("constant", [0] * 22 + [1] * 2, isolation="in_process")
GOOD = solver("good", [1] * 22 + [0] * 2)
CHANCE = solver("chance", [0] * 20 + [1, 0, 0, 1], isolation="in_process")


def test_a_good_agent_is_ranked_and_baselines_are_not():
    board = board_of(GOOD, CONSTANT, CHANCE)
    assert row(board, "good").rank == 1
    assert row(board, "good").ranks == (1, 1)
    assert set(row(board, "good").beats) == {"constant", "chance", "no answer"}
    assert row(board, "constant").rank is None
    assert "it is a baseline" in row(board, "constant").reasons
    assert board.rows[0].entry.name == "good"


def test_two_that_cannot_be_told_apart_share_a_rank():
    other = solver("other", [1] * 21 + [0, 1, 0])
    board = board_of(GOOD, other, CONSTANT)
    assert {row(board, name).rank for name in ("good", "other")} == {1}
    assert row(board, "other").ranks == (1, 2)


def test_the_better_of_two_has_rank_one_and_the_other_two():
    board = board_of(GOOD, solver("fair", [1] * 11 + [0] * 13), CONSTANT)
    assert (row(board, "good").rank, row(board, "fair").rank) == (1, 2)


CHEATS = {
    "the easy tasks alone": (solver("cheat", [1] * 6), "it has no graded run of 18 of 24 tasks"),
    "all but the one that it fails": (solver("cheat", [1] * 23), "it has no graded run of 1 of 24 tasks"),
    "without a seal": (solver("cheat", [1] * 24, isolation="unsealed"), "it ran unsealed"),
    "the canary": (solver("cheat", [1] * 24, flags=("canary",)), "its answer repeats the canary truth"),
    "as an oracle": (solver("oracle:right", [1] * 24), "it is an oracle, which knows the truth"),
    "a constant answer": (solver("cheat", [0] * 21 + [1] * 3), "it cannot be separated from"),
    "a lucky handful": (solver("cheat", [1] * 3 + [0] * 21), "it cannot be separated from"),
    "its failures do not come to a result": (
        [run_of("cheat", f"t{i:02}", i < 2, status=RunStatus.DONE if i < 2 else RunStatus.FAILED) for i in range(24)],
        "it cannot be separated from",
    ),
    "one task again and again": (
        [run_of("cheat", "t00", 1, seed=seed) for seed in range(100)] + solver("cheat", [1] + [0] * 23),
        "it cannot be separated from",
    ),
    "a later and easier form of the tasks": (
        [run_of("cheat", f"t{i:02}", 1, digest=f"simple-{i}", started=9) for i in range(24)],
        "it has no graded run of 24 of 24 tasks",
    ),
    "a former and easier form of the tasks": (
        [run_of("cheat", f"t{i:02}", 1, digest=f"easier-{i}", started=0) for i in range(24)],
        "it has no graded run of 24 of 24 tasks",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_has_no_rank_and_takes_nobody_elses(name):
    runs, reason = CHEATS[name]
    board = board_of(GOOD, CONSTANT, CHANCE, runs)
    cheat = row(board, runs[0].run.solver.name)
    assert cheat.rank is None
    assert any(reason in one for one in cheat.reasons), cheat.reasons
    assert row(board, "good").rank == 1


def test_those_that_nobody_watched_are_ranked_among_themselves_by_the_same_rules():
    far, also = (
        solver(name, [1] * n + [0] * (24 - n), isolation="unsealed") for name, n in (("far", 22), ("also", 12))
    )
    flagged = solver("flagged", [1] * 24, isolation="unsealed", flags=("canary",))
    part = solver("part", [1] * 6, isolation="unsealed")
    graded = GradedRuns(domain_named("finops"), (*far, *also, *flagged, *part, *CONSTANT), ranks_unsealed=True)
    board = make_board(graded)
    assert {name: row(board, name).rank for name in ("far", "also", "flagged", "part", "constant")} == {
        "far": 1, "also": 2, "flagged": None, "part": None, "constant": None,
    }  # fmt: skip
    assert row(make_board(replace(graded, ranks_unsealed=False)), "far").reasons == ("it ran unsealed",)


def test_its_own_aborted_cells_cost_it_the_rank():
    board = board_of(GOOD, CONSTANT, aborted={"good": 2})
    assert row(board, "good").rank is None
    assert row(board, "good").reasons == ("2 of its cells were aborted and have no result",)


def test_results_that_came_after_aborted_attempts_are_said():
    said = board_of(GOOD, CONSTANT, retried={"good": 2}).warnings
    assert [one for one in said if one.startswith("2 results of good came after aborted attempts")]
    assert not [one for one in board_of(GOOD, CONSTANT).warnings if "aborted" in one]  # the control


@pytest.mark.parametrize(("domain", "name"), [(d, n) for d, names in USUAL_BASELINES.items() for n in names])
def test_the_usual_baselines_of_every_domain_are_baselines_on_its_boards(domain, name):
    def entry(isolation, **decided):
        runs = [*solver(name, [0] * 6, isolation=isolation), *solver("good", [1] * 6)]
        return row(make_board(GradedRuns(domain_named(domain), tuple(runs), **decided)), name)

    assert entry("in_process").entry.baseline
    assert "it is a baseline" in entry("in_process").reasons
    for brought in ("sealed", "unsealed"):  # a program that only calls itself so
        assert not entry(brought).entry.baseline
    assert not entry("in_process", baselines=frozenset()).entry.baseline
    assert entry("sealed", baselines=frozenset({name})).entry.baseline  # its solver's hash, here


def test_the_usual_baselines_of_scenarios_are_run_on_them(tmp_path):
    tasks = TaskSet(domain="sre", part={"scenarios": ["bad-release", "slow-archive"]})
    jobs = jobs_of(tmp_path, "live", tasks, USUAL_BASELINES["sre"], {})
    assert {job.cell.solver.name for job in jobs} == set(USUAL_BASELINES["sre"])


def test_the_board_of_scenarios_has_the_columns_of_itbench():
    names = [one.name for one in make_board(GradedRuns(domain_named("sre"), ())).metrics]
    assert names == [
        "certificate", "alerts_cleared", "diagnosis_right", "ntam_fl", "ntam_fpc", "time_to_diagnosis_s",
        "time_to_repair_s", "hidden_failure",
    ]  # fmt: skip


def test_what_a_run_costs_has_an_interval_and_leads_to_its_runs():
    spent = [{"input_tokens": 100.0 * i, "output_tokens": 50.0, "money_usd": 0.1, "retries": 3.0} for i in range(6)]
    runs = [run_of("good", f"t{i:02}", 1, spent=of) for i, of in enumerate(spent)]
    good = row(board_of(runs), "good")
    assert set(good.spent) == {"tokens", "usd"}
    assert good.spent["tokens"].value == 300.0
    assert good.spent["tokens"].low < 250 < 350 < good.spent["tokens"].high
    page = boards_page([board_of(runs)])
    assert "300 [" in page
    assert "USD per run" in page
    assert "seconds per run" not in page


def test_runs_of_a_former_form_or_version_carry_the_mark_stale():
    current, old = solver("good", [1] * 6), solver("old", [1] * 6)
    old = [
        GradedRun(one.folder, one.run.model_copy(update={"versions": {"opsassay": "0.0.1"}}), one.verdict)
        for one in old
    ]
    page = boards_page([board_of(current, old)])
    assert page.count('<span class="tag">stale</span>') == 1
    assert "stale: made with OpsAssay 0.0.1" in page


def test_a_figure_that_fewer_tasks_have_than_the_board_says_how_many():
    board = board_of(solver("half", [1] * 3), CONSTANT)
    assert "<small>of 3</small>" in boards_page([board])


@pytest.mark.slow
def test_a_hundred_guesses_together_do_not_reach_a_rank():
    random, reached = np.random.default_rng(7), 0
    for _ in range(5):
        guessers = [solver(f"g{i:03}", (random.random(TASKS) < 0.2).astype(int)) for i in range(100)]
        board = board_of(CONSTANT, *guessers)
        reached += any(one.rank is not None for one in board.rows)
    assert reached <= 1


def test_what_lower_is_better_is_not_flattered_by_failures():
    board = board_of(
        solver("slow", [1] * 12), [run_of("dead", f"t{i:02}", 0, status=RunStatus.TIMEOUT) for i in range(12)]
    )
    dead = row(board, "dead")
    assert dead.success.value == 0.0
    assert dead.failed == 12
    assert "tokens" not in dead.metrics


def test_with_a_handful_of_tasks_nobody_is_ranked_and_it_is_said():
    board = board_of([run_of("one", "t00", 1)], [run_of("two", "t00", 0)])
    assert all(one.rank is None for one in board.rows)
    assert "run more tasks" in board.warnings[0]
    assert any("No baseline was run" in one for one in board.warnings)


def test_an_order_that_turns_round_on_one_system_is_said():
    a = solver("a", [1] * 16) + [run_of("a", f"u{i}", 0, system="desk") for i in range(10)]
    b = solver("b", [0] * 16) + [run_of("b", f"u{i}", 1, system="desk") for i in range(10)]
    board = board_of(
        a, b, [*solver("constant", [0] * 16), *(run_of("constant", f"u{i}", 0, system="desk") for i in range(10))]
    )
    assert any("a and b may not be compared" in one and "desk" in one for one in board.warnings)


def test_repeats_are_averaged_and_every_number_names_its_runs():
    board = board_of(GOOD, [one for seed in (1, 2) for one in solver("good", [1] * 22 + [0] * 2, seed=seed)], CONSTANT)
    good = row(board, "good")
    assert good.success.n == 24
    assert len(good.as_item()["evidence"]) == 72


def test_tables_and_page_escape_what_agents_are_called():
    board = board_of(GOOD, solver("<script>alert(1)</script>\x1b[31m", [1] * 24), CONSTANT)
    page = boards_page([board])
    assert "<script>alert(1)" not in page
    assert "\x1b" not in page
    titles = [table.title for table in board_tables([board, board])]
    assert titles == ["Leaderboard, finops", "Leaderboard, finops", "Leaderboard, overall"]


@pytest.mark.parametrize("systems", [("focus",), ("focus", "other")])
def test_every_row_of_the_page_has_a_cell_for_each_column(systems):
    runs = [one for system in systems for one in solver(f"{system}-agent", [1] * 6, system=system)]
    page = boards_page([board_of(runs)])
    rows = page.partition("<tbody>")[2].partition("</tbody>")[0].split("</tr>")[:-1]
    cells = {row.count("<td>") + row.count('<th scope="row">') for row in rows}
    assert cells == {page.partition("<thead>")[2].partition("</thead>")[0].count("<th scope")}


def test_cases_whose_fault_can_be_computed_rank_nobody_and_are_counted():
    marked = [
        GradedRun(one.folder, one.run, one.verdict.model_copy(update={"fingerprinted": one.run.item < "t12"}))
        for one in (*GOOD, *CONSTANT)
    ]
    board = board_of(marked)
    assert board.tasks == TASKS - 12
    assert any(warning.startswith("12 tasks recorded before draws had a secret") for warning in board.warnings)
    assert not board_of(
        [GradedRun(one.folder, one.run, one.verdict.model_copy(update={"fingerprinted": True})) for one in GOOD]
    ).tasks


GRADED = GradedRuns(domain_named("finops"), (*GOOD, *CONSTANT, *CHANCE))
CHANGES = {
    "a run was graded anew": {"graded": (*solver("good", [0] * 24), *GRADED.graded[24:])},
    "a run failed": {"graded": (run_of("good", "t00", 0, status=RunStatus.FAILED), *GRADED.graded[1:])},
    "a run more": {"graded": (*GRADED.graded, run_of("good", "t00", 0, seed=1))},
    "a run less": {"graded": GRADED.graded[1:]},
    "a solver more": {"graded": (*GRADED.graded, *solver("other", [1, 0] * 12))},
    "a solver less": {"graded": GRADED.graded[24:]},
    "a task more": {"graded": (*GRADED.graded, run_of("chance", "t99", 1))},
    "another form of a task": {"graded": (*GRADED.graded, run_of("other", "t00", 1, digest="new", started=9))},
    "a cell was aborted": {"aborted": {"good": 1}},
    "another baseline": {"baselines": frozenset({"good"})},
    "unsealed runs are ranked": {"ranks_unsealed": True},
    "another domain": {"domain": domain_named("triage")},
    "nothing": {},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_board_made_after_another_one_is_the_one_that_is_made_anew(change):
    changed = replace(GRADED, **change)
    anew = make_board(replace(changed))
    assert make_board(changed, make_board(GRADED)) == anew
    assert make_board(GRADED, anew) == make_board(GRADED)


def test_of_a_board_what_did_not_change_is_not_computed_again():
    before = make_board(GRADED)
    after = make_board(replace(GRADED, graded=(run_of("good", "t00", 0), *GRADED.graded[1:])), before)
    kept = {name: row(after, name).entry is row(before, name).entry for name in ("good", "constant", "chance")}
    assert kept == {"good": False, "constant": True, "chance": True}
