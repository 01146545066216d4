"""Grades of an answer against the truth: outcome, process, evidence."""
