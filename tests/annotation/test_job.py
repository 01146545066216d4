"""Annotating many: resumable, pretence leaves nothing behind, and a bad case does not stop the others."""

from __future__ import annotations

import json
import re

import pytest

from annotation import systems
from annotation.cascade import CALM, Effect, fault, frames, incident
from opsassay.annotation.evidence.slo import SurfaceSlo
from opsassay.annotation.job import AnnotateJob, run_job
from opsassay.annotation.verdict.settings import AnnotateSettings
from opsassay.core.errors import OperationError
from opsassay.core.parallel import map_processes
from opsassay.core.schema.incident import Label, RootLabel, Truth
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.tree import Tree

EFFECT = Effect(own_ms={"payment": 300})


@pytest.fixture
def tree(tmp_path):
    """A tree with one slow incident and one without a fault."""
    tree = Tree(tmp_path / "tree")
    for id_, effect, faults in (
        ("a" * 16, EFFECT, (fault("HTTPResponseDelay", "payment", EFFECT),)),
        ("b" * 16, CALM, (fault("NoFault", None),)),
    ):
        tree.write_truth(Truth(id=id_, system="cascade", faults=faults))
        tree.incidents_dir.mkdir(parents=True, exist_ok=True)
        write_datapack(
            tree.incident_path(id_), frames(systems.deep(), effect), incident().model_copy(update={"id": id_}), {}
        )
    return tree


def job(tree, id_="a", **more):
    return AnnotateJob(tree.incident_path(id_ * 16), **more)


def test_what_is_unchanged_is_not_made_again(tree):
    (first,), (second,) = run_job(job(tree)), run_job(job(tree))
    assert (first.unchanged, second.unchanged) == (False, True)
    assert second.annotation == first.annotation
    assert first.annotation.label is Label.ATTRIBUTED
    (again,) = run_job(job(tree, again=True))
    assert not again.unchanged


def test_other_settings_and_another_fault_are_a_change(tree):
    run_job(job(tree))
    settings = AnnotateSettings(slo=SurfaceSlo(latency_factor=2.0))
    assert not run_job(job(tree, settings=settings))[0].unchanged
    truth = tree.truth("a" * 16)
    tree.write_truth(truth.model_copy(update={"faults": (fault("HTTPResponseDelay", "bank", EFFECT),)}))
    (moved,) = run_job(job(tree, settings=settings))
    assert (moved.unchanged, moved.annotation.label) == (False, Label.UNEXPLAINED)


def test_a_pretended_root_is_not_written(tree):
    (found,) = run_job(job(tree, root="catalogue"))
    assert found.annotation.label is not Label.ATTRIBUTED
    assert found.pretended == "catalogue"
    assert tree.annotation("a" * 16) is None


@pytest.mark.slow
def test_a_sham_is_tried_at_every_service_and_not_written(tree):
    calm = run_job(job(tree, "b", sham="HTTPResponseDelay"))
    halved = run_job(job(tree, "a", sham="NetworkDelay"))
    services = {"gateway", "orders", "payment", "bank", "catalogue", "weather"}
    assert {f.pretended for f in calm} == {f"HTTPResponseDelay at {s}" for s in services}
    assert {f.annotation.label for f in (*calm, *halved)} == {Label.NO_EFFECT}
    assert not tree.truth_path("b" * 16).joinpath("annotation.json").exists()


def test_an_unknown_root_is_told_with_the_nearest_service(tree):
    (found,) = run_job(job(tree, root="pament"))
    assert found.error.startswith("There is no service 'pament'; did you mean 'payment'?")


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_batch_goes_on_past_a_bad_case(tree, jobs):
    (tree.incident_path("a" * 16) / "normal_traces.parquet").write_bytes(b"PAR1 and then nothing")
    bad, good = map_processes(run_job, [job(tree, "a"), job(tree, "b")], jobs)
    assert bad[0].annotation is None
    assert "normal_traces.parquet cannot be read" in bad[0].error
    assert good[0].annotation.label is Label.NO_EFFECT
    assert json.loads((tree.truth_path("b" * 16) / "annotation.json").read_text())["label"] == "no_effect"


def test_ray_gives_what_processes_give(tree):
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")
    jobs = [job(tree, "a", root="bank"), job(tree, "b", root="bank")]
    results = [
        [found.annotation for found in done]
        for ray in ("local", None)
        for done in map_processes(run_job, jobs, 2, ray=ray)
    ]
    assert results[:2] == results[2:]


def test_a_ray_cluster_that_is_not_there_is_one_sentence():
    pytest.importorskip("ray", reason="ray is not installed: pip install '.[ray]'")
    with pytest.raises(OperationError, match=r"No ray cluster answers at 'auto'.*start one or use -j\.$"):
        list(map_processes(run_job, [1], 1, ray="auto"))


UNKNOWN = {
    "slow": (Effect(own_ms={"payment": 300}), ("http_slow",)),
    "failing": (Effect(fails={"payment": 0.6}), ("http_response_status_modified", "http_aborted")),
    "strained": (Effect(own_ms={"payment": 300}, cpu={"payment": 1.5}), ("cpu_stress",)),
    "on its link": (Effect(directed_ms={("*", "payment"): 300}), ("network_delay",)),
}


def _stated(tmp_path, effect, service, *, stated):
    tree = Tree(tmp_path / "tree")
    tree.write_truth(Truth(id="c" * 16, system="cascade", roots=(RootLabel(service=(service,)),), stated=stated))
    tree.incidents_dir.mkdir(parents=True)
    known = incident().model_copy(update={"id": "c" * 16})
    write_datapack(tree.incident_path("c" * 16), frames(systems.deep(), effect), known, {})
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("way", UNKNOWN)
@pytest.mark.parametrize("stated", [True, False])
def test_a_root_without_a_kind_is_annotated_by_what_it_shows(tmp_path, way, stated):
    effect, kinds = UNKNOWN[way]
    (done,) = run_job(job(_stated(tmp_path, effect, "payment", stated=stated), "c", others=True))
    assert done.annotation.label is Label.ATTRIBUTED
    assert done.annotation.roots[0].service == ("payment",)
    told = done.annotation.notes[-1]
    shares = [int(share) for share in re.findall(r"(\d+)%", told)]
    assert shares == sorted(shares, reverse=True)
    assert any(re.search(rf"\b{kind}\b[^%]* {shares[0]}%", told) for kind in kinds), told
    assert ("borne out" in done.stated) if stated else (done.stated is None)
    (again,) = run_job(job(_tree_of(done), "c"))
    assert again.unchanged


def _tree_of(done):
    return Tree(done.datapack.parents[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("effect", "label"), [(CALM, Label.NO_EFFECT), (Effect(own_ms={"catalogue": 400}), Label.UNEXPLAINED)]
)
def test_a_root_that_shows_no_kind_is_said(tmp_path, effect, label):
    (done,) = run_job(job(_stated(tmp_path, effect, "weather", stated=True), "c"))
    assert done.annotation.label is label
    assert "no kind of fault shows at weather" in done.annotation.reason
    assert "not borne out" in done.stated
