"""Checks of a scenario for its author, before it is run and over many seeds, and replays of what was run."""
