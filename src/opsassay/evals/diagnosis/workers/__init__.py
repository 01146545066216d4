"""Worker processes: methods and agents in Python run in forks of one template."""
