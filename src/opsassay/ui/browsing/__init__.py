"""`opsassay view`: pages over stores of runs, served live or written as files."""
