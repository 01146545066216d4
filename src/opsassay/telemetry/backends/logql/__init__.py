"""A declared subset of LogQL, parsed and evaluated over recorded logs."""
