"""Incidents as tasks of other harnesses (Harbor, inspect_ai), and the grading of answers from there."""
