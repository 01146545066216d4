"""incident.yaml of OTLP files: windows, alerts, stated roots and a truth that is corrected; bad ones are one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
import yaml

from opsassay.cli import run as opsassay
from opsassay.core.errors import UserError
from opsassay.telemetry.importers.otlp import import_otlp
from opsassay.telemetry.importers.stated import StatedIncident, read_alerts
from opsassay.telemetry.tree import Tree

EXAMPLE = Path(__file__).parents[3] / "examples" / "otlp"
BEGIN, NS = 1_772_360_000, 10**9
BOUNDARY = "2026-03-01T10:13:50Z"
"""Thirty seconds after BEGIN."""


def case(folder, about=None, seconds=60):
    """A folder with a span a second from BEGIN on."""
    spans = [
        {"traceId": f"{i + 1:032x}", "spanId": f"{i + 1:016x}", "name": "GET /", "kind": 2,
         "startTimeUnixNano": str((BEGIN + i) * NS), "endTimeUnixNano": str((BEGIN + i) * NS + 10**6)}
        for i in range(seconds)
    ]  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "cart"}}]}
    folder.mkdir(parents=True)
    whole = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": spans}]}]}
    (folder / "traces.json").write_text(json.dumps(whole))
    if about is not None:
        (folder / "incident.yaml").write_text(yaml.safe_dump(about))
    return folder


def imported(tmp_path, about, **options):
    report = import_otlp(case(tmp_path / "in" / "shop", about), tmp_path / "out", **options)
    assert report.failed == ()
    tree = Tree(tmp_path / "out")
    ((_, id_),) = report.imported
    return tree.datapack(id_), tree.truth(id_) if (tree.truth_path(id_) / "truth.json").exists() else None


def counts(pack):
    return tuple(pack.scan(period, "traces").select(pl.len()).collect().item() for period in ("normal", "abnormal"))


def test_a_boundary_cuts_files_that_lie_together(tmp_path):
    alert = {"time": "2026-03-01T10:14:00Z", "service": "front", "message": "errors"}
    about = {"boundary": BOUNDARY, "system": "web", "description": "Orders fail.", "alerts": [alert],
             "root": ["cart:http_slow", {"service": "store", "pod": "store-0"}]}  # fmt: skip
    pack, truth = imported(tmp_path, about)
    incident = pack.incident
    assert counts(pack) == (30, 30)
    assert (incident.system, incident.description) == ("web", "Orders fail.")
    assert incident.normal.end_ns == incident.abnormal.start_ns == (BEGIN + 30) * NS
    assert [(one.service, one.message, one.time_ns) for one in incident.alerts] == [
        ("front", "errors", (BEGIN + 40) * NS)
    ]
    assert truth.stated
    assert [(root.service, root.pod) for root in truth.roots] == [(("cart",), ()), (("store",), ("store-0",))]
    assert [(fault.service, fault.start_ns) for fault in truth.faults] == [("cart", incident.abnormal.start_ns)]


def test_windows_leave_out_what_lies_outside(tmp_path):
    window = "2026-03-01T10:13:{}Z..2026-03-01T10:13:{}Z"
    pack, truth = imported(tmp_path, {"normal": window.format(30, 40), "abnormal": window.format(50, 59)})
    assert (counts(pack), truth) == ((10, 9), None)


def test_options_go_before_the_file(tmp_path):
    pack, truth = imported(tmp_path, {"boundary": BOUNDARY, "root": "store"}, stated={"root": ("cart",)})
    assert counts(pack) == (30, 30)
    assert [root.service for root in truth.roots] == [("cart",)]


def test_a_corrected_truth_is_a_conflict_until_it_is_asked_for(tmp_path, capsys):
    folder, out = case(tmp_path / "in"), str(tmp_path / "out")

    def run(root, *more):
        code = opsassay(
            ["incident", "import", "otlp", str(folder), "-o", out, "--boundary", BOUNDARY, "--root", root, *more]
        )
        return code, capsys.readouterr()

    assert run("cart")[0] == 0
    code, said = run("store")
    assert (code, "in conflict with" in " ".join(said.out.split())) == (1, True)
    (truth,) = (tmp_path / "out" / "truth").glob("*/truth.json")
    (truth.parent / "annotation.json").write_text("{}")
    assert run("store", "--update-truth")[0] == 0
    assert json.loads(truth.read_text())["roots"][0]["service"] == ["store"]
    assert not (truth.parent / "annotation.json").exists()
    assert "its truth is the same" in run("store", "--update-truth")[1].err


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"boundary": "noon"}, "'noon' is no time in ISO 8601"),
        ({"boundary": BOUNDARY, "root": "cart:nothing"}, "nothing"),
        ({"boundary": BOUNDARY, "roots": "cart"}, "roots"),
        ({"normal": "2026-03-01T10:13:30Z..2026-03-01T10:13:40Z"}, "give both or none"),
        ({"boundary": "2020-01-01T00:00:00Z"}, "normal window, holds no rows"),
        ({}, "says neither a boundary nor windows"),
    ],
)
def test_a_bad_file_fails_its_case_alone(tmp_path, about, said):
    case(tmp_path / "in" / "bad", about)
    case(tmp_path / "in" / "good", {"boundary": BOUNDARY})
    report = import_otlp(tmp_path / "in", tmp_path / "out")
    assert [name for name, _ in report.imported] == ["good"]
    ((name, reason),) = report.failed
    assert (name, said in reason) == ("bad", True), reason


def test_a_bad_option_is_one_sentence_and_nothing_is_written(tmp_path, capsys):
    folder = str(case(tmp_path / "in"))
    for options, said in (
        (["otlp", "--boundary", "noon"], "'noon' is no time"),
        (["otlp", "--boundary", BOUNDARY, "--root", ":"], "expected SERVICE or SERVICE:KIND"),
        (["otlp", "--boundary", BOUNDARY, "--alerts", folder + "/traces.json"], "expected a list of alerts"),
        (["nezha", "--root", "cart"], "are for otlp, not for nezha"),
    ):
        format_, *more = options
        assert opsassay(["incident", "import", format_, folder, "-o", str(tmp_path / "out"), *more]) == 2, options
        assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()
    case(tmp_path / "two" / "a", {"boundary": BOUNDARY})
    case(tmp_path / "two" / "b", {"boundary": BOUNDARY})
    with pytest.raises(UserError, match="holds 2 cases; give the folder of one"):
        import_otlp(tmp_path / "two", tmp_path / "out", stated={"root": ("cart",)})


@pytest.mark.parametrize("form", ["prometheus", "alertmanager", "own"])
def test_alerts_are_read_as_backends_answer_them(tmp_path, form):
    labels = {"alertname": "Errors", "service_name": "front"}
    at, said = "2026-03-01T10:14:00Z", {"summary": "5% of requests fail"}
    nameless = {"labels": {"alertname": "Watchdog"}, "activeAt": at, "startsAt": at}
    given = {
        "prometheus": {"data": {"alerts": [{"labels": labels, "annotations": said, "activeAt": at}, nameless]}},
        "alertmanager": [{"labels": labels, "annotations": said, "startsAt": at}, nameless],
        "own": [{"time": at, "service": "front", "message": said["summary"]}],
    }[form]  # fmt: skip
    (tmp_path / "alerts.json").write_text(json.dumps(given))
    (one,) = read_alerts(tmp_path / "alerts.json")
    assert (one.service, one.message, one.time) == ("front", "5% of requests fail", (BEGIN + 40) * NS)


def test_the_example_is_the_page_s_and_is_read():
    page = (EXAMPLE.parents[1] / "docs" / "commands" / "incident.md").read_text(encoding="utf-8")
    written = (EXAMPLE / "incident.yaml").read_text(encoding="utf-8")
    assert written.partition("\n")[2] in page
    assert len(StatedIncident.model_validate(yaml.safe_load(written)).root) == 2
