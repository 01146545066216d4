"""Faults by Chaos Mesh on a cluster that has it: a further mechanism, by the entry point ``opsassay.mechanisms``."""
