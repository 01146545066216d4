import shutil

import pytest

from opsassay.core.errors import DatapackError, NotFoundError, UserError
from opsassay.core.schema.incident import Label
from opsassay.telemetry.tree import Tree, opaque_id, resolve
from telemetry.packs import make_annotation, make_frames, make_incident, make_pack, make_public, make_tree, make_truth


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("tree"), traces=5)


@pytest.fixture
def tree(original, tmp_path):
    shutil.copytree(original.root, tmp_path / "tree")
    return Tree(tmp_path / "tree")


def test_an_id_is_a_hash_that_says_nothing():
    assert opaque_id("JVMReturn in cart") == opaque_id("JVMReturn in cart")
    assert opaque_id("a") != opaque_id("b")
    assert len(opaque_id("a")) == 16
    assert set(opaque_id("a")) <= set("0123456789abcdef")


def test_a_tree_gives_back_what_was_put_into_it(tree):
    assert tree.ids() == sorted(opaque_id(f"tree {n}") for n in range(2))
    id_ = tree.ids()[0]
    incident = tree.datapack(id_).incident
    assert incident.id == id_
    assert tree.truth(id_) == make_truth(incident)
    assert tree.annotation(id_) == make_annotation(incident)
    assert tree.ledger(id_)["added_ns"].to_list() == [5, 7]
    assert {file.name for file in tree.truth_path(id_).iterdir()} == {
        "truth.json",
        "annotation.json",
        "causal_graph.json",
        "ledger.parquet",
    }


def test_what_is_not_there_is_none_or_named(tree):
    id_ = tree.ids()[0]
    for name in ("annotation.json", "ledger.parquet", "truth.json"):
        (tree.truth_path(id_) / name).unlink()
    assert tree.annotation(id_) is None
    assert tree.ledger(id_) is None
    with pytest.raises(NotFoundError, match="no truth of incident"):
        tree.truth(id_)
    with pytest.raises(NotFoundError, match=f"did you mean '{id_}'"):
        tree.datapack(id_[:-1])


def test_a_half_written_incident_is_none(tree):
    (tree.incidents_dir / ".0123.partial").mkdir()
    assert len(tree.ids()) == 2
    assert Tree(tree.root / "nowhere").ids() == []


def test_a_damaged_truth_is_one_sentence(tree):
    path = tree.truth_path(tree.ids()[0]) / "truth.json"
    path.write_text('{"id": 3}')
    with pytest.raises(DatapackError, match=r"truth.json: id: .*; restore it") as caught:
        tree.truth(tree.ids()[0])
    assert "\n" not in str(caught.value)


def test_writing_replaces_whole_files_and_leaves_no_others(tree):
    id_ = tree.ids()[0]
    before = sorted(tree.truth_path(id_).iterdir())
    truth = tree.truth(id_).model_copy(update={"notes": ("again",)})
    tree.write_truth(truth)
    tree.write_annotation(id_, tree.annotation(id_).model_copy(update={"label": Label.ABSORBED}))
    assert tree.truth(id_).notes == ("again",)
    assert tree.annotation(id_).label is Label.ABSORBED
    assert sorted(tree.truth_path(id_).iterdir()) == before


def test_remove_takes_both_sides(tree):
    gone, kept = tree.ids()
    tree.remove(gone)
    tree.remove(gone)
    assert tree.ids() == [kept]
    assert [folder.name for folder in tree.truth_dir.iterdir()] == [kept]


def test_resolve_takes_a_tree_its_incidents_and_one_of_them(tree):
    for path in (tree.root, tree.incidents_dir):
        cases = resolve(path)
        assert [case.name for case in cases] == tree.ids()
        assert all(case.truth and case.annotation and case.truth_path == tree.truth_path(case.name) for case in cases)
    (case,) = resolve(tree.incidents_dir / tree.ids()[1])
    assert case.name == tree.ids()[1]
    assert case.truth.id == case.datapack.incident.id == case.name


def test_an_incident_whose_truth_was_taken_away_is_a_case_without_truth(tree):
    shutil.rmtree(tree.truth_dir)
    assert [(case.truth, case.annotation, case.truth_path) for case in resolve(tree.root)] == [(None, None, None)] * 2


def test_resolve_takes_the_public_form_in_place(tmp_path):
    graph = {"nodes": [{"component": "service|store", "state": ["ERRORING"], "timestamp": 1_767_323_045}],
             "edges": [], "root_causes": [{"component": "service|store", "state": ["ERRORING"]}],
             "alarm_nodes": [], "component_to_service": {}}  # fmt: skip
    one = make_public(tmp_path / "chain-fault-one", traces=3, graph=graph)
    make_public(tmp_path / "chain-fault-two", traces=4)
    (tmp_path / "notes").mkdir()
    (case,) = resolve(one)
    assert case.name == "chain-fault-one"
    assert [fault.service for fault in case.truth.faults] == ["store"]
    assert case.truth.id == case.datapack.incident.id
    assert case.truth_path == one
    assert case.annotation.label is Label.ATTRIBUTED
    assert case.annotation.graph.nodes[0].timestamp == 1_767_323_045 * 10**9
    assert [(c.name, c.annotation is None) for c in resolve(tmp_path)] == [
        ("chain-fault-one", False),
        ("chain-fault-two", True),
    ]


def test_a_bare_datapack_is_a_case_without_truth(tmp_path):
    make_pack(tmp_path / "mine", traces=3)
    (case,) = resolve(tmp_path / "mine")
    assert (case.name, case.truth) == ("mine", None)


def test_resolve_says_what_it_found_and_what_it_wants(tmp_path):
    with pytest.raises(UserError, match="is not there; expected a folder with incidents/"):
        resolve(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds nothing; expected"):
        resolve(tmp_path)
    (tmp_path / "scores.csv").write_text("a,b\n")
    with pytest.raises(UserError, match="is a file; expected"):
        resolve(tmp_path / "scores.csv")
    with pytest.raises(UserError, match=r"holds scores\.csv; expected"):
        resolve(tmp_path)
    (tmp_path / "incidents").mkdir()
    with pytest.raises(UserError, match=r"holds incidents, scores\.csv"):
        resolve(tmp_path)


def test_a_case_that_cannot_be_read_is_raised_or_told_and_the_rest_goes_on(tree):
    broken, whole = tree.ids()
    (tree.incident_path(broken) / "normal_traces.parquet").unlink()
    with pytest.raises(DatapackError, match="normal_traces"):
        resolve(tree.root)
    told = []
    cases = resolve(tree.root, lambda folder, error: told.append((folder.name, type(error))))
    assert [case.name for case in cases] == [whole]
    assert told == [(broken, DatapackError)]


def test_a_causal_graph_that_is_none_is_named(tmp_path):
    folder = make_public(tmp_path / "pack", traces=3, graph={"nodes": 7})
    with pytest.raises(DatapackError, match=r"causal_graph\.json: nodes:"):
        resolve(folder)


def test_frames_and_incident_of_the_generator_fit_together():
    incident, frames = make_incident(), make_frames(traces=7)
    times = frames["abnormal", "traces"]["time"].dt.epoch("ns")
    assert incident.abnormal.start_ns <= times.min()
    assert times.max() < incident.abnormal.end_ns
