"""Compliance tasks: policies that an agent writes, judged on worlds that it never saw."""
