"""The domain triage: solvers sort an alert storm into groups, most harmful to users first, and noise."""
