"""The processes of a local system: stores, name server, packet faults, control groups, metrics."""
