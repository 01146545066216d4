"""Live scenarios as tasks of Harbor, and trials in which Harbor's agent is the operator."""
