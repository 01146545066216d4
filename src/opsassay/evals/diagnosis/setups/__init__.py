"""Solvers with all that a run needs: agents, methods with their parameters, and sweeps over these."""
