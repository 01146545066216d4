"""The workspace of an agent, and the files that it hands in."""
