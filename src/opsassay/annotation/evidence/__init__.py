"""What changed: states of nodes, added time, and the signature that a fault must leave at its own place."""
