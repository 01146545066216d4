"""Alert storms: what a solver sees of one, what answers are worth, and runs on the storms of a real recording."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.core.errors import OpsAssayError
from opsassay.evals.runner.domain import domain_named
from opsassay.evals.runner.run import open_session
from opsassay.evals.triage.alerts.answers import BASELINES, Sorted, oracle_answer, read_sorted
from opsassay.evals.triage.alerts.problems import Problem, lost_per_second, problems_of
from opsassay.evals.triage.environment import StormEnvironment
from opsassay.evals.triage.plan import TriagePlan
from opsassay.evals.triage.score import grade_sorted
from opsassay.evals.triage.tasks import ShownAlert, Storm, make_storm
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.telemetry.tree import resolve

DEMO = Path(__file__).parents[2] / "recordings" / "demo"


@pytest.fixture(scope="module")
def case():
    [found] = resolve(DEMO)
    return found


@pytest.fixture(scope="module")
def two(case):
    """The recording, and one of another failure: the same cascade at services of other names, nine seconds later."""
    other = {"catalog": "payment", "cart": "checkout", "recommendation": "fraud", "search": "shipping"}
    text = case.annotation.canonical_json()
    for name, new in other.items():
        text = text.replace(name, new)
    alerts = tuple(
        one.model_copy(update={"service": other.get(one.service, one.service), "time_ns": one.time_ns + 9_123_456_789})
        for one in case.datapack.incident.alerts
    )
    incident = case.datapack.incident.model_copy(update={"alerts": alerts})
    fault = case.truth.faults[0].model_copy(update={"service": "payment"})
    root = case.truth.roots[0].model_copy(update={"service": ("payment",)})
    truth = case.truth.model_copy(update={"faults": (fault,), "roots": (root,)})
    annotation = type(case.annotation).model_validate_json(text)
    pack = replace(case.datapack, incident=incident)
    return [case, replace(case, name="other", datapack=pack, truth=truth, annotation=annotation)]


def storm_of(owners, lost=(9.0, 3.0)):
    """Return a storm whose alerts have these *owners*; problem n cost users lost[n] requests a second."""
    alerts = tuple(
        ShownAlert(id=f"a{n:02}", time=f"2026-01-01T00:00:{2 * n:02}Z", service=f"s{n}", signal="error_rate",
                   value=0.5, limit=0.1)
        for n in range(1, len(owners) + 1)
    )  # fmt: skip
    return Storm(
        name="storm-x", seed=0, system="shop", alerts=alerts, calls=(), incidents=("h",),
        problems=tuple(Problem(about=f"p{n}", services=("s",), lost_rps=one) for n, one in enumerate(lost)),
        owners={a.id: who for a, who in zip(alerts, owners, strict=True) if who is not None},
    )  # fmt: skip


FIVE = storm_of([(0,), (1,), (0,), (1,), ()])
RIGHT = Sorted([["a01", "a03"], ["a02", "a04"]], ["a05"])


def values(storm, groups, noise):
    return {name: one.value for name, one in grade_sorted(storm, Sorted(groups, noise)).items()}


def test_the_right_answer_scores_one_in_everything():
    found = values(FIVE, *RIGHT)
    assert found.pop("alerts_left_out") == 0.0
    assert set(found.values()) == {1.0}
    assert oracle_answer("right", FIVE) == RIGHT


@pytest.mark.parametrize(
    ("groups", "noise", "expected"),
    [
        # all in one group: by hand ARI 0; nothing is first
        ([["a01", "a02", "a03", "a04"]], ["a05"], {"grouping_ari": 0, "grouping_completeness": 1, "order_tau_b": 0}),
        # all apart: homogeneous, and the order of the means is right
        (
            [["a01"], ["a03"], ["a02"], ["a04"]],
            ["a05"],
            {"grouping_homogeneity": 1, "grouping_v": 2 / 3, "order_tau_b": 1},
        ),
        # the wrong order, all else right
        ([["a02", "a04"], ["a01", "a03"]], ["a05"], {"grouping_ari": 1, "order_tau_b": -1, "most_harmful_first": 0}),
        # noise that is taken for a problem, a real alert for noise
        ([["a05", "a03"], ["a02", "a04"]], ["a01"], {"noise_precision": 0, "noise_recall": 0, "noise_f1": 0}),
        # alerts left out are groups of their own, and not urgent
        ([["a02", "a04"]], ["a05"], {"alerts_left_out": 2, "order_tau_b": -1, "noise_f1": 1}),
        ([], [], {"grouping_completeness": 0.5, "noise_recall": 0, "noise_precision": None, "order_tau_b": 0}),
        # no noise named
        (RIGHT.groups, [], {"grouping_ari": 1, "noise_recall": 0, "noise_precision": None, "alerts_left_out": 1}),
    ],
)
def test_a_wrong_answer_scores_less_where_it_is_wrong(groups, noise, expected):
    found = values(FIVE, groups, noise)
    assert found["passed"] == 0.0
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_what_cannot_be_judged_is_not_applicable():
    shared = storm_of([(0,), (0,), (0, 1), None], lost=(5.0, 5.0))
    found = grade_sorted(shared, Sorted([["a01", "a02"], ["a03"], ["a04"]], []))
    assert (
        found["passed"].value == found["grouping_ari"].value == 1.0
    )  # neither a shared alert nor an unknown one counts
    assert "no two problems differ" in found["order_tau_b"].reason
    assert "no alert of this storm is noise" in found["noise_f1"].reason
    assert values(shared, [["a01", "a02"]], ["a03", "a04"])["noise_precision"] == 0.0  # a shared one is no noise
    assert "fewer than two" in grade_sorted(storm_of([(0,), ()]), Sorted([["a01"]], ["a02"]))["grouping_ari"].reason


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"groups": []}, "has the keys groups; it has 'groups' and 'noise'"),
        ({}, "has the keys none"),
        ({"groups": [], "noise": [], "why": ""}, "has the keys groups, noise, why"),
        ({"groups": {}, "noise": []}, "'groups' is no list"),
        ({"groups": ["a01"], "noise": []}, "group 1 is no list of alert ids; give one, as ['a01']"),
        ({"groups": [["a01"], [2]], "noise": []}, "group 2 is no list"),
        ({"groups": [], "noise": "a01"}, "'noise' is no list"),
        ({"groups": [["a01"], []], "noise": []}, "group 2 is empty; leave it out"),
        ({"groups": [["a01", "a77"]], "noise": []}, "there is no alert 'a77'; ids are a01 to a05"),
        ({"groups": [["a01"], ["a02", "a01"]], "noise": []}, "a01 stands 2 times; give each alert once"),
        ({"groups": [["a01"]], "noise": ["a01"]}, "a01 stands 2 times"),
    ],
)
def test_an_answer_that_breaks_the_contract_is_refused_in_one_sentence(answer, said):
    with pytest.raises(AnswerError) as refused:
        read_sorted(FIVE, answer)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_storm_of_a_recording_holds_its_alerts_and_noise_at_services_that_do_not_suffer(case):
    storm = make_storm([case], noise=6, seed=0)
    of = {alert.id: alert for alert in storm.alerts}
    real = {of[id_].service for id_, owners in storm.owners.items() if owners}
    noise = [of[id_] for id_, owners in storm.owners.items() if not owners]
    assert real == {"catalog", "frontend", "recommendation", "search", "cart"}
    assert len({alert.service for alert in noise}) == 6
    waits = {caller for caller, callee in storm.calls if callee in real}
    assert {alert.service for alert in noise}.isdisjoint(real | waits)
    [problem] = storm.problems
    assert problem.about == "NetworkDelay at catalog"
    # an oracle in SQL over the same tables
    import duckdb

    window = {"normal": case.datapack.incident.normal.seconds, "abnormal": case.datapack.incident.abnormal.seconds}
    tables = {name: f"read_parquet('{case.datapack.path}/{name}_traces.parquet')" for name in window}
    late = """SELECT count(*), count(*) FILTER (t."attr.status_code" = 'Error' OR t.duration > u.p) FROM {t} t JOIN (
        SELECT span_name, quantile_disc(duration, 0.99) p FROM {n} WHERE service_name = 'frontend'
        AND "attr.span_kind" = 'Server' GROUP BY 1) u USING (span_name)
        WHERE t.service_name = 'frontend' AND t."attr.span_kind" = 'Server' AND t.span_name IN
        ('GET /', 'GET /product', 'GET /search', 'POST /cart')"""
    (came, spoilt), (came_then, spoilt_then) = (
        [n / window[name] for n in duckdb.connect().sql(late.format(t=tables[name], n=tables["normal"])).fetchall()[0]]
        for name in window
    )
    assert problem.lost_rps == pytest.approx(spoilt_then - spoilt + max(0.0, came - came_then), rel=0.01)
    assert lost_per_second(case.datapack, ["span|frontend::GET /nothing"]) == 0.0


def test_nothing_that_a_solver_reads_tells_a_group_but_what_the_alerts_say(two, tmp_path):
    storm = make_storm(two, noise=8, seed=3)
    seconds = [datetime.fromisoformat(alert.time).timestamp() for alert in storm.alerts]
    assert seconds == sorted(seconds)
    assert {second % 2 for second in seconds} == {seconds[0] % 2}  # one grid for all recordings and the noise
    assert [alert.id for alert in storm.alerts] == [f"a{n:02}" for n in range(1, len(storm.alerts) + 1)]
    assert {who for who in storm.owners.values() if len(who) == 1} == {(0,), (1,)}
    assert storm.owners[next(a.id for a in storm.alerts if a.service == "frontend")] == (0, 1)  # both raised it
    public = storm.task_info.model_dump_json()
    for secret in (two[0].name, storm.problems[0].about, "owners", str(storm.problems[0].lost_rps)):
        assert secret not in public
    # the same again; another truth draws another storm of the same alerts
    assert make_storm(two, noise=8, seed=3) == storm
    secret = two[0].truth.model_copy(update={"secret": "0" * 32})
    assert make_storm([replace(two[0], truth=secret), two[1]], noise=8, seed=3).alerts != storm.alerts
    environment = StormEnvironment(storm, None, tmp_path, Meter(Limits()))
    with open_session(environment) as session:
        assert [spec.name for spec in session.specs()] == ["think", "submit"]
        [file] = environment.view.iterdir()
        assert json.loads(file.read_text()).keys() == {"alerts", "calls"}


def test_noise_and_real_alerts_fire_again_alike(case):
    shares = {}
    for behind in ("noise", "real"):
        fired = []
        for seed in range(60):
            storm = make_storm([case], noise=6, seed=seed)
            of = {alert.id: alert for alert in storm.alerts}
            who = [of[id_] for id_, owners in storm.owners.items() if bool(owners) == (behind == "real")]
            counts = Counter((alert.service, alert.signal) for alert in who)
            fired += counts.values()
        shares[behind] = sum(count > 1 for count in fired) / len(fired)
        assert max(fired) == 3
    assert abs(shares["noise"] - shares["real"]) < 0.12, shares
    assert 0.4 < shares["real"] < 0.6


def test_recordings_of_one_fault_are_not_laid_together(two):
    plan = TriagePlan(incidents=("x",), agents=("oracle:*",), together=2)
    again = replace(two[0], name="again")
    for number in range(8):
        drawn = plan._draw([two[0], again, two[1]], number)
        assert {one.truth.faults[0].service for one in drawn} == {"catalog", "payment"}
    with pytest.raises(OpsAssayError, match="more than 1 incident of different faults"):
        plan._draw([two[0], again], 0)


def test_the_telemetry_of_a_storm_does_not_hold_its_alerts(case, tmp_path):
    storm = make_storm([case], noise=6, seed=0)
    environment = StormEnvironment(storm, case.datapack, tmp_path, Meter(Limits()))
    with open_session(environment) as session:
        described = json.loads((environment.view / "incident.json").read_text())
        assert described["alerts"] == []
        assert described["description"] == ""
        assert "p99 latency" not in (environment.view / "incident.json").read_text()
        assert "normal_traces" in session.call("list_tables", {}).output
        assert "there is no alert 'x'" in session.call("submit", {"groups": [["x"]], "noise": []}).output
        assert session.call("submit", oracle_answer("right", storm).as_answer()).output == "Taken."


def test_baselines_see_only_what_is_shown(two):
    storm = make_storm(two, noise=0, seed=1)
    blind = storm.model_copy(update={"owners": {}, "problems": ()})
    for name, sort in BASELINES.items():
        found = sort(storm)
        assert found == sort(blind), name
        assert read_sorted(storm, found.as_answer()) == found
    assert len(BASELINES["by-calls"](storm).groups) == 1  # the front page calls both
    apart = storm_of([(0,), (1,)]).model_copy(update={"calls": (("s1", "s9"),)})
    assert BASELINES["by-calls"](apart).groups == [["a01"], ["a02"]]
    assert BASELINES["by-time"](apart).groups == [["a01", "a02"]]


def write_plan(tmp_path, **part):
    part = {"domain": "triage", "incidents": [str(DEMO)], "agents": ["oracle:*"], **part}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(part))
    return [str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store")]


AGENT = """\
import json, sys
prompt, place = sys.argv[1:]
[file] = [word.rstrip(".\\n") for line in open(prompt) for word in line.split() if "alerts.json" in word]
ids = [alert["id"] for alert in json.load(open(file))["alerts"]]
open(place, "w").write(ANSWER)
"""


def test_a_plan_runs_oracles_baselines_a_model_and_a_command_and_is_graded_and_shown(tmp_path, capsys):
    submit = [{"groups": [["a02", "a77"]], "noise": []}, {"groups": [["a02", "a03"]], "noise": ["a01"]}]
    tools = [
        {"tool": "query_sql", "arguments": {"sql": "SELECT count(*) FROM normal_traces"}},
        *({"tool": "submit", "arguments": answer} for answer in submit),
    ]
    (tmp_path / "script.yaml").write_text(yaml.safe_dump({"rules": [{"times": 1, "tool": one} for one in tools]}))
    agents = []
    for name, answer in {"together": 'json.dumps({"groups": [ids], "noise": []})', "broken": '"{"'}.items():
        (tmp_path / f"{name}.py").write_text(AGENT.replace("ANSWER", answer))
        about = {
            "agent": name,
            "command": ["{python}", "{agent}/" + f"{name}.py", "{prompt}", "{answer}"],
            "files": [f"{name}.py"],
        }
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(about))
        agents.append(f"{name}.yaml")
    model = {"name": "triage", "model": "scripted:script.yaml"}
    plan = write_plan(tmp_path, agents=["oracle:*", *BASELINES, model, *agents], settings={"sealing": "off"})
    assert command_line(["run", *plan, "--json"]) == 1  # one agent gave no answer
    items = {one["solver"].partition(" ")[0]: one for one in json.loads(capsys.readouterr().out)["items"]}
    metrics = {name: one["metrics"] for name, one in items.items()}
    assert metrics["oracle:right"]["passed"]["value"] == 1.0
    assert metrics["oracle:wrong"]["passed"]["value"] == 0.0
    assert metrics["by-service"]["grouping_completeness"]["value"] == 0.0
    assert metrics["together"]["grouping_ari"]["value"] == 1.0  # there is one problem
    assert metrics["together"]["noise_recall"]["value"] == 0.0
    assert metrics["triage"]["noise_precision"]["value"] == 1.0
    assert "the answer is no JSON" in metrics["broken"]["passed"]["reason"]
    store = str(tmp_path / "store")
    assert command_line(["score", "run", store, "--json"]) == 0
    assert command_line(["score", "table", store]) == 0
    assert "ARI" in capsys.readouterr().out
    assert command_line(["report", store, "-o", str(tmp_path / "report")]) == 0
    pages = [page.read_text() for page in (tmp_path / "report").glob("storm-*.html")]
    assert len(pages) == len(items)
    assert any("NetworkDelay at catalog" in page and "in the answer" in page for page in pages)


def test_the_truth_of_a_run_is_on_a_page_of_its_own(tmp_path):
    from opsassay.ui.browsing.truths import TRUTHS, truth_view
    from opsassay.ui.browsing.watching import Watcher

    assert command_line(["run", *write_plan(tmp_path, agents=["by-time"])]) == 0
    [stored] = Watcher([tmp_path / "store"]).catalogue.newest
    shown = [json.dumps(truth_view(stored, "the storm", None, reveal=reveal), default=str) for reveal in (False, True)]
    assert ["NetworkDelay at catalog" in view for view in shown] == [False, True]
    assert "which alert belongs to which fault" in shown[0]
    assert "NetworkDelay at catalog" in TRUTHS["triage"].page(stored, None)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"together": 2}, "no system has more than 1 incident of different faults with a known cascade"),
        ({"agents": ["by-tme"]}, "did you mean 'by-time'"),
        ({"agents": ["oracle:rihgt"]}, "did you mean 'right'"),
        ({"agents": ["triage"]}, "asks a model"),
        ({"together": 0}, "together"),
        ({"incidents": ["nowhere"]}, "nowhere is not there"),
    ],
)
def test_a_plan_that_cannot_be_run_is_refused(tmp_path, part, said):
    plan = {"incidents": [str(DEMO)], "agents": ["oracle:*"], **part}
    with pytest.raises(OpsAssayError, match=said):
        domain_named("triage").jobs(plan, tmp_path, "plan.yaml")


def test_incidents_of_which_no_storm_can_be_made_are_left_out_or_named(case, tmp_path, capsys):
    def refusal(path):
        with pytest.raises(OpsAssayError) as refused:
            domain_named("triage").jobs({"incidents": [str(path)], "agents": ["oracle:*"]}, tmp_path, "plan.yaml")
        return str(refused.value)

    shutil.copytree(DEMO, tmp_path / "tree")
    (truth,) = (tmp_path / "tree" / "truth").iterdir()
    whole = (truth / "annotation.json").read_text()
    graph = {**json.loads(whole)["graph"], "nodes": [], "edges": [], "root_causes": [], "alarm_nodes": []}
    drifted = {**json.loads(whole), "label": "drifted", "reason": "restless", "graph": graph}
    (truth / "annotation.json").write_text(json.dumps(drifted))
    assert "has no verified cascade (drifted: restless)" in refusal(tmp_path / "tree")
    (truth / "annotation.json").unlink()
    assert "annotate it with `opsassay incident annotate`" in refusal(tmp_path / "tree")
    silent = replace(
        case, datapack=replace(case.datapack, incident=case.datapack.incident.model_copy(update={"alerts": ()}))
    )
    with pytest.raises(OpsAssayError, match="has no alerts"):
        make_storm([silent], 0, 0)
    assert len(problems_of(case)) == 1
    assert command_line(["task", "list", str(DEMO), "--domain", "triage"]) == 0
    assert "prioritise" in capsys.readouterr().out
