"""Recording: what a solver may see, what it may not, and what becomes of faults that do nothing."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import duckdb
import polars as pl
import pytest

from live import run_opsassay, state_folder
from opsassay.core.draws import derived_seed, new_secret
from opsassay.core.errors import NotNormalError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import Slo
from opsassay.telemetry.leaks import leaks
from opsassay.telemetry.schema import SCHEMA
from opsassay.telemetry.tree import Tree
from opsassay.testbed.apps import load_system
from opsassay.testbed.recording.record import Schedule, record
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed import TINY

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Return the tree of one incident, recorded with the example file."""
    out = tmp_path_factory.mktemp("recorded") / "tree"
    with state_folder():
        arguments = ["--normal", "20", "--abnormal", "15", "--warmup", "3", "--json"]
        done = run_opsassay(
            "incident", "record", "shop", str(ROOT / "examples" / "network-delay.yaml"), "-o", str(out), *arguments
        )
    assert done.returncode == 0, done.stderr
    (item,) = json.loads(done.stdout)["items"]
    assert item["effect"] is True
    assert item["recovered"] is True
    return Tree(out)


def test_a_plain_duckdb_script_reads_the_documented_columns(recorded):
    (id_,) = recorded.ids()
    folder = recorded.incident_path(id_)
    with duckdb.connect() as connection:
        for period, (modality, columns) in itertools.product(("normal", "abnormal"), SCHEMA.items()):
            table = f"{folder}/{period}_{modality}.parquet"
            described = connection.execute(f"DESCRIBE SELECT * FROM read_parquet('{table}')").fetchall()
            assert [row[0] for row in described][: len(columns)] == list(columns)
            assert connection.execute(f"SELECT count(*) FROM read_parquet('{table}')").fetchall() != [(0,)], table


def test_what_a_solver_gets_holds_no_truth_by_name_or_content(recorded):
    (id_,) = recorded.ids()
    folder = recorded.incident_path(id_)
    assert leaks(folder, recorded.truth(id_)) == []
    seen = "\n".join(p.read_text() for p in folder.glob("*.json")).lower()
    for word in ("networkdelay", "network_delay", "inject", "chaos", "delay_ms"):
        assert word not in seen
    assert not any("truth" in str(path.relative_to(folder)) for path in folder.rglob("*"))
    assert len(id_) == 16


def test_windows_come_from_the_alerts_and_not_from_the_injection(recorded):
    (id_,) = recorded.ids()
    incident, truth = recorded.datapack(id_).incident, recorded.truth(id_)
    (fault,) = truth.faults
    assert incident.alerts
    assert incident.abnormal.start_ns == incident.normal.end_ns != fault.start_ns
    told = [
        alert.time_ns for alert in incident.alerts if alert.time_ns >= fault.start_ns
    ]  # a false alarm may come before
    lead_s = (min(told) - incident.abnormal.start_ns) / 1e9
    short = 20 / 48  # 4 to 12 s in windows of 48 s and more
    assert 4 * short <= lead_s <= 12 * short
    assert all(f"{alert.service}: " in incident.description for alert in incident.alerts)
    (effect,) = truth.effects
    assert effect.passed
    assert truth.roots[0].service == ("catalog",)


def test_the_ledger_lies_beside_the_truth_and_points_into_the_traces(recorded):
    (id_,) = recorded.ids()
    ledger = recorded.ledger(id_)
    waits = ledger.filter((pl.col("kind") == "wait") & (pl.col("callee") == "catalog"))
    assert {"frontend", "search"} <= set(waits["service"])
    spans = recorded.datapack(id_).both("traces").filter(pl.col("service_name") == "search").collect()
    of_search = waits.filter(pl.col("service") == "search")
    # The last spans may end after the window; nearly all of what waited is in the tables.
    assert of_search["span_id"].is_unique().all()
    assert len(set(of_search["span_id"]) & set(spans["span_id"])) >= 0.8 * of_search.height


def test_nothing_of_the_recording_itself_stays(recorded):
    assert sorted(path.name for path in recorded.root.iterdir()) == ["incidents", "truth"]


def test_a_system_whose_names_give_the_truth_away_is_recorded_with_a_note(tmp_path):
    quiet, app, out = tmp_path / "quiet.yaml", tmp_path / "telling.yaml", tmp_path / "tree"
    quiet.write_text("fault: NoFault\n")
    app.write_text(Path(TINY).read_text().replace("back", "chaos"))
    with state_folder():
        windows = ["--normal", "6", "--abnormal", "6", "--warmup", "1", "-o", str(out), "--json"]
        done = run_opsassay("incident", "record", str(app), str(quiet), *windows)
    assert done.returncode == 0, done.stderr
    (item,) = json.loads(done.stdout)["items"]
    (note,) = (note for note in item["notes"] if "gives the truth away" in note)
    assert note.startswith("what a solver sees gives the truth away in ")
    (id_,) = Tree(out).ids()
    assert note in Tree(out).truth(id_).notes


def test_an_unsteady_window_halves_the_load_and_is_recorded_again_until_the_demo_gives_up(tmp_path):
    asked: list[int] = []

    def unsteady(spans, window):
        inside = pl.col("time").cast(pl.Int64).is_between(window.start_ns, window.end_ns)
        asked.append(spans.filter(inside).height)
        return "it drifts" if len(asked) < unsteady_windows else ""

    anything = {"slo": Slo(error_rate=0.99, latency_p99_ms=1e6)}  # health on a busy machine is not the subject
    app, plan = load_system(TINY).model_copy(update=anything), FaultPlan.model_validate({"fault": "NoFault"})
    tree, schedule = Tree(tmp_path / "tree"), Schedule(0.5, 4.0, 4.0)
    with state_folder(), LocalSubstrate().deployed(app, "unsteady", seed=3, rate_rps=8.0) as running:
        unsteady_windows = 10
        with pytest.raises(NotNormalError, match="it drifts"):
            record(running, app, plan, tree, schedule, halvings=1, steady=unsteady)
        assert len(asked) == 2
        assert min(asked) > 10
        assert running.status().rate_rps == 4.0
        assert list(tree.root.iterdir()) == []
        unsteady_windows = 4
        id_ = record(running, app, plan, tree, schedule, halvings=1, steady=unsteady)
        assert running.status().rate_rps == 2.0
    assert "the load was halved to 2 requests/s: it drifts" in tree.truth(id_).notes


def test_what_is_drawn_follows_from_the_secret_and_never_from_the_plan(tmp_path):
    tree, schedule, seen = Tree(tmp_path / "tree"), Schedule(0.5, 4.0, 4.0), {}
    secret, other = new_secret(), new_secret()
    app = load_system(TINY)
    faults = {"quiet": {"fault": "NoFault"}, "kill": {"fault": "PodKill", "target": {"service": "back"}}}
    with state_folder():
        for name, plan, drawn in (("first", "quiet", secret), ("plan", "kill", secret), ("secret", "quiet", other)):
            with LocalSubstrate().deployed(app, name, seed=derived_seed(drawn, "system"), rate_rps=8.0) as running:
                id_ = record(running, app, FaultPlan.model_validate(faults[plan]), tree, schedule, secret=drawn)
            assert tree.truth(id_).secret == drawn
            normal = tree.datapack(id_).read("normal", "traces")
            pods = set(normal["attr.k8s.pod.name"].drop_nulls()) - {"loadgenerator-0"}
            incident = tree.datapack(id_).incident
            seen[name] = pods, incident.abnormal.end_ns - incident.normal.start_ns
    assert seen["first"][0] == seen["plan"][0]
    assert not seen["first"][0] & seen["secret"][0]
    assert seen["first"][1] == seen["plan"][1] != seen["secret"][1]


@pytest.mark.long
def test_no_fault_and_a_fault_that_does_nothing_are_kept_and_labelled(tmp_path):
    quiet = tmp_path / "quiet.yaml"
    quiet.write_text("fault: NoFault\n")
    with state_folder():
        LocalSubstrate().deploy(load_system(TINY), "calm", seed=2, owned=True)
        windows = [
            "--on",
            "calm",
            "--normal",
            "8",
            "--abnormal",
            "6",
            "--warmup",
            "1",
            "-o",
            str(tmp_path / "tree"),
            "--json",
        ]
        first = run_opsassay("incident", "record", TINY, str(quiet), *windows)
        assert first.returncode == 0, first.stderr
        weak = tmp_path / "weak.yaml"
        weak.write_text("fault: NetworkBandwidth\ntarget: {service: back}\nparameters: {rate_bps: 1000000000}\n")
        second = run_opsassay("incident", "record", TINY, str(weak), *windows)
        assert second.returncode == 0, second.stderr
        LocalSubstrate().remove("calm")
    assert json.loads(first.stdout)["items"][0]["fault"] == "NoFault"
    assert json.loads(second.stdout)["items"][0]["effect"] is False
    annotated = json.loads(run_opsassay("incident", "annotate", str(tmp_path / "tree"), "--json").stdout)["items"]
    assert {item["label"] for item in annotated} <= {"no_effect", "drifted"}
    tree = Tree(tmp_path / "tree")
    kinds = {tree.truth(id_).faults[0].type: tree.truth(id_) for id_ in tree.ids()}
    assert set(kinds) == {"NoFault", "NetworkBandwidth"}
    assert [effect.passed for effect in kinds["NetworkBandwidth"].effects] == [False]
