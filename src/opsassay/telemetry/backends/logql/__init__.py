"""LogQL over recorded logs: a declared subset, read and evaluated."""
