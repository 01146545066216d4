"""`opsassay view`: pages over stores of runs, the same ones live and as files."""
