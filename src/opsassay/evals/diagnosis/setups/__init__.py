"""Solvers as they are run: agents, methods with their parameters, and sweeps of these."""
