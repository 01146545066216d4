"""The runner of all domains: plans, runs, stores, external agents, grading and result tables."""
