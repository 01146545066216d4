"""The lock holds what pyproject.toml asks for, each package at one version that it allows and by its hashes."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def pinned():
    """Name to version and hashes of every package of the lock."""
    text = (ROOT / "requirements.lock").read_text()
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)
    found = {}
    for block in filter(None, blocks):
        name, version = re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;]+)", block).groups()
        found[canonicalize_name(name)] = (version, re.findall(r"--hash=sha256:([0-9a-f]{64})", block))
    return found


def asked():
    """Every requirement of the package and of its development extra, and of the extras which that names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras, left, done = project["optional-dependencies"], ["dev"], set()
    given = [Requirement(one) for one in project["dependencies"]]
    while left:
        extra = left.pop()
        if extra in done:
            continue
        done.add(extra)
        for one in map(Requirement, extras[extra]):
            if one.name == "opsassay":
                left += sorted(one.extras)
            else:
                given.append(one)
    return given


@pytest.mark.parametrize("requirement", asked(), ids=lambda one: one.name)
def test_what_is_asked_for_is_locked_at_a_version_that_is_allowed(requirement):
    locked = pinned()
    name = canonicalize_name(requirement.name)
    assert name in locked, "run `make lock`"
    assert requirement.specifier.contains(locked[name][0], prereleases=True), "run `make lock`"


def test_every_package_has_its_hashes_and_the_lock_names_no_host():
    assert all(hashes for _, hashes in pinned().values())
    assert "://" not in (ROOT / "requirements.lock").read_text()
