"""The laboratory of a local system, in which faults are searched."""
