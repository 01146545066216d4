"""Analysis of stored runs: audits, blamed steps, leaderboards, and the search for faults that fool a verifier."""
