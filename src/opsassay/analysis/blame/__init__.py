"""Failure attribution: which component of an agent system is responsible, and since which step."""
