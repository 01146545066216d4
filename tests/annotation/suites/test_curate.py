"""A suite on disk: whole or not at all, checked by sha256sum, with its datasheet."""

from __future__ import annotations

import json
import subprocess

import pytest

from annotation import systems
from annotation.cascade import Effect, fault, frames, incident
from opsassay.annotation.job import AnnotateJob, run_job
from opsassay.annotation.suites.curate import select, write_suite
from opsassay.cli import run as command_line
from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.causal_graph import Annotation, CausalGraph
from opsassay.core.schema.incident import Fault, Label, Truth
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Tree, resolve
from telemetry.packs import make_frames, make_incident, make_tree

EFFECT = Effect(own_ms={"payment": 300})


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("curating") / "tree")
    tree.incidents_dir.mkdir(parents=True)
    for id_, service in (("a" * 16, "payment"), ("b" * 16, "weather")):
        tree.write_truth(Truth(id=id_, system="cascade", faults=(fault("HTTPResponseDelay", service, EFFECT),)))
        described = incident().model_copy(update={"id": id_})
        write_datapack(tree.incident_path(id_), frames(systems.deep(), EFFECT), described, {})
        run_job(AnnotateJob(tree.incident_path(id_)))
    return tree


def test_a_suite_checks_itself_and_says_what_it_holds(tree, tmp_path):
    cases = resolve(tree.root)
    suite = write_suite(cases, select(cases), tmp_path / "suite")
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path / "suite", capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert [item.id for item in suite.items] == ["a" * 16]
    assert Datapack.open(tmp_path / "suite" / "incidents" / ("a" * 16)).warnings == ()
    assert (
        suite.items[0].content_hash
        == Datapack.open(tmp_path / "suite" / "incidents" / ("a" * 16)).incident.content_hash
    )
    told = json.loads((tmp_path / "suite" / "suite.json").read_text())["datasheet"]["composition"]
    assert (told["per_system"], told["per_family"], told["per_kind"]) == (
        {"cascade": 1}, {"HTTPChaos": 1}, {"http_slow": 1},
    )  # fmt: skip
    assert told["left_out"] == {"it is unexplained": 1}
    (case,) = resolve(tmp_path / "suite")
    assert case.annotation.graph.root_services() == {"payment"}


def test_same_cases_same_bytes(tree, tmp_path):
    cases = resolve(tree.root)
    for name in ("one", "two"):
        write_suite(cases, select(cases), tmp_path / name, name="same")
    assert (tmp_path / "one" / "SHA256SUMS").read_bytes() == (tmp_path / "two" / "SHA256SUMS").read_bytes()


def test_nothing_is_written_when_nothing_is_fit_or_the_folder_is_there(tree, tmp_path):
    cases = [case for case in resolve(tree.root) if case.name == "b" * 16]
    with pytest.raises(
        UserError, match=r"None of the 1 annotated cases is fit for a suite: 1 because it is unexplained"
    ):
        write_suite(cases, select(cases), tmp_path / "none")
    assert not list(tmp_path.iterdir())
    (tmp_path / "there").mkdir()
    cases = resolve(tree.root)
    with pytest.raises(DatapackError, match="exists already"):
        write_suite(cases, select(cases), tmp_path / "there")


def test_cases_that_were_not_annotated_are_told(tree):
    with pytest.raises(UserError, match=r"None of the 0 cases is annotated; run `opsassay incident annotate` first\."):
        select([])


def test_a_suite_holds_cases_in_which_nothing_was_broken_and_says_when_it_does_not(tmp_path, capsys):
    tree = make_tree(tmp_path / "t", count=1)
    assert command_line(["incident", "curate", str(tree.root), "-o", str(tmp_path / "none"), "--json"]) == 0
    assert "a solver that always accuses is never wrong" in capsys.readouterr().err
    described = make_incident("quiet")
    nothing = Fault(type="NoFault", service=None, parameters={"disturbance": "load_surge"}, start_ns=1, end_ns=2)
    tree.write_truth(Truth(id=described.id, system=described.system, faults=(nothing,)))
    tree.write_annotation(described.id, Annotation(label=Label.NO_EFFECT, reason="", graph=CausalGraph()))
    write_datapack(tree.incident_path(described.id), make_frames(), described, {})
    assert command_line(["incident", "curate", str(tree.root), "-o", str(tmp_path / "some"), "--json"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    strata = {item["id"]: item["stratum"] for item in json.loads(told.out)["items"]}
    assert strata[described.id] == ["chain", "nothing broken", "load_surge"]
    assert len(strata) == 2
    sheet = json.loads((tmp_path / "some" / "suite.json").read_text())["datasheet"]["composition"]
    assert sheet["per_family"]["nothing broken"] == 1
