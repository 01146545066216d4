"""A hostile agent of our own tries to get out of the seal; each attempt is held inside and gets through outside.

The control is what gives the first test its meaning: without the seal the same program reaches what it is after.
"""

from __future__ import annotations

import os

import pytest

from opsassay.solvers.sandbox import sealing_refusal
from opsassay.solvers.sandbox.groups import memory_is_held
from solvers.sandbox.attempts import ATTEMPTS, ROOT
from solvers.sandbox.controls import DEPENDS_ON_THE_MACHINE, NEEDS_A_MEMORY_GROUP
from solvers.sandbox.world import World


@pytest.fixture(scope="module")
def world():
    if refusal := sealing_refusal():
        pytest.skip(refusal)
    world = World()
    yield world
    world.close()


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_seal_holds(world, name):
    if name in NEEDS_A_MEMORY_GROUP and not memory_is_held():
        pytest.skip(f"not held here: {name!r} needs a control group for memory, see docs/sealing.md")
    told = world.sealed(name)
    assert told.get("reached") is False, told


@pytest.mark.sampled
@pytest.mark.parametrize("name", ATTEMPTS)
def test_without_the_seal_it_gets_through(world, name):
    if name in ROOT and os.geteuid() != 0:
        pytest.skip(f"no control for {name!r}: only root gets through")
    told = world.unsealed(name)
    if told.get("reached") is False and name in DEPENDS_ON_THE_MACHINE:
        pytest.skip(f"no control for {name!r} here: {DEPENDS_ON_THE_MACHINE[name]} ({told.get('held')})")
    assert told.get("reached") is True, told
