"""RCD of benchmarks/papers/rcaeval_methods.py against that of PyRCA, over drawn systems of which one column is broken.

::

    pip download --no-deps sfr-pyrca==1.0.1 && unzip sfr_pyrca-1.0.1-*.whl -d FOLDER    # it asks for an old scikit-learn
    python benchmarks/rcd_peer.py FOLDER [--draws 60]

Both deal columns into groups at random, so each runs with two seeds: the share of pairs with the same first root is printed
beside that of each one with itself.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from importlib import import_module
from itertools import product

import numpy as np

from opsassay.solvers.methods.matrix import Matrix
from papers.rcaeval_methods import rcd_ranking

COLUMNS, ROWS, SHIFT, SEEDS = 12, 120, 5.0, (0, 1)


def drawn(seed: int) -> tuple[Matrix, Matrix, int]:
    """Return readings of a linear system before and after one of its columns moves, and which."""
    draw = np.random.default_rng(seed)
    order, weights = draw.permutation(COLUMNS), np.zeros((COLUMNS, COLUMNS))
    for place, effect in enumerate(order[1:], 1):
        for cause in order[:place]:
            if draw.random() < 2 / place:
                weights[effect, cause] = draw.uniform(0.5, 2) * draw.choice([-1, 1])
    root, periods = int(draw.integers(COLUMNS)), []
    for shift in (0.0, SHIFT):
        values = np.zeros((ROWS, COLUMNS))
        for column in order:
            moved = shift if column == root else 0.0
            values[:, column] = values @ weights[column] + draw.normal(0, 1, ROWS) + moved
        periods.append(values)
    return periods[0], periods[1], root


def ours(normal: Matrix, abnormal: Matrix, seed: int) -> list[int]:
    """Return what our RCD is left with."""
    return rcd_ranking(normal, abnormal, 5, 5, np.random.default_rng(seed))


def theirs(normal: Matrix, abnormal: Matrix, seed: int) -> list[int]:
    """Return what PyRCA's RCD is left with."""
    frame = import_module("pandas").DataFrame
    rcd, tests = (import_module(f"pyrca.thirdparty.{name}") for name in ("rcd.rcd", "causallearn.utils.cit"))
    np.random.seed(seed)
    names = [str(column) for column in range(normal.shape[1])]
    settings = {
        "start_alpha": 0.01, "alpha_step": 0.1, "alpha_limit": 1, "localized": True, "gamma": 5, "bins": 5,
        "f_node": "F-node", "verbose": False, "ci_test": tests.chisq,
    }  # fmt: skip
    frames = (frame(values, columns=names) for values in (normal, abnormal))
    return [int(name) for name in rcd.run_multi_phase(*frames, settings)[0]]


def main() -> None:
    """Print how often the first root is the same, and how often it is the true one."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="Where PyRCA is unpacked.")
    options.add_argument("--draws", type=int, default=60)
    given = options.parse_args()
    sys.path.insert(0, given.folder)
    warnings.simplefilter("ignore")
    same = {"ours and theirs": 0, "ours and ours": 0, "theirs and theirs": 0}
    first = {"ours": 0, "theirs": 0}
    for number in range(given.draws):
        normal, abnormal, root = drawn(number)
        a, b = ([(one(normal, abnormal, seed) or [-1])[0] for seed in SEEDS] for one in (ours, theirs))
        same["ours and theirs"] += sum(x == y for x, y in product(a, b))
        same["ours and ours"] += a[0] == a[1]
        same["theirs and theirs"] += b[0] == b[1]
        first["ours"] += a.count(root)
        first["theirs"] += b.count(root)
    pairs = {"ours and theirs": len(SEEDS) ** 2, "ours and ours": 1, "theirs and theirs": 1}
    for name, count in same.items():
        print(f"the same first root, {name}: {count} of {given.draws * pairs[name]}")
    for name, count in first.items():
        print(f"the true root first, {name}: {count} of {given.draws * len(SEEDS)}")


if __name__ == "__main__":
    main()
