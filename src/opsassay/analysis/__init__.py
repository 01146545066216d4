"""What stored runs say: the audit, blamed steps, leaderboards, and the search for faults that fool a verifier."""
