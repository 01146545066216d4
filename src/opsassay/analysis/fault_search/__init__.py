"""Search for faults that fool a verifier: the system looks repaired, and a deeper property is broken."""
