"""ITBench's four public examples of compliance tasks: read, and what their evaluators accept wrongly."""
