"""Draws that a solver sees follow from a secret, and from nothing else."""

from __future__ import annotations

from opsassay.core.draws import derived_random, derived_secret, derived_seed, new_secret


def test_the_same_secret_gives_the_same_draws_and_another_gives_others():
    first, second = new_secret(), new_secret()
    assert first != second
    assert len(first) == 32
    assert derived_seed(first, "system") == derived_seed(first, "system")
    assert derived_seed(first, "system") != derived_seed(second, "system")
    assert derived_random(first, "windows").random() == derived_random(first, "windows").random()


def test_purposes_have_draws_of_their_own():
    secret = new_secret()
    assert len({derived_secret(secret, purpose) for purpose in ("system", "windows", "0 cell", "1 cell")}) == 4
    assert derived_seed(secret, "system").bit_length() <= 128
    assert len({derived_seed(new_secret(), "system") for _ in range(1000)}) == 1000
