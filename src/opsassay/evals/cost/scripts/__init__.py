"""Solvers without a model: oracles, which know the truth, and baselines."""
