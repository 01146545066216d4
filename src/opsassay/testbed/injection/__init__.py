"""Injecting faults: what each type does on a substrate, whether it bites, and that it is undone."""
