"""Incidents of kernel limits, disks and ports: every oracle and control of theirs, played on the model."""

from __future__ import annotations

import pytest

from opsassay.evals.remediation.controls.scripts import applicable
from opsassay.evals.remediation.modelled.trial import ModelledTrial
from opsassay.scoring.verifiers import certify
from opsassay.testbed.scenarios import load_scenario

from .test_new_cheats import drop, played, put, restart, scale

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


def ports(value):
    return put("stock", "ip_local_port_range", value)


def kill(target, process):
    return "kill", {"target": target, "process": process}


EXPORT, PREVIEW = kill("cache", "nightly-export"), kill("shelf", "preview")
CHEATS = {
    "more replicas that have few ports each": ("ephemeral-ports", "v_cause", scale("stock", 12)),
    "a restart that frees no port": ("ephemeral-ports", "v_cause", restart("stock")),
    "some more ports": ("ephemeral-ports", "v_settings", ports("42000 42999")),
    "ports that are taken away again": ("ephemeral-ports", "v_cause", "right", ports("42000 42009")),
    "a cache that saves no more": ("disk-full", "v_cause", put("cache", "save", "")),
    "a cache on a disk that is full again": ("disk-full", "v_cause", restart("cache")),
    "writes that need not be saved from now on": (
        "disk-full", "v_settings", "right", put("cache", "stop-writes-on-bgsave-error", "no"),
    ),
    "a preview that ends itself at the next start": ("port-conflict", "v_cause", PREVIEW),
    "a setting that is no port": ("port-conflict", "v_outcome", put("shelf", "PREVIEW_PORT", "none"), restart("shelf")),
    "a preview on its port once more": ("port-conflict", "v_settings", "right", put("shelf", "PREVIEW_PORT", "8080")),
}  # fmt: skip


@pytest.mark.parametrize("cheat", CHEATS)
def test_what_leaves_the_cause_is_rejected(cheat):
    name, predicate, *steps = CHEATS[cheat]
    certified, failed = played(name, *steps)
    assert not certified
    assert predicate in failed


RIGHT = {
    "ports and connections": ("ephemeral-ports", ports("32768 60999"), drop("stock", "KEEP_ALIVE"), restart("stock")),
    "a preview that is ended and will not come back": ("port-conflict", drop("shelf", "PREVIEW_PORT"), PREVIEW),
    "a preview that is moved elsewhere": ("port-conflict", put("shelf", "PREVIEW_PORT", "9090"), restart("shelf")),
    "a process that is ended late": ("disk-full", ("wait", {"seconds": 30}), EXPORT),
}


@pytest.mark.parametrize("repair", RIGHT)
def test_what_mends_the_cause_in_another_way_is_certified(repair):
    assert played(*RIGHT[repair]) == (True, set())
