import json
import shutil
from pathlib import Path

import polars as pl
import pytest

from opsassay.core.errors import UserError
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.incident import Fault, RootLabel, Truth
from opsassay.telemetry.content import TABLES
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.injection import public_injection, read_public_truth
from opsassay.telemetry.leaks import leaks
from opsassay.telemetry.public import export_public, import_public, public_name
from opsassay.telemetry.schema import MODALITIES, PERIODS
from opsassay.telemetry.tree import Tree, resolve
from telemetry.packs import make_incident, make_public, make_tree, make_truth, old_injection


def files_below(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.slow
def test_our_own_tree_survives_export_and_import_to_the_byte(tmp_path):
    tree = make_tree(tmp_path / "one", traces=5)
    folders = export_public(tree, tmp_path / "public")
    assert [f.name for f in folders] == [f"chain-HTTPResponseAbort-store-{id_}" for id_ in tree.ids()]
    report = import_public(tmp_path / "public", tmp_path / "two")
    assert [id_ for _, id_ in report.imported] == tree.ids()
    assert files_below(tmp_path / "two") == files_below(tree.root)


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, 13])
def test_a_public_pack_survives_import_export_and_import(tmp_path, number):
    graph = {
        "case_name": "x",
        "unknown_key": [1],
        "nodes": [{"timestamp": 1_767_323_045, "component": "span|store::GET /get", "state": ["high_error_rate"]}],
        "edges": [{"source": "span|store::GET /get", "target": "service|cart"}],
        "root_causes": [{"timestamp": None, "component": "span|store::GET /get", "state": []}],
        "alarm_nodes": [],
        "component_to_service": {"span|store::GET /get": "store"},
    }
    injection = None if number is None else old_injection(number)
    source = make_public(tmp_path / "packs" / "a-telling-name", traces=5, injection=injection, graph=graph)
    import_public(tmp_path / "packs", tmp_path / "one")
    (folder,) = export_public(Tree(tmp_path / "one"), tmp_path / "public")
    for name in ("injection.json", "causal_graph.json"):
        assert json.loads((folder / name).read_text()) == json.loads((source / name).read_text())
    for name in TABLES:
        assert pl.read_parquet(folder / name).equals(pl.read_parquet(source / name))
    import_public(tmp_path / "public", tmp_path / "two")
    assert files_below(tmp_path / "one") == files_below(tmp_path / "two")
    (case,) = resolve(tmp_path / "one")
    assert case.annotation.graph.service_edges() == {("store", "cart")}


def test_the_exported_form_is_a_public_pack(tmp_path):
    tree = make_tree(tmp_path / "one", count=1, traces=5)
    (folder,) = export_public(tree, tmp_path / "public")
    truth = tree.truth(tree.ids()[0])
    told = json.loads((folder / "injection.json").read_text())
    assert told["fault_type"] == "HTTPResponseAbort"
    (entry,) = told["engine_config"]
    assert {
        "app": "store",
        "chaos_type": "HTTPResponseAbort",
        "pod_name": "store-0",
        "code": 503,
    }.items() <= entry.items()
    assert told["ground_truth"] == [{"service": ["store"], "pod": ["store-0"]}]
    read = read_public_truth(folder, tree.datapack(tree.ids()[0]).incident)
    assert read.faults == truth.faults  # to the nanosecond
    assert read.roots == truth.roots
    graph = json.loads((folder / "causal_graph.json").read_text())
    assert {"nodes", "edges", "root_causes", "alarm_nodes", "component_to_service"} <= set(graph)


def test_an_edited_injection_wins_over_our_own_truth(tmp_path):
    tree = make_tree(tmp_path / "one", count=1, traces=5)
    (folder,) = export_public(tree, tmp_path / "public")
    told = json.loads((folder / "injection.json").read_text())
    told["engine_config"][0]["app"] = "cart"
    (folder / "injection.json").write_text(json.dumps(told))
    import_public(folder, tmp_path / "two")
    (case,) = resolve(tmp_path / "two")
    assert [fault.service for fault in case.truth.faults] == ["cart"]
    assert case.truth.public == told


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "PodKill"), (3, "MemoryStress"), (4, "CPUStress"), (13, "HTTPResponseReplaceCode"), (15, "DNSRandom"),
     (16, "TimeSkew"), (17, "NetworkDelay"), (22, "NetworkPartition"), (24, "JVMReturn"), (30, "JVMMySQLException"),
     (31, "JVMReturn")],
)  # fmt: skip
def test_numbers_of_the_older_generation(tmp_path, number, name):
    incident = make_incident()
    (tmp_path / "injection.json").write_text(json.dumps(old_injection(number)))
    truth = read_public_truth(tmp_path, incident)
    (fault,) = truth.faults
    assert (fault.type, fault.service) == (name, "store")
    assert (fault.start_ns, fault.end_ns) == (incident.abnormal.start_ns, incident.abnormal.end_ns)
    assert fault.parameters["route"] == "/get"
    assert (truth.roots[0].service, truth.roots[0].span) == (("store",), ("GET /get",))


def test_every_chaos_type_has_a_number(tmp_path):
    named = set()
    for number in range(32):
        (tmp_path / "injection.json").write_text(json.dumps(old_injection(number)))
        named.add(read_public_truth(tmp_path, make_incident()).faults[0].type)
    assert named == set(CATALOGUE)


@pytest.mark.parametrize(
    ("alias", "name"), [("DNSChaos", "DNSError"), ("TimeChaos", "TimeSkew"), ("JVMRuntimeMutator", "JVMReturn")]
)
def test_aliases_and_several_faults(tmp_path, alias, name):
    times = {"start_time": "2026-01-02T03:04:05Z", "end_time": "2026-01-02 03:05:05.5"}
    entries = [
        {"app": "cart", "chaos_type": alias},
        {"app": "store", "chaos_type": "NetworkLoss", "target_service": "cart"},
    ]
    told = {"fault_type": "hybrid", "engine_config": entries, **times}
    (tmp_path / "injection.json").write_text(json.dumps(told))
    truth = read_public_truth(tmp_path, make_incident())
    assert [(f.type, f.service, f.peer) for f in truth.faults] == [
        (name, "cart", None),
        ("NetworkLoss", "store", "cart"),
    ]
    assert [root.service for root in truth.roots] == [("cart",), ("store",)]  # ground_truth was not given
    assert truth.faults[0].end_ns - truth.faults[0].start_ns == 60_500_000_000


def test_nothing_was_broken(tmp_path):
    incident = make_incident()
    (tmp_path / "injection.json").write_text(json.dumps(public_injection(Truth(id=incident.id, system="chain"))))
    truth = read_public_truth(tmp_path, incident)
    assert (truth.faults, truth.roots) == ((), ())


def test_roots_without_a_known_fault_are_not_no_fault(tmp_path):
    incident = make_incident("0123456789abcdef")
    known = Truth(id=incident.id, system=incident.system, roots=(RootLabel(service=("store",)),))
    (tmp_path / "injection.json").write_text(json.dumps(public_injection(known)))
    read = read_public_truth(tmp_path, incident)
    assert (read.faults, read.roots) == ((), known.roots)
    assert public_name(incident, known).startswith(f"{incident.system}-unknown-store-")


def test_several_faults_of_ours_read_back_the_same(tmp_path):
    incident = make_incident()
    first = make_truth(incident).faults[0]
    second = Fault(
        type="CPUStress", service="cart", parameters={"cores": 2}, start_ns=first.start_ns + 7, end_ns=first.end_ns
    )
    truth = make_truth(incident).model_copy(update={"faults": (first, second)})
    (tmp_path / "injection.json").write_text(json.dumps(public_injection(truth)))
    assert read_public_truth(tmp_path, incident).faults == truth.faults


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fault_type": 99}, "fault_type 99 is not one of 0 to 31"),
        ({"fault_type": "PodKil"}, "did you mean 'PodKill'"),
        ({"start_time": "yesterday"}, "cannot be understood"),
        ({"start_time": None}, "cannot be understood"),
        ({"display_config": ""}, "neither engine_config nor display_config"),
        ({"ground_truth": ["store"]}, "cannot be understood"),
    ],
)
def test_one_bad_case_does_not_stop_the_batch(tmp_path, change, said):
    good = make_public(tmp_path / "packs" / "good", traces=3)
    make_public(tmp_path / "packs" / "bad", traces=4, injection=old_injection(5) | change)
    told = []
    report = import_public(tmp_path / "packs", tmp_path / "out", lambda name, became: told.append((name, became)))
    assert [name for name, _ in report.imported] == [good.name]
    ((name, reason),) = report.failed
    assert name == "bad"
    assert said in reason
    assert "injection.json" in reason
    assert "\n" not in reason
    assert told == [("bad", "failed"), ("good", "imported")]
    assert len(Tree(tmp_path / "out").ids()) == 1


def test_a_pack_without_injection_or_with_a_broken_table_is_reported(tmp_path):
    (make_public(tmp_path / "packs" / "a", traces=3) / "injection.json").unlink()
    (make_public(tmp_path / "packs" / "b", traces=4) / "abnormal_logs.parquet").write_bytes(b"PAR1")
    report = import_public(tmp_path / "packs", tmp_path / "out")
    assert [
        "no injection.json" in report.failed[0][1],
        "abnormal_logs.parquet cannot be read" in report.failed[1][1],
    ] == [True, True]


@pytest.mark.slow
def test_import_resumes_and_repairs_one_that_was_cut_off(tmp_path):
    for number in range(3):
        make_public(tmp_path / "packs" / str(number), traces=3 + number)
    first = import_public(tmp_path / "packs" / "1", tmp_path / "out")
    cut_off = Datapack.open(tmp_path / "packs" / "2").incident.id
    (tmp_path / "out" / "truth" / cut_off).mkdir()
    (tmp_path / "out" / "truth" / cut_off / "annotation.json").write_text("{}")
    report = import_public(tmp_path / "packs", tmp_path / "out")
    assert report.skipped == first.imported
    assert [name for name, _ in report.imported] == ["0", "2"]
    tree = Tree(tmp_path / "out")
    assert tree.annotation(cut_off) is None
    assert tree.truth(cut_off).faults


def test_a_source_without_packs(tmp_path):
    (tmp_path / "x").mkdir()
    with pytest.raises(UserError, match="holds no datapack in the public form"):
        import_public(tmp_path, tmp_path / "out")


@pytest.fixture(scope="module")
def imported(real_data, tmp_path_factory):
    out = tmp_path_factory.mktemp("real")
    return Tree(out), import_public(real_data / "nezha-datapacks", out)


@pytest.mark.slow
def test_real_packs_are_imported_row_by_row(real_data, imported):
    tree, report = imported
    assert (len(report.imported), report.skipped, report.failed) == (28, (), ())
    for name, id_ in report.imported[::9]:
        source = real_data / "nezha-datapacks" / name
        assert tree.truth(id_).public == json.loads((source / "injection.json").read_text())
        given, kept = Datapack.open(source), tree.datapack(id_)
        for period in PERIODS:
            for modality in MODALITIES:
                before, after = given.read(period, modality), kept.read(period, modality)
                assert before.sort(before.columns).equals(after.sort(before.columns))


@pytest.mark.slow
def test_real_incidents_do_not_tell_the_truth(imported):
    tree, _ = imported
    assert {id_: leaks(tree.incident_path(id_), tree.truth(id_)) for id_ in tree.ids()} == {
        id_: [] for id_ in tree.ids()
    }


@pytest.mark.slow
def test_an_import_notes_what_gives_the_truth_away(real_data, tmp_path):
    source = tmp_path / "pack"
    shutil.copytree(next(iter(sorted((real_data / "nezha-datapacks").iterdir()))), source)
    assert import_public(source, tmp_path / "clean").notes == ()
    logs = source / "abnormal_logs.parquet"
    pl.read_parquet(logs).with_columns(message=pl.lit("chaos-mesh is at work")).write_parquet(logs)
    ((name, note),) = import_public(source, tmp_path / "leaking").notes
    assert name == "pack"
    assert note == (
        "what a solver sees gives the truth away in 1 place, first in "
        "abnormal_logs.parquet: column message: chaos-mesh is at work"
    )


@pytest.mark.slow
def test_real_packs_survive_export_and_import(imported, tmp_path):
    tree, _ = imported
    ids = tree.ids()[::7]
    export_public(tree, tmp_path / "public", ids)
    import_public(tmp_path / "public", tmp_path / "again")
    for id_ in ids:
        for side in ("incidents", "truth"):
            assert files_below(tmp_path / "again" / side / id_) == files_below(tree.root / side / id_)
