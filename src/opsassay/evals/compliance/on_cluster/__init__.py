"""Worlds on a real cluster: made there and read back, or judged there by Kyverno itself."""
