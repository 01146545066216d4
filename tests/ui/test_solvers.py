"""The table of solvers over all cases, and the mark of what is not ranked."""

from __future__ import annotations

from opsassay.evals.diagnosis.results.repeats import summarise_runs
from opsassay.scoring.metrics import ALL, not_applicable
from opsassay.ui.tables import COLUMNS, answer_view, best_first, grades_view, solvers_right, solvers_view

from . import cases


def unsealed(answer):
    """Return *answer* as of an agent that ran unsealed."""
    solver = answer.run.solver.model_copy(update={"name": "loose", "kind": "agent"})
    return answer.model_copy(update={"run": answer.run.model_copy(update={"isolation": "unsealed", "solver": solver})})


def right_answer():
    """Return the best of the made answers."""
    return best_first(cases.answers())[0]


def whole(answer):
    """Return *answer* with a verdict of every metric, by the name of its run."""
    graded = {**not_applicable(ALL, "not asked for"), **answer.verdict.metrics}
    told = {"run": f"{answer.run.cell}/{answer.run.attempt}", "metrics": graded}
    return answer.model_copy(update={"verdict": answer.verdict.model_copy(update=told)})


def test_an_unsealed_answer_is_marked_last_and_counts_for_nothing():
    loose = unsealed(right_answer())
    given = [loose, *cases.answers()]
    ordered = best_first(given)
    assert ordered[-1] is loose
    rows = {row["solver"]: row["unranked"] for row in grades_view(ordered)["rows"]}
    assert rows.pop("loose") == "it ran unsealed"
    assert set(rows.values()) == {""}
    assert answer_view(loose)["unranked"] == "it ran unsealed"
    assert (solvers_right(cases.answers()), solvers_right(given)) == (
        "2 of 3, 2 baselines or unranked apart",
        "2 of 3, 3 baselines or unranked apart",
    )


def test_the_table_of_solvers_has_pass_at_k_and_who_is_not_ranked():
    best = right_answer()
    again = best.model_copy(update={"run": best.run.model_copy(update={"seed": 1, "cell": "another"})})
    loose = unsealed(best.model_copy(update={"run": best.run.model_copy(update={"cell": "third"})}))
    answers = [whole(answer) for answer in (best, again, loose)]
    view = solvers_view(summarise_runs([a.run for a in answers], [a.verdict for a in answers], [], 2))
    titles = ["Right service (n)", "Ungrounded (n)", "Path / right service (n)", "Exact (n)"]
    assert view["columns"] == [*COLUMNS, *titles, "pass@1", "pass@2", "Right answers took", "Ranked"]
    first, last = (dict(zip(view["columns"], row, strict=True)) for row in view["rows"])
    assert (first["Solver"], first["Runs"], first["Cases"]) == (best.run.solver.name, "2 done", "1")
    assert (first["Right service (n)"], first["Exact (n)"]) == ("100.0% [20.7, 100.0] (1)", "100.0% [20.7, 100.0] (1)")
    assert view["calm"] is None
    assert (first["pass@1"], first["pass@2"], first["Ranked"]) == ("100.0%", "100.0%", "yes")
    assert (last["Solver"], last["pass@2"], last["Ranked"]) == ("loose", "–", "no: it ran unsealed")
