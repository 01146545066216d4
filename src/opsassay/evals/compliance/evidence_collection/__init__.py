"""Evidence: what an agent's fetcher or playbook collects, run by the grader, sealed, on worlds of its own."""
