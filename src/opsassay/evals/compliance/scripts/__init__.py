"""Solvers without a model: oracles, each of which but one is wrong at a stage that it names, and baselines."""
