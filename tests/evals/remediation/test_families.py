"""Incidents of kernel limits, disks and ports: every oracle and control of theirs, played on the model."""

from __future__ import annotations

import pytest

from opsassay.evals.remediation.controls.scripts import applicable
from opsassay.evals.remediation.modelled.trial import ModelledTrial
from opsassay.scoring.verifiers import certify
from opsassay.testbed.scenarios import load_scenario

NAMES = ["ephemeral-ports", "disk-full", "port-conflict"]
EITHER = {"certificate", "v_cause", "v_users"}
"""What may fail too where a script fails."""


def failing(scenario, script):
    return {one.predicate for one in certify(ModelledTrial(scenario).play(script), scenario).judgements if one.failed}


@pytest.mark.parametrize("name", NAMES)
def test_every_oracle_is_judged_as_its_file_says(name):
    scenario = load_scenario(name)
    for oracle in scenario.oracles.values():
        failed = failing(scenario, oracle)
        if oracle.certified:
            assert failed == set()
        else:
            assert set(oracle.fails) <= failed <= {*oracle.fails, *EITHER}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_control_is_rejected_for_what_it_names(name):
    scenario = load_scenario(name)
    for control in applicable(scenario):
        assert control.fails in failing(scenario, control), control.name
