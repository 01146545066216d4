"""One trial: its process, environment, operator and record."""
