"""Solvers without a model: oracles (all but one fail at a stated stage) and baselines."""
