"""Running solvers over suites and keeping what came out."""
