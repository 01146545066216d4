"""Solvers of incidents: methods and agents, the sandbox that confines them, the proxy that records their model calls."""
