"""Grades of an answer: outcome and process against the truth, and the evidence."""
