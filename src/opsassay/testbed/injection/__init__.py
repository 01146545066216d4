"""Injects faults into a running system, checks their effect, and undoes them."""
