"""Names of copies of compose projects: engines take letters, digits, - and _, and systems may have others."""

from __future__ import annotations

import re

import pytest

from opsassay.testbed.substrates.local.composed import project_name


@pytest.mark.parametrize("system", ["shop", "my-shop", "shop.v2", "Shop", "shop_2", "a.b.c", "X"])
def test_a_name_is_one_that_engines_take(system):
    assert re.fullmatch(r"[a-z0-9][a-z0-9_-]*", project_name(system))


def test_two_systems_never_share_a_project():
    systems = ["shop.v2", "shop-v2", "shop_v2", "Shop.v2", "SHOP-V2"]
    assert len({project_name(one) for one in systems}) == len(systems)


def test_a_plain_name_stays_readable():
    assert project_name("my-shop") == "opsassay-my-shop"
