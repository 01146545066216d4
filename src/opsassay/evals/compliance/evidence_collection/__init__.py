"""Evidence that an agent's fetcher or playbook collects, when the grader runs it in a sandbox on hidden test systems."""
