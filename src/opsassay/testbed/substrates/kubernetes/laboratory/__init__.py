"""The laboratory of a system on a cluster, in which faults are searched."""
