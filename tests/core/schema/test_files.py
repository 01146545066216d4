"""YAML that people write: file, line and field in every error."""

from __future__ import annotations

import textwrap

import pytest

from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.files import load_yaml, parse_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System

SYSTEM = """\
system: two
services:
  front:
    operations:
      GET /:
        steps:
          - {call: back GET /x}
  back:
    operations:
      GET /x: {steps: [{compute_ms: 1}]}
load:
  mix:
    - {request: front GET /}
"""


def sentence(text, model):
    with pytest.raises(ConfigError) as error:
        parse_yaml(textwrap.dedent(text), model, "file.yaml")
    return str(error.value)


def test_a_system_is_read():
    system = parse_yaml(SYSTEM, System, "s")
    assert system.calls() == {("front", "back")}
    assert system.entries() == {"front"}
    assert system.uses() == set()


def test_a_probe_asks_for_what_users_ask_most():
    rare = "    - {request: front GET /about, weight: 0.5}\n"
    text = SYSTEM.replace("      GET /:", "      GET /about: {steps: [{compute_ms: 1}]}\n      GET /:")
    usual = "    - {request: front GET /}\n"
    for mix in (usual + rare, rare + usual):
        system = parse_yaml(text.rsplit("    - ", 1)[0] + mix, System, "s")
        assert system.probe_paths() == {"front": "/"}


def test_an_unknown_key_names_file_line_field_and_the_nearest():
    text = SYSTEM.replace("compute_ms: 1", "compute_msec: 1")
    where = "file.yaml:10: services.back.operations.GET /x.steps.0.compute_msec"
    assert sentence(text, System).startswith(f"{where}: there is no such key; did you mean 'compute_ms'?")


def test_a_missing_key_is_named():
    assert sentence("fault_: PodKill", FaultPlan).startswith(
        "file.yaml:1: fault_: there is no such key; did you mean 'fault'?"
    )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("back GET /x}", "bck GET /x}", "there is no service 'bck'"),
        ("back GET /x}", "back GET /y}", "back has no operation 'GET /y'; it has GET /x"),
        ("back GET /x}", "back}", "call must read 'service METHOD /route'"),
        ("{call: back GET /x}", "{call: back GET /x, log: hello}", "exactly one of"),
        ("{compute_ms: 1}", "{sql: SELECT 1}", "sql needs a postgresql store"),
    ],
)
def test_what_does_not_fit_together_is_named(old, new, words):
    found = sentence(SYSTEM.replace(old, new), System)
    assert words in found
    assert found.startswith("file.yaml:")


def test_an_unknown_fault_gets_the_nearest():
    assert "did you mean 'NetworkDelay'?" in sentence("fault: NetworkDeley", FaultPlan)


def test_a_character_that_yaml_does_not_allow_is_one_sentence():
    assert sentence("system: \0", System) == "file.yaml: holds the character #x0000, which YAML does not allow."
    assert "holds the character #xdc80, which" in sentence("system: \udc80", System)


def test_text_that_is_no_yaml_names_the_line():
    assert sentence("a: b\nc: [", FaultPlan).startswith("file.yaml:2: not valid YAML")
    assert "character '@' that cannot" in sentence("a: @x", FaultPlan)
    late = "a: b: c\n" + "# and so on\n" * 9999 + "d: \1"  # what is not allowed stands behind what libyaml has read
    assert sentence(late, FaultPlan).startswith("file.yaml:1: not valid YAML: mapping values are not allowed")
    assert "expected a mapping" in sentence("- a", FaultPlan)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UserError, match="Cannot read"):
        load_yaml(tmp_path / "none.yaml", FaultPlan)
    (tmp_path / "latin.yaml").write_bytes(b"fault: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_yaml(tmp_path / "latin.yaml", FaultPlan)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "fault: PodKill\ntarget: {service: a}\nfault: PodFailure",
            "file.yaml:3: 'fault' is given twice, first in line 1",
        ),
        (
            "fault: NoFault\nparameters: {disturbance: quiet, disturbance: quiet}",
            "file.yaml:2: 'disturbance' is given twice",
        ),
        (
            "fault: NetworkDelay\ntarget: {service: a}\nparameters:\n  delay_ms: 0.1",
            "file.yaml:3: parameters: NetworkDelay: parameter",
        ),
        ("fault: NoFault\nparameters: {factor: 2}", "file.yaml:2: parameters: NoFault with disturbance quiet has no"),
        ("fault: PodKill", "needs a target"),
        ("fault: PodKill\ntarget: {service: a, host: b}", "file.yaml:2: target: a target is one service or one host"),
        ("fault: PodKill\ntarget: {host: b, replica: 1}", "file.yaml:2: target: a host has no replicas to choose from"),
        (
            "faults:\n- {fault: PodKill, target: {service: a}}\n- {fault: CPUStress}",
            "file.yaml:3: faults.1: CPUStress needs a target",
        ),
        (
            "fault: PodKill\nfaults: [{fault: CPUStress, target: {service: a}}]",
            "give one `fault` with its `target`, or several",
        ),
        ("faults:\n- {fault: NoFault}\n- {fault: PodKill, target: {service: a}}", "NoFault stands alone"),
        ("duration_s: 5", "give one `fault` with its `target`, or several"),
    ],
)
def test_a_plan_that_is_wrong_by_itself_names_line_and_field(text, says):
    assert says in sentence(text, FaultPlan)


def test_a_plan_holds_one_fault_or_several():
    one = parse_yaml("fault: PodKill\ntarget: {service: a}", FaultPlan, "f")
    assert [part.name for part in one.parts] == ["PodKill on a"]
    both = parse_yaml(
        "faults:\n- {fault: PodKill, target: {service: a}}\n- {fault: CPUStress, target: {host: h}}", FaultPlan, "f"
    )
    assert [part.name for part in both.parts] == ["PodKill on a", "CPUStress on h"]
    assert both.name == "PodKill + CPUStress"
    assert both.parts[1].parameters == {"load_percent": 95.0}
    assert FaultPlan.model_validate(both.model_dump(mode="json")) == both
