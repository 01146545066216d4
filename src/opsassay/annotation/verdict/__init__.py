"""The verdict on an incident: trials of its faults, the causal graph, the label, and what a suite takes."""
